"""Which part of the grid a notebook shows, as [first layer, stop, first row, stop]. Stdlib only.

The zoom is the view-model's own: a column of the grid is `CHARACTER` pixels wide for each character
that the terminal would give it. The front end says how many columns and layers it has room for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from workbench.view.geometry import Viewport
from workbench.view.model import ViewModel
from workbench.view.state import DENSE_ZOOM, TEXT_ZOOM

CHARACTER: Final = 7
MAX_ROOM: Final = 4096

Rectangle = tuple[int, int, int, int]
"""First layer, layer after the last, first row, row after the last."""


class Window(NamedTuple):
    """Layers and rows that are shown, stops exclusive."""

    first_layer: int
    stop_layer: int
    first_row: int
    stop_row: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What a front end has room for.

    Attributes:
        columns: Characters across.
        bands: How often all layers fit below each other, with the tokens going on in the next.
        layers: Layers at zooms with a glyph in each cell; `dense_layers` at the others.
    """

    columns: int = 120
    bands: int = 1
    layers: int = 24
    dense_layers: int = 96

    def viewport(self, num_layers: int) -> Viewport:
        """The same for the view-model: a line per layer and two more for each band."""
        lines = max(1, self.bands * (num_layers + 2) - 1)
        return Viewport(columns=self.columns, lines=lines, glyphs_only=True)


def opening_zoom(model: ViewModel, room: Room) -> int:
    """Token texts where every layer has room for a glyph, else one narrow column per token."""
    return TEXT_ZOOM if model.num_layers <= room.layers else DENSE_ZOOM


def revealed(model: ViewModel, room: Room, window: Window, *, centre: bool = False) -> Window:
    """The window in the current zoom, moved only when the cursor is outside or `centre` asks."""
    state = model.state
    layers = min(_layers(model, room), model.num_layers)
    rows = min(model.page_rows, model.num_rows)
    first_layer = _first(window.first_layer, layers, state.layer, model.num_layers, centre=centre)
    first_row = _first(window.first_row, rows, state.row, model.num_rows, centre=centre)
    step = model.geometry.rows_per_column
    first_row -= first_row % step
    return Window(first_layer, first_layer + layers, first_row, _stop(model, first_row, rows))


def placed(model: ViewModel, room: Room, wanted: Window) -> Window:
    """The window that starts where `wanted` does, in the current zoom, inside the comparison."""
    layers = min(_layers(model, room), model.num_layers)
    rows = min(model.page_rows, model.num_rows)
    first_layer = max(0, min(wanted.first_layer, model.num_layers - layers))
    first_row = max(0, min(wanted.first_row, model.num_rows - rows))
    first_row -= first_row % model.geometry.rows_per_column
    return Window(first_layer, first_layer + layers, first_row, _stop(model, first_row, rows))


def zoom_showing(model: ViewModel, rows: int) -> int:
    """The closest zoom at which `rows` rows are on the screen at once."""
    before = model.state
    zoom = TEXT_ZOOM
    try:
        zoomed(model, zoom)
        while model.page_rows < min(rows, model.num_rows):
            zoom += 1
            zoomed(model, zoom)
    finally:
        model.state = before
    return zoom


def zoomed(model: ViewModel, zoom: int) -> None:
    """Puts the model at a zoom, as a resized face does."""
    model.state = replace(model.state, zoom=zoom)


def _layers(model: ViewModel, room: Room) -> int:
    return room.dense_layers if model.state.zoom >= DENSE_ZOOM else room.layers


def _first(first: int, size: int, cursor: int, total: int, *, centre: bool) -> int:
    if centre or not first <= cursor < first + size:
        first = cursor - size // 2
    return max(0, min(first, total - size))


def _stop(model: ViewModel, first_row: int, rows: int) -> int:
    return min(model.num_rows, first_row + rows)
