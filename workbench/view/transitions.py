"""What each action does: pure functions from state to state. No table, no keys, no drawing.

Every function takes the state and the view-model it belongs to, reads facts from the model, and
gives back a new state; nothing here changes the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from workbench.names import DEFAULT_CLASS_ORDER, DivergenceClass
from workbench.view.classes import CLASS_TITLES
from workbench.view.lenses import LENSES, is_error_lens, lens_after
from workbench.view.state import Cell, LensId, ViewState

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
    return replace(state, layer=layer, row=row)


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


def jump_next(state: ViewState, model: ViewModel) -> ViewState:
    """To the next cell of the class, in scan order."""
    return _jump(state, model, model.jumps(state.klass, state.order).next(state.cell), "after")


def jump_previous(state: ViewState, model: ViewModel) -> ViewState:
    """To the previous cell of the class, in scan order."""
    return _jump(state, model, model.jumps(state.klass, state.order).previous(state.cell), "before")


def _jump(state: ViewState, model: ViewModel, target: Cell | None, where: str) -> ViewState:
    if target is None:
        title = CLASS_TITLES[state.klass]
        total = len(model.jumps(state.klass, state.order))
        if not total:
            return say(state, f"{_none(state.klass, model)}; c chooses another class")
        return say(state, f"no {title} {where} this cell; f goes to the first of {total:,}")
    return go(state, target, model)


def jump_first(state: ViewState, model: ViewModel) -> ViewState:
    """To the first cell of the class; from there to the first of the next class that has one."""
    first = model.jumps(state.klass, state.order).first()
    if first is not None and first != state.cell:
        return go(state, first, model)
    start = DEFAULT_CLASS_ORDER.index(state.klass)
    for offset in range(1, len(DEFAULT_CLASS_ORDER)):
        klass = DEFAULT_CLASS_ORDER[(start + offset) % len(DEFAULT_CLASS_ORDER)]
        if len(model.jumps(klass, state.order)):
            return choose_class(state, model, klass)
    return say(state, "no other class has an entry")


def choose_class(state: ViewState, model: ViewModel, klass: DivergenceClass) -> ViewState:
    """Looks for `klass` from now on, through the fitting lens, and goes to its first cell."""
    first = model.jumps(klass, state.order).first()
    if first is None:
        return say(state, _none(klass, model))
    lens, site = model.lens_and_site_of(klass, first)
    state = replace(state, klass=klass, lens=lens, site=site)
    return go(state, first, model)


def _none(klass: DivergenceClass, model: ViewModel) -> str:
    """That a class has no entry, and what it takes to have one."""
    title = CLASS_TITLES[klass]
    if klass == "local_error" and model.attribution is None:
        return f"no {title} known: {model.needs_model}"
    return f"no {title} in this comparison"


def toggle_order(state: ViewState, _model: ViewModel) -> ViewState:
    """Switches between scanning token by token and layer by layer."""
    if state.order == "token":
        state = replace(state, order="layer")
        return say(state, "n and N now scan layer by layer, as prefill computes")
    return say(
        replace(state, order="token"), "n and N now scan token by token, as decoding computes"
    )


def by_sites(count: int) -> Run:
    """Puts another recorded site of the layer in focus."""

    def run(state: ViewState, model: ViewModel) -> ViewState:
        sites = model.sites
        if state.site not in sites:
            return replace(state, site=sites[0]) if sites else state
        place = min(max(sites.index(state.site) + count, 0), len(sites) - 1)
        return replace(state, site=sites[place])

    return run


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


def go_back(state: ViewState, _model: ViewModel) -> ViewState:
    """Clears the message."""
    return replace(state, message="")
