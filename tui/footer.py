"""The last line: the few keys to start with, from the table of actions."""

from __future__ import annotations

from rich.segment import Segment

from tui.lines import Lines
from tui.styles import BAR, BAR_MUTED, KEY
from workbench.view.actions import ACTION_BY_ID, key_name

_SHOWN = (
    ("cursor.left", "h j k l", "move"),
    ("jump.next", "n N", "next / previous"),
    ("jump.first", "f", "first, next class"),
    ("class.choose", "c", "class"),
    ("lens.router", "1–5", "lens"),
    ("zoom.in", "z Z 0", "zoom"),
    ("inspector.toggle", "i", "inspector"),
    ("quit", "q", "quit"),
)


class Footer(Lines):
    """Keys, as many as fit; help is always shown, on the right."""

    fill = BAR

    def lines(self, width: int, _height: int) -> list[list[Segment]]:
        help_key = key_name(ACTION_BY_ID["help.show"].keys[0])
        tail = [Segment(f"{help_key} ", KEY), Segment("help ", BAR_MUTED)]
        room = width - sum(part.cell_length for part in tail)
        line = [Segment(" ", BAR)]
        used = 1
        for _, keys, words in _SHOWN:
            size = len(keys) + len(words) + 4
            if used + size > room:
                continue
            line += [Segment(f"{keys} ", KEY), Segment(f"{words}   ", BAR_MUTED)]
            used += size
        return [[*line, Segment(" " * (room - used), BAR), *tail]]
