"""The last line: the few keys to start with, from the table of actions."""

from __future__ import annotations

from typing import Final

from rich.segment import Segment

from tui.lines import Lines
from tui.styles import BAR, BAR_MUTED, KEY
from workbench.view.actions import key_name
from workbench.view.keymap import Keymap

_SHOWN: Final = (
    (("cursor.left", "cursor.down", "cursor.up", "cursor.right"), " ", "move"),
    (("jump.next", "jump.previous"), " ", "next / previous"),
    (("jump.first",), " ", "first, next class"),
    (("class.choose",), " ", "class"),
    (("site.previous", "site.next"), " ", "step"),
    (("drill.show",), " ", "drill"),
    (("lens.router", "lens.local"), "–", "lens"),
    (("zoom.in", "zoom.out", "zoom.fit"), " ", "zoom"),
    (("swaps.show",), " ", "swaps"),
    (("inspector.toggle",), " ", "inspector"),
    (("quit",), " ", "quit"),
)
"""Actions, what joins their keys, and the words for them."""


class Footer(Lines):
    """Keys, as many as fit; help is always shown, on the right."""

    fill = BAR

    def __init__(self, keymap: Keymap) -> None:
        super().__init__("footer")
        self.keymap = keymap

    def lines(self, width: int, _height: int) -> list[list[Segment]]:
        help_key = key_name(self.keymap["help.show"][0])
        tail = [Segment(f"{help_key} ", KEY), Segment("help ", BAR_MUTED)]
        room = width - sum(part.cell_length for part in tail)
        line = [Segment(" ", BAR)]
        used = 1
        for ids, joiner, words in _SHOWN:
            keys = joiner.join(key_name(self.keymap[action_id][0]) for action_id in ids)
            size = len(keys) + len(words) + 4
            if used + size > room:
                continue
            line += [Segment(f"{keys} ", KEY), Segment(f"{words}   ", BAR_MUTED)]
            used += size
        return [[*line, Segment(" " * (room - used), BAR), *tail]]
