"""What each action does: pure functions from state to state. No table, no keys, no drawing.

Every function takes the state and the view-model it belongs to, reads facts from the model, and
gives back a new state; nothing here changes the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from workbench.view.filters import NO_FILTER
from workbench.view.lenses import LENSES, is_error_lens, lens_after
from workbench.view.meaning import side_sentence
from workbench.view.state import Area, Cell, LensId, Side, ViewState
from workbench.view.walk import settled

if TYPE_CHECKING:
    from workbench.view.model import ViewModel

Run = Callable[[ViewState, "ViewModel"], ViewState]


def say(state: ViewState, message: str) -> ViewState:
    """The same state with a line for the person."""
    return replace(state, message=message)


def go(state: ViewState, cell: Cell, model: ViewModel) -> ViewState:
    """Moves the cursor to a cell, kept inside the comparison."""
    layer = min(max(cell.layer, 0), max(model.num_layers - 1, 0))
    row = min(max(cell.row, 0), max(model.num_rows - 1, 0))
    site = settled(state.site, layer, model.num_layers)
    return replace(state, layer=layer, row=row, site=site)


def by_columns(count: int) -> Run:
    """Moves the cursor by columns of the grid; zoomed out, a column is several rows."""

    def run(state: ViewState, model: ViewModel) -> ViewState:
        step = model.geometry.rows_per_column
        return go(state, Cell(state.layer, state.row + count * step), model)

    return run


def by_layers(count: int) -> Run:
    """Moves the cursor by layers."""
    return lambda state, model: go(state, Cell(state.layer + count, state.row), model)


def by_pages(count: int) -> Run:
    """Moves the cursor by screens of tokens."""
    return lambda state, model: go(
        state, Cell(state.layer, state.row + count * model.page_rows), model
    )


def to_row(row: int) -> Run:
    """Moves the cursor to a row; negative ones count from the end."""
    return lambda state, model: go(
        state, Cell(state.layer, row if row >= 0 else model.num_rows + row), model
    )


def to_layer(layer: int) -> Run:
    """Moves the cursor to a layer; negative ones count from the end."""
    return lambda state, model: go(
        state, Cell(layer if layer >= 0 else model.num_layers + layer, state.row), model
    )


def toggle_order(state: ViewState, _model: ViewModel) -> ViewState:
    """Switches between scanning token by token and layer by layer."""
    if state.order == "token":
        state = replace(state, order="layer")
        return say(state, "n and N now scan layer by layer, as prefill computes")
    return say(
        replace(state, order="token"), "n and N now scan token by token, as decoding computes"
    )


def to_lens(lens: LensId) -> Run:
    """Looks through another lens, or the next one of the same key, and puts its site in focus."""

    def run(state: ViewState, model: ViewModel) -> ViewState:
        if is_error_lens(lens) and model.attribution is None:
            return say(state, model.needs_model)
        found = lens_after(lens, state.lens)
        site = LENSES[found].site
        return replace(state, lens=found, site=site if site in model.sites else state.site)

    return run


def by_zoom(count: int) -> Run:
    """Zooms in (negative) or out, between wide cells and everything on one screen."""

    def run(state: ViewState, model: ViewModel) -> ViewState:
        zoom = min(max(state.zoom + count, 0), model.fitting_zoom(at_least=state.zoom))
        if zoom == state.zoom:
            return say(
                state, "already as far in as it goes" if count < 0 else "everything is shown"
            )
        return replace(state, zoom=zoom)

    return run


def zoom_to_fit(state: ViewState, model: ViewModel) -> ViewState:
    """The closest zoom at which every token can be seen."""
    return replace(state, zoom=model.fitting_zoom())


def toggle_inspector(state: ViewState, _model: ViewModel) -> ViewState:
    """Opens or closes the inspector."""
    return replace(state, inspector=not state.inspector)


def pin_here(state: ViewState, model: ViewModel) -> ViewState:
    """Pins the cursor's cell."""
    return say(replace(state, pin=state.cell), f"pinned {model.address(state.cell)}")


def clear_pin(state: ViewState, _model: ViewModel) -> ViewState:
    """Removes the pin."""
    return replace(state, pin=None)


def toggle_mark(state: ViewState, _model: ViewModel) -> ViewState:
    """Sets or removes a bookmark at the cursor."""
    return replace(state, marks=state.marks ^ {state.cell})


def cycle_side(state: ViewState, model: ViewModel) -> ViewState:
    """Difference, then A's own numbers, then B's."""
    if model.facts.alone:
        return say(state, f"only {model.facts.alone} was opened: there is no other side to show")
    after: dict[Side, Side] = {"diff": "a", "a": "b", "b": "diff"}
    state = replace(state, side=after[state.side])
    return say(state, side_sentence(state))


def swap_sides(state: ViewState, _model: ViewModel) -> ViewState:
    """Draws the other side first; differences stay A minus B."""
    first = "A" if state.b_first else "B"
    return say(
        replace(state, b_first=not state.b_first), f"{first} is drawn first; differences stay A − B"
    )


def clear_filter(state: ViewState, _model: ViewModel) -> ViewState:
    """Shows every cell again."""
    if not state.filter:
        return say(state, "no filter is set; F sets one")
    return say(replace(state, filter=NO_FILTER), "every cell is shown again")


def toggle_selecting(state: ViewState, _model: ViewModel) -> ViewState:
    """Starts an area at the cursor, or keeps the one that follows it."""
    if state.selecting:
        return replace(state, selecting=False)
    return replace(state, selecting=True, area=Area(state.cell, state.cell))


def go_back(state: ViewState, model: ViewModel) -> ViewState:
    """One level back: the message, then the search, then the selection."""
    if model.state.message:
        return replace(state, message="")
    if state.find:
        return replace(state, find="")
    return replace(state, area=None, selecting=False)
