"""Screens of one page of text that scrolls: the keys that move the cursor elsewhere scroll it.

Imports nothing heavy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll

from tui.guarded import FAILURES_KEY, Guarded

if TYPE_CHECKING:
    from textual.screen import Screen

# With the ids of the table of actions, so that a person's own keys hold here too.
SCROLL: Final[list[BindingType]] = [
    Binding("j,down", "scroll(1)", "Down", id="cursor.down", show=False),
    Binding("k,up", "scroll(-1)", "Up", id="cursor.up", show=False),
    Binding("L,pagedown,space", "leaf(1)", "Page down", id="page.forward", show=False),
    Binding("H,pageup", "leaf(-1)", "Page up", id="page.back", show=False),
    Binding("home", "ends(False)", "First line", id="token.first", show=False),
    Binding("end", "ends(True)", "Last line", id="token.last", show=False),
    Binding("g", "ends(False)", "First line", id="layer.first", show=False),
    Binding("G", "ends(True)", "Last line", id="layer.last", show=False),
]
CLOSE: Final[list[BindingType]] = [
    Binding("escape", "dismiss", "Close", id="back"),
    Binding("q", "dismiss", "Close", id="quit"),
    FAILURES_KEY,
]
"""Keys that leave a page, and the one that shows what failed."""


class Scrolling(Guarded):
    """Mixin: what the keys of `SCROLL` do."""

    @property
    def _page(self) -> VerticalScroll:
        return cast("Screen[Any]", self).query_one(VerticalScroll)

    def action_scroll(self, lines: int) -> None:
        self._page.scroll_relative(y=lines, animate=False)

    def action_leaf(self, pages: int) -> None:
        # A line of the page before stays in sight.
        self._page.scroll_relative(y=pages * max(1, self._page.size.height - 2), animate=False)

    def action_ends(self, to_last: bool) -> None:
        self._page.scroll_to(y=self._page.max_scroll_y if to_last else 0, animate=False)
