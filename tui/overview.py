"""All tokens at once, pooled by maximum: severity above, marks and the window below."""

from __future__ import annotations

import re

import numpy as np
from rich.segment import Segment
from textual.events import Click
from textual.message import Message

from tui import cells
from tui.grid import Grid
from tui.lines import Lines
from tui.rail import FULL_WIDTH
from tui.styles import BOLD, MUTED
from workbench.view.model import ViewModel
from workbench.view.palette import EQUAL
from workbench.view.rows import fit
from workbench.view.tiles import column_of, column_starts, pool_to_width

LABEL_WIDTH = FULL_WIDTH
_FRAME = re.compile("[─└┘ ]+|[^─└┘ ]+")


class Overview(Lines):
    """A map of the comparison, one or two lines high."""

    class Picked(Message):
        """Someone clicked a token of the map."""

        def __init__(self, row: int) -> None:
            super().__init__()
            self.row = row

    def __init__(self, model: ViewModel, grid: Grid) -> None:
        super().__init__("overview")
        self.model = model
        self.grid = grid
        self._pooled: tuple[object, np.ndarray] | None = None

    def forget(self) -> None:
        """Pools anew at the next drawing: the comparison itself is another."""
        self._pooled = None

    def lines(self, width: int, height: int) -> list[list[Segment]]:
        band = width - LABEL_WIDTH
        if band < 8 or not self.model.num_rows:
            return []
        label = Segment(fit(f" all {self.model.num_rows:,}", LABEL_WIDTH), MUTED)
        marks = Segment(fit(" tokens", LABEL_WIDTH), MUTED)
        lines = [[label, *self._severity(band)], [marks, *self._marks(band)]]
        return lines if height > 1 else lines[:1]

    def _severity(self, band: int) -> list[Segment]:
        """Worst level per column; the upper half of the layers above the lower half."""
        top_P, bottom_P = self._halves(band)
        per_column = band // max(1, len(top_P))
        if self.app.no_color:
            return cells.glyph_line(np.maximum(top_P, bottom_P), per_column)
        return cells.half_line(np.repeat(top_P, per_column), np.repeat(bottom_P, per_column))

    def _halves(self, band: int) -> np.ndarray:
        state = self.model.state
        key = (state.lens, state.side, state.tolerance, state.filter, band)
        if self._pooled is None or self._pooled[0] != key:
            pooled_LP = pool_to_width(self.model.codes(), band)
            middle = -(-len(pooled_LP) // 2)
            halves = np.stack([_worst(pooled_LP[:middle]), _worst(pooled_LP[middle:])])
            self._pooled = (key, halves)
        return self._pooled[1]

    def _marks(self, band: int) -> list[Segment]:
        """The window as a bracket, firsts of every class, bookmarks, the pin, and the cursor."""
        num_rows = self.model.num_rows
        columns = min(band, num_rows)
        per_column = band // columns
        start, stop = self.grid.visible_rows()
        low, high = (column_of(row, num_rows, band) for row in (start, max(start, stop - 1)))
        text = [" "] * columns
        text[low : high + 1] = ["─"] * (high + 1 - low)
        text[low], text[high] = "└", "┘" if high > low else "└"
        state = self.model.state
        places = [(row, "▼") for row in self.model.first_rows().values()]
        places += [(cell.row, "+") for cell in state.marks]
        places += [(state.pin.row, "◆")] if state.pin else []
        for row, mark in places:
            text[column_of(row, num_rows, band)] = mark
        text[column_of(state.row, num_rows, band)] = "▲"
        wide = "".join(mark.ljust(per_column, _tail(mark)) for mark in text)
        return [Segment(run, MUTED if run[0] in "─└┘ " else BOLD) for run in _FRAME.findall(wide)]

    def on_click(self, event: Click) -> None:
        band = self.size.width - LABEL_WIDTH
        starts = column_starts(self.model.num_rows, band)
        per_column = max(1, band // max(1, len(starts)))
        column = (event.x - LABEL_WIDTH) // per_column
        if 0 <= column < len(starts):
            self.post_message(self.Picked(int(starts[column])))


def _worst(codes_LP: np.ndarray) -> np.ndarray:
    return codes_LP.max(axis=0) if len(codes_LP) else np.full(codes_LP.shape[1], EQUAL, np.uint8)


def _tail(mark: str) -> str:
    return "─" if mark in "─└" else " "
