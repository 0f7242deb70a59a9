"""Where a view opens: at the first divergence that matters, or where it is asked to.

Axes: L layer, T row.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from workbench.address import Address
from workbench.names import DEFAULT_CLASS_ORDER
from workbench.view import leaps
from workbench.view.facts import JumpFacts
from workbench.view.lenses import lens_of_site
from workbench.view.source import Source
from workbench.view.state import Cell, Side, ViewState
from workbench.view.transitions import go
from workbench.view.walk import is_site, settled

if TYPE_CHECKING:
    from workbench.view.model import ViewModel


def opening_state(model: ViewModel, at: Address | None) -> ViewState:
    """The first state of a view-model.

    Args:
        model: Everything but its state.
        at: Where to open; the first divergence of the leading class when None.
    """
    sides: dict[str, Side] = {"A": "a", "B": "b"}
    # Building the first index needs the tolerance in place.
    model.state = state = ViewState(tolerance=model.facts.tolerance)
    for klass in DEFAULT_CLASS_ORDER:
        if klass in model.facts.first_rows and len(model.jumps(klass, state.order)):
            state = replace(leaps.choose_class(state, model, klass), past=())
            break
    if model.facts.jump is not None and state.klass != "local_error":
        state = _at_jump(state, model, model.facts.jump)
    if at is not None:
        layer = state.layer if at.layer is None else at.layer
        row = state.row if at.row is None else at.row
        state = at_site(go(state, Cell(layer, row), model), at.site, model)
    return replace(state, side=sides.get(model.facts.alone, "diff"))


def at_site(state: ViewState, site: str | None, model: ViewModel) -> ViewState:
    """The site in focus, where it was recorded and stands in this layer."""
    if site is None or not is_site(site, model):
        return state
    return replace(state, site=settled(site, state.layer, model.num_layers))


def _at_jump(state: ViewState, model: ViewModel, jump: JumpFacts) -> ViewState:
    """Where total error says that it enters; all rows of that layer carry it."""
    if jump.layer is None or jump.site not in model.sites:
        return state
    row = _first_measured(model.source, jump.layer, jump.site)
    state = replace(state, lens=lens_of_site(jump.site), site=jump.site)
    return go(state, Cell(jump.layer, row), model)


def _first_measured(source: Source, layer: int, site: str) -> int:
    """The first row that has a number at a layer's site; 0 when none has."""
    name = f"{site}.rel_l2"
    return int(np.argmax(~source.missing(name)[layer])) if source.has_column(name) else 0
