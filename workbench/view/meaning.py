"""What the level of a cell means in words, under the lens and side that are looked through."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.view.headline import absence
from workbench.view.lenses import LENSES, is_error_lens
from workbench.view.local import why_absent
from workbench.view.modules import short_title
from workbench.view.palette import ABSENT, EQUAL, HIDDEN
from workbench.view.sides import side_about, side_legend
from workbench.view.state import ViewState

if TYPE_CHECKING:
    from workbench.view.model import ViewModel


def meaning(model: ViewModel) -> tuple[int, str]:
    """Code of the cursor's cell, and what it means."""
    state = model.state
    code = int(model.codes()[state.layer, state.row])
    if code == HIDDEN:
        return code, "hidden by the filter"
    if state.side != "diff":
        return code, _of_side(state, code)
    if code == ABSENT and state.lens == "logprob":
        return code, "not scored on both sides"
    if code == ABSENT:
        return code, _absence(model)
    words = legend(state)[code - EQUAL]
    if is_error_lens(state.lens):
        return code, f"{words}{_worst_module(model, code)}"
    return code, f"{words}, after an explained flip" if _excused(model, code) else words


def legend(state: ViewState) -> tuple[str, ...]:
    """What each level means, one entry per level."""
    return LENSES[state.lens].legend if state.side == "diff" else side_legend(state.lens)


def side_sentence(state: ViewState) -> str:
    """What the grid shows of A and B, for the person who just changed it."""
    if state.side == "diff":
        return f"A against B: {LENSES[state.lens].title}"
    return f"{state.side.upper()} alone: {side_about(state.lens)}"


def _of_side(state: ViewState, code: int) -> str:
    side = state.side.upper()
    if code == ABSENT:
        return f"{side} alone has no number here"
    return f"{side}: {side_legend(state.lens)[code - EQUAL]}"


def _absence(model: ViewModel) -> str:
    """Why there is no level at the cursor."""
    facts, found = model.cell_facts(), model.attribution
    if found is None or not is_error_lens(model.state.lens):
        return absence(facts)
    if {facts.token.state_a, facts.token.state_b} & {"cached", "sampled"}:
        return absence(facts)
    return why_absent(found, facts.token.request, facts.token.position)


def _worst_module(model: ViewModel, code: int) -> str:
    """The module that gives the cursor's cell its level under an error lens."""
    errors = model.cell_facts().errors
    known = [(size, e) for e in errors if (size := e.size(model.state.lens)) is not None]
    if code - EQUAL <= 1 or not known:
        return ""
    _, worst = max(known, key=lambda pair: pair[0])
    return f": {short_title(worst.verdict.module)}"


def _excused(model: ViewModel, code: int) -> bool:
    """Whether the difference at the cursor follows from a flip that its inputs explain."""
    state = model.state
    if state.lens not in ("combined", "residual") or code - EQUAL in (0, 1, 6):
        return False
    with model.grids.lock:
        excused_LT = model.source.excuses(state.tolerance or None).of(LENSES[state.lens].site)
    return bool(excused_LT[state.layer, state.row])
