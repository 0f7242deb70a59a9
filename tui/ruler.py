"""The line above an unwrapped grid: token text or positions, and the cursor's column."""

from __future__ import annotations

from textual.strip import Strip
from textual.widget import Widget

from tui.grid import Grid
from tui.guarded import Guarded, guarded
from tui.headings import heading_line
from tui.styles import BASE
from workbench.view.model import ViewModel


class Ruler(Widget, Guarded, can_focus=False):
    """Headings of the grid's visible columns; a wrapped grid carries its own and this one hides."""

    def __init__(self, model: ViewModel, grid: Grid) -> None:
        super().__init__(id="ruler")
        self.model = model
        self.grid = grid
        self._followed: object = None

    @guarded
    def follow(self) -> None:
        """Shows or hides the line, and draws it if anything in it changed since the last time."""
        self.display = not self.grid.layout_now.wrapped
        state, grid = self.model.state, self.grid
        shown = (grid.layout_now, grid.scroll_offset.x, grid.size.width, state.row, state.find)
        if shown != self._followed:
            self._followed = shown
            self.refresh()

    def render_line(self, _y: int) -> Strip:
        width = self.size.width
        first, count, cut_off = self.grid.window(0)
        line = heading_line(self.model, self.grid.layout_now, first, count)
        return Strip(line).crop(cut_off).adjust_cell_length(width, BASE)
