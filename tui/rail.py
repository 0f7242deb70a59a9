"""The rail beside the grid: layer, kind, worst level, number of divergent tokens."""

from __future__ import annotations

from rich.segment import Segment
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from tui.grid import Grid
from tui.guarded import Guarded, guarded
from tui.styles import BASE, BOLD, CODE_TEXT, CURSOR_MARK, MUTED
from workbench.view.geometry import Geometry
from workbench.view.model import ViewModel
from workbench.view.numbers import compact_count
from workbench.view.palette import GLYPHS
from workbench.view.state import ViewState

FULL_WIDTH = 15


class Rail(Widget, Guarded, can_focus=False):
    """Labels of the grid's lines.

    In a wrapped grid the counts are of the band, otherwise of the whole layer.
    """

    def __init__(self, model: ViewModel, grid: Grid) -> None:
        super().__init__(id="rail")
        self.model = model
        self.grid = grid
        self._followed: tuple[int, Geometry] | None = None

    @guarded
    def follow(self) -> None:
        """Draws everything anew if the grid's window or layout moved since the last time."""
        window = (self.grid.scroll_offset.y, self.grid.layout_now)
        if window != self._followed:
            self._followed = window
            self.refresh()

    @property
    def narrow_width(self) -> int:
        """Columns needed for the marker and the longest label alone."""
        layout = self.grid.layout_now
        return 1 + max(4, len(_label(*layout.layers_of(layout.band_lines - 1))) + 1)

    @guarded
    def show(self, before: ViewState) -> None:
        """Draws the model's state, given the one that is on the screen."""
        after = self.model.state
        if _everywhere(before) != _everywhere(after):
            self.refresh()
            return
        for cell in {before.cell, after.cell}:
            self.refresh_line(self.grid.layout_now.locate(cell)[0])

    def refresh_line(self, line: int) -> None:
        """Draws the label of one line of the grid anew."""
        y = line - self.grid.scroll_offset.y + self._head
        if 0 <= y < self.size.height:
            self.refresh(Region(0, y, self.size.width, 1))

    @property
    def _head(self) -> int:
        """Lines above the first label: one when the grid has a ruler above it."""
        return 0 if self.grid.layout_now.wrapped else 1

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if y < self._head:
            text = " layer  worst n" if width >= FULL_WIDTH else ""
            return Strip([Segment(text, MUTED)]).adjust_cell_length(width, BASE)
        line = y - self._head + self.grid.scroll_offset.y
        layout = self.grid.layout_now
        band, inner = layout.line_kind(line)
        if inner is None or line >= layout.height:
            return Strip.blank(width, BASE)
        if inner < 0:
            label = f" t{layout.rows_of_band(band)[0]}"
            text = f"{label:<{width - 2}}n" if width >= FULL_WIDTH else label
            return Strip([Segment(text, MUTED)]).adjust_cell_length(width, BASE)
        return Strip(self._label(line, band, inner)).adjust_cell_length(width, BASE)

    def _label(self, line: int, band: int, inner: int) -> list[Segment]:
        model, layout = self.model, self.grid.layout_now
        start, stop = layout.layers_of(inner)
        here = layout.locate(model.state.cell)[0] == line
        style = BOLD if here else MUTED
        segments = [Segment("▶" if here else " ", CURSOR_MARK)]
        label = _label(start, stop)
        if self.size.width < FULL_WIDTH:
            return [*segments, Segment(label, style)]
        kind = model.facts.layer_kind(start) if stop - start == 1 else ""
        rows = layout.rows_of_band(band) if layout.wrapped else (0, model.num_rows)
        worst = model.worst_code(start, stop, *rows)
        divergent = sum(model.count_in_layer(layer, *rows) for layer in range(start, stop))
        segments.append(Segment(f"{label:<4}{kind:<4}" if kind else f"{label:<8}", style))
        segments.append(Segment(GLYPHS[worst], CODE_TEXT[worst]))
        count = compact_count(divergent) if divergent else ""
        segments.append(Segment(f"{count:>4}", style))
        return segments


def _everywhere(state: ViewState) -> tuple[object, ...]:
    """What every label depends on."""
    return (state.lens, state.side, state.klass, state.zoom, state.tolerance, state.filter)


def _label(start: int, stop: int) -> str:
    return f"L{start}" if stop - start <= 1 else f"L{start}–{stop - 1}"
