"""A cell as plain text, for the clipboard and for issues."""

from __future__ import annotations

from workbench.names import DIRECTION, SIDE_A, SIDE_B
from workbench.view.headline import explained_word, flip_text
from workbench.view.inspector import SiteDifference
from workbench.view.local import ModuleError
from workbench.view.model import ViewModel
from workbench.view.modules import module_text
from workbench.view.numbers import fixed, short, signed, times
from workbench.view.rows import quote
from workbench.view.stepping import step_text
from workbench.view.walk import Stop


def cell_text(model: ViewModel) -> str:
    """Everything about the cursor's cell, one fact per line."""
    facts, whole = model.cell_facts(), model.facts
    token = facts.token
    probability = facts.logprob
    lines = [
        f"kldive {facts.address} · {whole.model}",
        f"{SIDE_A}: {whole.a.engine} {whole.a.version} {whole.a.dtype}",
        f"{SIDE_B}: {whole.b.engine} {whole.b.version} {whole.b.dtype}",
        f"{token.request} position {token.position} id {token.token_id} {quote(token.text)}",
        f"logp A {fixed(probability.a, 6)} B {fixed(probability.b, 6)}",
        f"dlogp {signed(probability.dlogp, 6)} ({DIRECTION})",
        step_text(model, Stop(*model.state.cell, model.state.site)),
    ]
    if facts.router is not None:
        flips = facts.router.num_flips
        word = explained_word(facts.router) if flips else "same experts"
        lines.append(f"{flip_text(facts.router)} · {word}")
        lines += [
            f"  expert {row.expert}: A gate {fixed(row.gate_a, 6)} logit {fixed(row.logit_a, 6)}; "
            f"B gate {fixed(row.gate_b, 6)} logit {fixed(row.logit_b, 6)}"
            for row in facts.router.experts
        ]
    lines += [_site(site) for site in facts.sites if site.known]
    return "\n".join([*lines, *(_error(error) for error in facts.errors)])


def _error(error: ModuleError) -> str:
    outside = f" outside: {error.outside}" if error.outside else ""
    return (
        f"  {module_text(None, error.verdict.module)}: local {short(error.local)} "
        f"({times(error.of_budget)} budget) inherited {short(error.inherited)} "
        f"total {short(error.total)} units A {short(error.units_a)} B {short(error.units_b)}"
        f"{outside}"
    )


def _site(site: SiteDifference) -> str:
    if site.site == "topk_ids":
        return f"  {site.site}: {'same experts' if site.bit_equal else 'different experts'}"
    if site.bit_equal:
        return f"  {site.site}: equal bit for bit"
    return (
        f"  {site.site}: max |A - B| {short(site.max_abs)} rel L2 {short(site.rel_l2)} "
        f"cosine {short(site.cosine, 6)} NaN/Inf A {site.nonfinite_a} B {site.nonfinite_b}"
    )
