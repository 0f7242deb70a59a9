"""The finding in one line: what the cursor's cell shows, or that there is nothing to show.

Plain text for any face. Everything is said from A (rollout) to B (trainer); differences are A minus
B.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from workbench.names import LOGPROBS, DivergenceClass
from workbench.view.classes import CLASS_TITLES
from workbench.view.inspector import CellFacts, RouterFacts, SiteDifference
from workbench.view.lenses import LENSES, is_error_lens
from workbench.view.local import Attribution, ModuleError
from workbench.view.modules import WRONG, module_text
from workbench.view.numbers import count, fixed, short, signed, times
from workbench.view.rows import quote
from workbench.view.unrecorded import unrecorded

if TYPE_CHECKING:
    from workbench.view.model import ViewModel

Tone = Literal["good", "finding", "plain", "warning"]
MAX_IDS = 4


class Headline(NamedTuple):
    """One line and how it is meant."""

    text: str
    tone: Tone


def verdict_line(model: ViewModel) -> Headline:
    """What the comparison as a whole comes to."""
    facts = model.facts
    if facts.status == "not_comparable":
        return Headline(f"not comparable{_because(facts.reason)}", "warning")
    # A narrow screen cuts the end: where the error enters comes first, what is in order last.
    where = _where(model)
    words = [f"{facts.status} · {facts.verdict}{_because(where)}"]
    if facts.kl is not None:
        words.append(f"KL(A‖B) {short(facts.kl)} ({facts.kl_name})")
    if facts.max_abs_dlogp is not None:
        words.append(f"max |dlogp| {short(facts.max_abs_dlogp)}")
    if facts.reason and not where:
        words.append(facts.reason)
    return Headline(" · ".join(words), "good" if facts.status == "equal" else "finding")


def _where(model: ViewModel) -> str:
    """Where the error enters: by the modules when they are known, else by total error."""
    found, jump = model.attribution, model.facts.jump
    if found is not None and found.first is not None:
        return _guilty(found)
    if jump is None:
        return ""
    layer = "" if jump.layer is None else f"L{jump.layer} "
    if found is not None:
        return f"total error grows at {layer}{jump.site}, no module is beyond its budget"
    scale = "" if jump.scale is None else f", A ≈ {jump.scale:.4g} × B"
    return f"the error enters at {layer}{jump.site}{scale}"


def _guilty(found: Attribution) -> str:
    assert found.first is not None
    module = module_text(found.first.layer, found.first.module)
    proof = f", {found.proof} by swaps" if found.proof in ("proved", "suspected") else ""
    return f"the error enters at {module}, {WRONG[found.first.who]}{proof}"


def headline(model: ViewModel) -> Headline:
    """The line for the current state."""
    facts = model.facts
    if model.state.message:
        return Headline(model.state.message, "plain")
    if not model.num_rows:
        return Headline("no rows to compare", "warning")
    if absent := _unrecorded(model):
        return Headline(absent, "warning")
    if not facts.first_rows and facts.status == "equal":
        cells = count(model.num_layers * model.num_rows)
        text = f"identical: 0 of {cells} cells differ under {facts.tolerance}; max 0 ULP"
        text += ", and no log-probability differs"
        return Headline(text, "good")
    return _at_cursor(model)


def _unrecorded(model: ViewModel) -> str:
    """Why the lens has nothing to show at all; empty when it has."""
    lens = LENSES[model.state.lens]
    if model.state.side != "diff" or lens.id == "logprob":
        return ""
    why = unrecorded(model.source.summary, lens.site)
    return f"{lens.title}: {why}" if why else ""


def _at_cursor(model: ViewModel) -> Headline:
    state, klass = model.state, model.state.klass
    index = model.jumps(klass, state.order)
    before, here = index.place(state.cell)
    facts = model.cell_facts()
    where = f"{facts.address} {quote(facts.token.text, 16)}"
    title = CLASS_TITLES[klass]
    if model.facts.alone:
        return Headline(f"{where} · {_site_detail(facts)}", "plain")
    if not here:
        ahead = len(index) - before
        hint = f"n: {count(ahead)} ahead" if ahead else "N goes back" if before else "c: class"
        if state.find:
            hint = "n: next hit, escape ends the search"
        about = _modules_detail(facts) if is_error_lens(state.lens) else ""
        about = about or _site_detail(facts)
        return Headline(f"{where} · {about} · no {title} here ({hint})", "plain")
    of_all = f"{title} {count(before + 1)} of {count(len(index))}"
    ordinal = of_all if before else f"first {title}"
    text = f"{ordinal}: {where} · {_detail(klass, facts)}"
    if set(model.facts.first_rows) != {"bit"} or state.tolerance != model.facts.tolerance:
        return Headline(text, "finding")
    return Headline(f"{_within_rounding(model, len(index))} · {text}", "good")


def _within_rounding(model: ViewModel, num_cells: int) -> str:
    cells = count(model.num_layers * model.num_rows)
    return (
        f"within rounding: none above the rounding budget; {count(num_cells)} of {cells} cells "
        "below it; press t for bitwise"
    )


def _detail(klass: DivergenceClass, facts: CellFacts) -> str:
    beyond = [error for error in facts.errors if error.over]
    if klass == "local_error" and beyond:
        return error_text(beyond[0])
    if klass in ("flip", "unexplained_flip") and facts.router is not None:
        flip = flip_text(facts.router)
        return flip if klass == "unexplained_flip" else f"{flip} · {explained_word(facts.router)}"
    return _logprob_detail(facts) if klass == "logprob" else _site_detail(facts)


def _logprob_detail(facts: CellFacts) -> str:
    logprob = facts.logprob
    sides = f"logp A {fixed(logprob.a)} B {fixed(logprob.b)}"
    return f"{sides} · dlogp {signed(logprob.dlogp)} (A − B)"


def _site_detail(facts: CellFacts) -> str:
    if facts.site == LOGPROBS:
        return _logprob_detail(facts)
    found = next((site for site in facts.sites if site.site == facts.site), None)
    if found is not None and found.alone:
        return f"{facts.site}: {alone_text(found, facts.router)}"
    if found is None or not found.known:
        return f"{facts.site}: {absence(facts)}"
    if facts.site == "topk_ids":
        return "same experts" if found.bit_equal or not facts.router else flip_text(facts.router)
    if found.nonfinite_a or found.nonfinite_b:
        sides = _nonfinite_sides(found.nonfinite_a, found.nonfinite_b)
        return f"{facts.site}: NaN or Inf in {sides}"
    if found.bit_equal:
        return f"{facts.site}: equal bit for bit"
    return f"{facts.site}: rel L2 {short(found.rel_l2, 1)} · max |A − B| {short(found.max_abs, 1)}"


def alone_text(found: SiteDifference, router: RouterFacts | None) -> str:
    """What one side has at a site when it is not compared with another."""
    if found.site == "topk_ids":
        chosen = [] if router is None else [row.expert for row in router.experts]
        return f"{found.alone} {_ids(chosen)}"
    bad = found.nonfinite_a or found.nonfinite_b
    return f"{found.alone} NaN or Inf: {count(bad)}" if bad else f"{found.alone} finite"


def _modules_detail(facts: CellFacts) -> str:
    """The module with the largest local error; empty where none was attributed."""
    known = [(size, e) for e in facts.errors if (size := e.size("local")) is not None]
    if not known:
        return ""
    size, worst = max(known, key=lambda pair: pair[0])
    if worst.over:
        return error_text(worst)
    if size == 0:
        return "every module equal on the same input"
    return (
        f"modules within budget, at most {times(size)} ({module_text(None, worst.verdict.module)})"
    )


def error_text(error: ModuleError) -> str:
    """How far a module is off on the same input, and who is wrong."""
    module = module_text(None, error.verdict.module)
    size = f"{short(error.local, 1)} of the output"
    if error.of_budget is not None and error.of_budget > 1:
        size += f", {times(error.of_budget)} budget"
    elif error.units_a is not None and error.units_b is not None:
        # Within the budget of rounding alone: the arbiter told the sides apart.
        size += f", units A {error.units_a:.1f} B {error.units_b:.1f}"
    wrong = {"A": "A", "B": "B", "AB": "both"}.get(error.outside, "unknown")
    return f"{module} · {size} · {WRONG[wrong]}"


def flip_text(router: RouterFacts) -> str:
    """Who is selected where, the gap, and whether it is explained."""
    only_a = [row.expert for row in router.experts if row.on == "A"]
    only_b = [row.expert for row in router.experts if row.on == "B"]
    both = [row.expert for row in router.experts if row.on == "both"]
    if len(both) + len(only_a) <= MAX_IDS:
        sides = f"experts A {_ids([*both, *only_a])} B {_ids([*both, *only_b])}"
    else:
        sides = f"experts only A {_ids(only_a)} only B {_ids(only_b)}"
    gap = min(
        (m.gap for m in (router.margin_a, router.margin_b) if m.gap is not None), default=None
    )
    return f"{sides} · margin {short(gap, 1)}"


def explained_word(router: RouterFacts) -> str:
    """`explained`, `UNEXPLAINED` or `not judged`."""
    if router.explained is None:
        return "not judged"
    return "explained" if router.explained else "UNEXPLAINED"


def _ids(experts: list[int]) -> str:
    return "{" + ",".join(map(str, experts)) + "}"


def _nonfinite_sides(count_a: int, count_b: int) -> str:
    sides = [f"{side} ({found})" for side, found in (("A", count_a), ("B", count_b)) if found]
    return " and ".join(sides)


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""


def absence(facts: CellFacts) -> str:
    """Why there is nothing to compare at a cell, in one line."""
    words = {
        "cached": "served from the prefix cache, not computed",
        "sampled": "sampled last, never fed back",
    }
    for side, state in (("A", facts.token.state_a), ("B", facts.token.state_b)):
        if state in words:
            return f"{side}: {words[state]}"
    if facts.layer_kind == "dense":
        return "dense layer: no router"
    return "not recorded on both sides"
