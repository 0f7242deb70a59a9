"""The grid: layers down, tokens across. Line API over uint8 codes, no object per cell.

Moving the cursor inside the window redraws the two cells' lines and their headings, nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from rich.segment import Segment
from textual.events import MouseDown, MouseEvent, MouseMove, MouseUp
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tui import cells
from tui.guarded import Guarded, guarded
from tui.headings import heading_line
from tui.styles import BASE, SELECTED
from workbench.view.geometry import Geometry, Viewport
from workbench.view.model import ViewModel
from workbench.view.palette import EQUAL
from workbench.view.state import Cell, ViewState
from workbench.view.tiles import pool_layers


class Grid(ScrollView, Guarded, can_focus=False):
    """The whole comparison through the current lens.

    Attributes:
        lines_drawn: Lines rendered so far, for the test that guards how much a key redraws.
    """

    class Picked(Message):
        """Someone clicked a cell."""

        def __init__(self, cell: Cell) -> None:
            super().__init__()
            self.cell = cell

    class Dragged(Message):
        """Someone drags over an area: from a corner to the cell under the pointer."""

        def __init__(self, corner: Cell, cell: Cell) -> None:
            super().__init__()
            self.corner = corner
            self.cell = cell

    class Moved(Message):
        """The window on the grid moved or changed its layout."""

    def __init__(self, model: ViewModel) -> None:
        super().__init__(id="grid")
        self.model = model
        self.layout_now: Geometry = model.geometry
        self.lines_drawn = 0
        self.fit_layers = False
        self._opened = False
        self._pressed: Cell | None = None

    def on_resize(self) -> None:
        self.relayout(opening=not self._opened)
        self._opened = True

    def relayout(self, *, opening: bool = False) -> None:
        """Takes up the current size and zoom."""
        width, height = self.size
        viewport = Viewport(
            columns=width,
            lines=height,
            fit_layers=self.fit_layers,
            glyphs_only=bool(self.app.no_color),
        )
        self.model.resize(viewport, opening=opening)
        self.layout_now = self.model.geometry
        self.virtual_size = Size(self.layout_now.width, self.layout_now.height)
        self.reveal()
        self.refresh()
        self.post_message(self.Moved())

    @guarded
    def show(self, before: ViewState) -> None:
        """Draws the model's state, given the one that is on the screen."""
        after = self.model.state
        if before.zoom != after.zoom:
            self.relayout()
            return
        scrolled = self.reveal()
        if scrolled or _everywhere(before) != _everywhere(after):
            self.refresh()
            return
        for cell in {before.cell, after.cell, *(before.marks ^ after.marks)}:
            self._refresh_cell(cell)
        if before.pin != after.pin:
            for pin in filter(None, (before.pin, after.pin)):
                self._refresh_cell(pin)

    def reveal(self) -> bool:
        """Brings the cursor into the window, centred when it was outside; True when it moved."""
        layout, (width, height) = self.layout_now, self.size
        line, character = layout.locate(self.model.state.cell)
        x, y = self.scroll_offset
        new_x = _revealed(character, character + layout.cell_width, x, width, layout.width)
        heading = layout.heading_of(self.model.state.row)
        top = line if heading is None else heading
        new_y = _revealed(top, line + 1, y, height, layout.height)
        if (new_x, new_y) == (x, y):
            return False
        self.scroll_to(new_x, new_y, animate=False, immediate=True, force=True)
        return True

    def visible_rows(self) -> tuple[int, int]:
        """First row of the comparison in the window, and the row after the last."""
        layout, y = self.layout_now, self.scroll_offset.y
        if layout.wrapped:
            first_band = y // layout.band_height
            last_band = min(layout.num_bands - 1, (y + self.size.height - 1) // layout.band_height)
            return layout.rows_of_band(first_band)[0], layout.rows_of_band(last_band)[1]
        first, count, _ = self.window(0)
        start, stop = first << layout.step, (first + count) << layout.step
        return min(start, layout.num_rows), min(stop, layout.num_rows)

    def render_line(self, y: int) -> Strip:
        self.lines_drawn += 1
        width = self.size.width
        line = self.scroll_offset.y + y
        band, inner = self.layout_now.line_kind(line)
        if inner is None or line >= self.layout_now.height:
            return Strip.blank(width, BASE)
        first, count, cut_off = self.window(band)
        if inner < 0:
            segments = heading_line(self.model, self.layout_now, first, count)
        else:
            segments = self._cells(line, inner, first, count)
        return Strip(segments).crop(cut_off).adjust_cell_length(width, BASE)

    def window(self, band: int) -> tuple[int, int, int]:
        """What can be seen of a band: first column, columns, characters cut off the first."""
        layout = self.layout_now
        skipped, cut_off = divmod(self.scroll_offset.x, layout.cell_width)
        visible = -(-(self.size.width + cut_off) // layout.cell_width)
        first = band * layout.band_columns + skipped
        last = min((band + 1) * layout.band_columns, layout.num_columns)
        return first, max(0, min(visible, last - first)), cut_off

    def _cells(self, line: int, inner: int, first: int, count: int) -> list[Segment]:
        layout = self.layout_now
        start, stop = layout.layers_of(inner)
        codes_QP = pool_layers(
            self.model.codes(step=layout.step)[start:stop, first : first + count],
            layout.layers_per_cell,
        )
        if not layout.half_blocks:
            segments = cells.glyph_line(codes_QP[0], layout.cell_width)
        else:
            bottom = codes_QP[1] if len(codes_QP) > 1 else np.full_like(codes_QP[0], EQUAL)
            segments = cells.half_line(codes_QP[0], bottom)
        for column, segment in self._overlays(line, codes_QP, first, count):
            segments = _replace(segments, (column - first) * layout.cell_width, segment)
        return self._underlined(segments, (start, stop), first, count)

    def _underlined(
        self, segments: list[Segment], layers: tuple[int, int], first: int, count: int
    ) -> list[Segment]:
        """The line's cells, those of the selected area underlined."""
        layout, area = self.layout_now, self.model.state.area
        if area is None or area.layers[0] >= layers[1] or area.layers[1] <= layers[0]:
            return segments
        low, high = (layout.column_of(row) for row in (area.rows[0], area.rows[1] - 1))
        low, high = max(low - first, 0), min(high + 1 - first, count)
        if low >= high:
            return segments
        strip = Strip(segments)
        width = layout.cell_width
        parts = strip.divide([low * width, high * width, strip.cell_length])
        return [*parts[0], *parts[1].apply_style(SELECTED), *(parts[2] if len(parts) > 2 else ())]

    def _overlays(
        self, line: int, codes_QP: np.ndarray, first: int, count: int
    ) -> Iterator[tuple[int, Segment]]:
        """Marks, pin and cursor on a line, as (column, segment); the cursor last, on top."""
        layout, state = self.layout_now, self.model.state
        marked = [(cell, "+") for cell in state.marks] + ([(state.pin, "◆")] if state.pin else [])
        for cell, glyph in marked if not layout.half_blocks else ():
            column = layout.column_of(cell.row)
            if layout.locate(cell)[0] == line and first <= column < first + count:
                level = int(codes_QP[0, column - first])
                yield column, cells.marked_cell(glyph, level, layout.cell_width)
        column = layout.column_of(state.row)
        if layout.locate(state.cell)[0] != line or not first <= column < first + count:
            return
        if not layout.half_blocks:
            yield column, cells.cursor_cell(int(codes_QP[0, column - first]), layout.cell_width)
            return
        half = state.layer % layout.layers_per_line // layout.layers_per_cell
        other = int(codes_QP[1 - half, column - first]) if len(codes_QP) > 1 else EQUAL
        yield column, cells.cursor_half(other, upper=half == 0)

    def _refresh_cell(self, cell: Cell) -> None:
        layout = self.layout_now
        line, character = layout.locate(cell)
        heading = layout.heading_of(cell.row)
        for y in {line, line if heading is None else heading}:
            place = Region(character, y, layout.cell_width, 1).translate(-self.scroll_offset)
            self.refresh(place)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.post_message(self.Moved())

    def watch_scroll_x(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_x(old_value, new_value)
        self.post_message(self.Moved())

    def on_mouse_down(self, event: MouseDown) -> None:
        self._pressed = self._cell_under(event) if event.button == 1 else None

    def on_mouse_move(self, event: MouseMove) -> None:
        cell = self._cell_under(event)
        if self._pressed is not None and event.button == 1 and cell not in (None, self._pressed):
            assert cell is not None
            self.post_message(self.Dragged(self._pressed, cell))

    def on_mouse_up(self, event: MouseUp) -> None:
        pressed, self._pressed = self._pressed, None
        if pressed is not None and self._cell_under(event) == pressed:
            self.post_message(self.Picked(pressed))

    def _cell_under(self, event: MouseEvent) -> Cell | None:
        x, y = self.scroll_offset
        return self.layout_now.cell_at(event.y + y, event.x + x)


def _everywhere(state: ViewState) -> tuple[object, ...]:
    """What every cell's drawing depends on."""
    return (state.lens, state.side, state.tolerance, state.filter, state.area, state.find)


def _revealed(start: int, stop: int, offset: int, size: int, total: int) -> int:
    """The scroll offset at which start..stop can be seen: unchanged if it can, else centred."""
    if offset <= start and stop <= offset + size:
        return offset
    return max(0, min((start + stop - size) // 2, total - size))


def _replace(line: list[Segment], character: int, new: Segment) -> list[Segment]:
    """The line with `new` drawn over what is at `character`."""
    cuts = [character, character + new.cell_length, sum(part.cell_length for part in line)]
    before, _, after = Segment.divide(line, cuts)
    return [*before, new, *after]
