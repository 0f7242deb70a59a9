"""A step along a token's way, and what is there: reading the facts that `steps` puts into words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from workbench.comparison.columns import AFTER_ROUTING
from workbench.names import LOGPROBS
from workbench.view.facts import cell_facts
from workbench.view.headline import absence
from workbench.view.inspector import CellFacts, SiteDifference
from workbench.view.state import ViewState
from workbench.view.steps import StepFacts, step_sentence
from workbench.view.walk import Stop, next_stop, previous_stop

if TYPE_CHECKING:
    from workbench.view.model import ViewModel

_GOES_INTO: Final[dict[str, tuple[str, ...]]] = {
    "attn_in": ("input",),
    "attn_out": ("attn_in",),
    "mlp_in": ("input", "attn_out"),
    "router_logits": ("mlp_in",),
    "topk_weights": ("router_logits",),
    "routed_out": ("mlp_in", "topk_weights"),
    "shared_out": ("mlp_in",),
    "mlp_out": ("mlp_in", "topk_weights", "routed_out", "shared_out"),
    "output": ("input", "attn_out", "mlp_out"),
    "final_norm": ("output",),
    "logits": ("final_norm",),
}
"""What each site is computed from in its own layer, as far as it is recorded."""

_OF_ROUTER: Final = ("router_logits", "topk_ids", "topk_weights", "routed_out")


def by_sites(count: int) -> Callable[[ViewState, ViewModel], ViewState]:
    """Steps to the next recorded site in execution order, or back, and says what is there."""

    def run(state: ViewState, model: ViewModel) -> ViewState:
        if not model.num_rows:
            return state
        here = Stop(state.layer, state.row, state.site)
        stop = next_stop(model, here) if count > 0 else previous_stop(model, here)
        if stop is None:
            return replace(state, message=_at_the_end(model, here, forward=count > 0))
        return replace(
            state, layer=stop.layer, row=stop.row, site=stop.site, message=step_text(model, stop)
        )

    return run


def _at_the_end(model: ViewModel, here: Stop, *, forward: bool) -> str:
    if not forward:
        return "the start of this token's way; . steps forward"
    if here.row + 1 < model.request_rows(here.row)[1]:
        return "the end of this token's way; , steps back"
    return "the last token of its request: nothing is scored from here; , steps back"


def step_text(model: ViewModel, stop: Stop) -> str:
    """What happens at a place, in one sentence."""
    return step_sentence(step_facts(model, stop))


def step_facts(model: ViewModel, stop: Stop) -> StepFacts:
    """What is known at a place."""
    facts = cell_facts(model.source, stop.cell, stop.site, model.sites, model.attribution)
    found = {site.site: site for site in facts.sites}
    of_cell = model.source.metrics(stop.layer, stop.row)
    return StepFacts(
        layer=stop.model_layer,
        site=stop.site,
        dense=facts.layer_kind == "dense",
        difference=found.get(stop.site),
        budget=budget_of(model, stop),
        excused=_excused(model, stop),
        error=next((e for e in facts.errors if e.site == stop.site), None),
        entering=_entering(model, stop, found),
        earlier=stop.site == "attn_out" and facts.token.position > 0,
        router=facts.router,
        mass_moved=of_cell.get("gates.mass_moved"),
        logprob=facts.logprob,
        tolerance=_tolerance(model, facts),
        text=facts.token.text,
        absent=_absent(facts, stop.site),
    )


def budget_of(model: ViewModel, stop: Stop) -> float | None:
    """Relative L2 that rounding allows at a place; None where the site has no budget.

    Gate weights come out of the router's scores and inherit their budget.
    """
    found = model.source.budgets(model.state.tolerance or None)
    if stop.site in found.model:
        return float(found.model[stop.site])
    site = "router_logits" if stop.site == "topk_weights" else stop.site
    return float(found.layer[site][stop.layer]) if site in found.layer else None


def _excused(model: ViewModel, stop: Stop) -> bool:
    excused = model.source.excuses(model.state.tolerance or None)
    if stop.site == LOGPROBS:
        return bool(excused.logprob[stop.row])
    if stop.site == "embed":
        return False
    after = stop.site in AFTER_ROUTING or stop.model_layer is None
    return bool((excused.after if after else excused.before)[stop.cell])


def _entering(model: ViewModel, stop: Stop, found: dict[str, SiteDifference]) -> float | None:
    """The largest difference that goes into a site; None where an input is unknown or broken."""
    if stop.site == "input":
        return _entering_layer(model, stop, found)
    known = [found[site] for site in _GOES_INTO.get(stop.site, ()) if site in found]
    known = [site for site in known if site.known]
    if not known or any(site.nonfinite_a or site.nonfinite_b for site in known):
        return None
    return max(0.0 if site.bit_equal else site.rel_l2 or 0.0 for site in known)


def _entering_layer(model: ViewModel, stop: Stop, found: dict[str, SiteDifference]) -> float | None:
    if stop.layer == 0:
        embed = found.get("embed")
        return embed.rel_l2 if embed is not None and embed.known else None
    value = model.source.metrics(stop.layer - 1, stop.row).get("output.rel_l2")
    return None if value is None else float(value)


def _tolerance(model: ViewModel, facts: CellFacts) -> float | None:
    a, b = facts.logprob.a, facts.logprob.b
    if a is None or b is None:
        return None
    profile = model.state.tolerance or None
    found = model.source.budgets(profile).logprob(np.array([a]), np.array([b]))
    return float(found[0])


def _absent(facts: CellFacts, site: str) -> str:
    """Why a site has nothing here, and what would record it."""
    token = facts.token
    if site == LOGPROBS:
        return _not_scored(facts)
    if {token.state_a, token.state_b} & {"cached", "sampled"}:
        return absence(facts)
    if facts.layer_kind == "dense" and site in _OF_ROUTER:
        return "dense layer: no router"
    if site == "logits":
        # Prompt rows have none unless the engine was asked to score them.
        also = " --prompt-logprobs" if token.phase == "prompt" else ""
        return f"not recorded here; kldive capture rollout --logits{also}"
    return "not recorded on both sides; see `missing` in manifest.json"


def _not_scored(facts: CellFacts) -> str:
    if facts.token.position == 0:
        return "the first token of its request is not scored"
    if facts.token.phase == "prompt":
        return "not scored; kldive capture rollout --prompt-logprobs"
    return "not scored on both sides"
