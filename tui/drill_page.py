"""A page of the drill: fixed column heads, lines made when they are drawn, perhaps a cursor.

Nothing is built per line beforehand, so a page of 32,768 lines opens as fast as one of ten.
"""

from __future__ import annotations

from textwrap import wrap
from typing import ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tui.guarded import Guarded
from tui.styles import BASE, BOLD
from workbench.view import palette
from workbench.view.walk import Stop

Line = list[Segment]
MOVE: Final = ("cursor.down", "cursor.up")
_CURSOR: Style = Style(bgcolor=palette.RAISED, bold=True)


class Page:
    """What a page has to say, at one width.

    Attributes:
        keys: Actions of this page and words for them, for the footer.
        heads: Lines that stay at the top.
        cursor: The line that the cursor starts on; None for a page that only scrolls. Lines of a
            page with a cursor leave one column for its mark.
    """

    keys: ClassVar[tuple[tuple[tuple[str, ...], str], ...]] = ((MOVE, "scroll"),)
    cursor: int | None = None

    def __init__(self, width: int) -> None:
        self.width = width
        self.heads: list[Line] = []

    def __len__(self) -> int:
        raise NotImplementedError

    def line(self, place: int) -> Line:
        """The line at a place."""
        raise NotImplementedError

    def target(self, _place: int) -> Stop | None:
        """Where enter goes from a line; None where it goes nowhere."""
        return None

    def sort(self, _place: int) -> int:
        """Changes the order of the lines; gives where the line at a place stands now."""
        return _place


class TextPage(Page):
    """A page whose few lines are all there."""

    def __init__(self, width: int, lines: list[Line], heads: list[Line] | None = None) -> None:
        super().__init__(width)
        self._lines = lines
        self.heads = heads or []

    def __len__(self) -> int:
        return len(self._lines)

    def line(self, place: int) -> Line:
        return self._lines[place]


def paragraph(text: str, style: Style, width: int) -> list[Line]:
    """A sentence over as many lines as it needs, one column in from the left."""
    return [[Segment(f" {part}", style)] for part in wrap(text, max(10, width - 2))]


def text_of(line: Line) -> str:
    """A line as plain text."""
    return "".join(part.text for part in line).rstrip()


class PageView(ScrollView, Guarded, can_focus=False):
    """The part of a page that can be seen.

    Attributes:
        page: What is shown.
        cursor: The line that the cursor is on; None on a page without one.
        lines_made: Lines asked of the page so far, for the test that guards how much is drawn.
    """

    class Moved(Message):
        """Other lines can be seen, or the cursor stands elsewhere."""

    def __init__(self, page: Page) -> None:
        super().__init__(id="drill-page")
        self.page = page
        self.cursor = page.cursor
        self.lines_made = 0

    def show(self, page: Page, *, keep: bool = False) -> None:
        """Shows a page from its start, or from where its cursor is.

        Args:
            page: What to show.
            keep: Stay at the line that is at the top now.
        """
        top = self.scroll_offset.y if keep else 0
        self.page, self.cursor = page, page.cursor
        self._fit(top)

    def _fit(self, top: int) -> None:
        self.virtual_size = Size(self.size.width, len(self.page) + len(self.page.heads))
        self._put_top(top)
        self._reveal()
        self.refresh()
        self.post_message(self.Moved())

    @property
    def room(self) -> int:
        """Lines below the heads."""
        return max(1, self.size.height - len(self.page.heads))

    @property
    def seen(self) -> tuple[int, int]:
        """The first line that can be seen and the line after the last."""
        first = self.scroll_offset.y
        return first, min(first + self.room, len(self.page))

    def move(self, count: int) -> None:
        """Moves the cursor, or what can be seen on a page without one."""
        if self.cursor is None:
            self._put_top(self.scroll_offset.y + count)
            self.post_message(self.Moved())
            return
        self.go(self.cursor + count)

    def go(self, place: int) -> None:
        """Moves to a line, kept inside the page."""
        place = min(max(place, 0), max(len(self.page) - 1, 0))
        if self.cursor is None:
            self._put_top(place)
        else:
            before, self.cursor = self.cursor, place
            if self._reveal():
                self.refresh()
            else:
                for line in (before, place):
                    self._refresh_line(line)
        self.post_message(self.Moved())

    def _refresh_line(self, place: int) -> None:
        y = place - self.scroll_offset.y + len(self.page.heads)
        self.refresh(Region(0, y, self.size.width, 1))

    def _reveal(self) -> bool:
        """Brings the cursor into sight; True when something moved."""
        first, stop = self.seen
        if self.cursor is None or first <= self.cursor < stop:
            return False
        # One line further is one line of scrolling; a leap is centred.
        near = -1 <= self.cursor - first <= self.room
        top = self.cursor if self.cursor < first else self.cursor - self.room + 1
        self._put_top(top if near else self.cursor - self.room // 2)
        return True

    def _put_top(self, top: int) -> None:
        top = min(max(top, 0), max(len(self.page) - self.room, 0))
        self.scroll_to(0, top, animate=False, immediate=True, force=True)

    def on_resize(self) -> None:
        self._fit(self.scroll_offset.y)

    def render_line(self, y: int) -> Strip:
        width, heads = self.size.width, self.page.heads
        if y < len(heads):
            return Strip(heads[y]).adjust_cell_length(width, BASE)
        place = self.scroll_offset.y + y - len(heads)
        if place >= len(self.page):
            return Strip.blank(width, BASE)
        self.lines_made += 1
        line = self.page.line(place)
        if self.cursor is not None:
            line = [Segment("▶" if place == self.cursor else " ", BOLD), *line]
        strip = Strip(line).adjust_cell_length(width, BASE)
        return strip.apply_style(_CURSOR) if place == self.cursor else strip
