"""The application: one screen at a time, first the opening, then the workbench.

Light on purpose: the first frame is drawn before numpy, polars or the view are imported, so nothing
here may import them.
"""

from __future__ import annotations

from typing import ClassVar

from textual.app import App
from textual.screen import Screen


class Host(App[None]):
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

    def get_default_screen(self) -> Screen[None]:
        return self._first

    def action_command_palette(self) -> None:
        """Only where there are commands: not before the comparison is open."""
        if self.screen.COMMANDS:
            super().action_command_palette()
