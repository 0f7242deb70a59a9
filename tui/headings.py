"""Token headings above the grid: text where cells are wide enough, positions where they are not."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style

from tui.styles import CURSOR, HEADING, HEADING_ODD, HIT, MUTED
from workbench.view.geometry import Geometry
from workbench.view.model import ViewModel
from workbench.view.rows import heading_cell

TICK_EVERY = 16


def heading_line(model: ViewModel, layout: Geometry, first: int, count: int) -> list[Segment]:
    """Headings of `count` columns from column `first` on."""
    last = min(first + count, layout.num_columns)
    if layout.step or layout.half_blocks:
        return _ticks(model, layout, first, last)
    line = []
    for column in range(first, last):
        text = heading_cell(model.text(column), layout.cell_width)
        line.append(Segment(text, _heading_style(model, column)))
    return line


def _heading_style(model: ViewModel, row: int) -> Style:
    if row == model.state.row:
        return CURSOR
    if model.is_hit(row):
        return HIT
    return HEADING_ODD if model.request_index(row) % 2 else HEADING


def _ticks(model: ViewModel, layout: Geometry, first: int, last: int) -> list[Segment]:
    """A position every so many columns, and the cursor's own, which hides its neighbours."""
    width = max(0, last - first)
    cursor = layout.column_of(model.state.row) - first
    here = f"▼{model.state.row}"
    characters = [" "] * width
    for column in range(-(-first // TICK_EVERY) * TICK_EVERY, last, TICK_EVERY):
        label = f"╵{column * layout.rows_per_column}"
        start, stop = column - first, column - first + len(label)
        if stop <= width and (stop < cursor or start > cursor + len(here)):
            characters[start:stop] = label
    text = "".join(characters)
    if not 0 <= cursor < width:
        return [Segment(text, MUTED)]
    after = cursor + len(here)
    return [Segment(text[:cursor], MUTED), Segment(here, CURSOR), Segment(text[after:], MUTED)]
