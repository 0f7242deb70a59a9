"""The application: one screen at a time, first the opening, then the workbench.

Light on purpose: the first frame is drawn before numpy, polars or the view are imported, so nothing
here may import them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import App
from textual.filter import LineFilter
from textual.screen import Screen

from tui.guarded import Guarded


class Host(App[None], Guarded):
    """Shows a screen, and whatever screen that one hands over to.

    Args:
        first: What to show.
    """

    TITLE = "kldive"
    CSS_PATH = "kldive.tcss"
    COMMANDS: ClassVar = set()

    def __init__(self, first: Screen[None]) -> None:
        super().__init__()
        self._first = first
        self.light = False

    def get_default_screen(self) -> Screen[None]:
        return self._first

    def action_command_palette(self) -> None:
        """Only where there are commands: not before the comparison is open."""
        if self.screen.COMMANDS:
            super().action_command_palette()

    def toggle_light(self) -> None:
        """Switches between dark and light ground."""
        self.light = not self.light
        self.theme = "textual-light" if self.light else "textual-dark"
        self.refresh(layout=True)
        self.screen.refresh(layout=True)

    def get_line_filters(self) -> Sequence[LineFilter]:
        if not self.light or self.no_color:
            return super().get_line_filters()
        from tui.light import LightGround

        return [LightGround(), *super().get_line_filters()]
