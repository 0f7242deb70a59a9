"""Widgets drawn line by line from segments, without layout and without markup.

Text from a model goes into segments as it is and is never parsed, so nothing in it can be taken for
markup. A subclass says what its lines are; `rebuild` draws those that changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import wrap

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from tui.guarded import Guarded
from tui.styles import BASE


class Lines(Widget, Guarded, can_focus=False):
    """A widget whose content is a list of lines of segments."""

    fill: Style = BASE
    """Style of what the lines leave empty."""

    def __init__(self, name: str) -> None:
        super().__init__(id=name)
        self._lines: list[list[Segment]] = []

    def lines(self, width: int, height: int) -> Iterable[list[Segment]]:
        """The content for a size in characters; longer lines are cut, missing ones are blank."""
        raise NotImplementedError

    def rebuild(self) -> None:
        """Makes the lines anew and draws those that changed."""
        width, height = self.size
        if not (width and height):
            return
        try:
            made = list(self.lines(width, height))[:height]
        except Exception as error:  # noqa: BLE001  (told; the session goes on)
            words = wrap(self.undrawn(error), width)[:height]
            made = [[Segment(text, self.fill)] for text in words]
        made += [[]] * (height - len(made))
        before, self._lines = self._lines, made
        for y, line in enumerate(made):
            if y >= len(before) or before[y] != line:
                self.refresh(Region(0, y, width, 1))

    def render_line(self, y: int) -> Strip:
        # A strip costs more than comparing a line's segments: they are made for drawn lines only.
        line = self._lines[y] if y < len(self._lines) else []
        return Strip(line).adjust_cell_length(self.size.width, self.fill)

    def on_resize(self) -> None:
        self._lines = []
        self.rebuild()


def joined(parts: Iterable[list[Segment]], gap: Segment) -> list[Segment]:
    """Lists of segments in one line, `gap` between them."""
    line: list[Segment] = []
    for part in parts:
        if part:
            line += [gap, *part] if line else part
    return line
