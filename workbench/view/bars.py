"""Bars of block characters for shares of a whole. Stdlib only."""

from __future__ import annotations

from typing import Final

BEYOND: Final = 1.005
"""Shares up to this are printed as 100%, and drawn so."""
BAR_WIDTH: Final = 32
_EIGHTHS = " ▏▎▍▌▋▊▉"


def bar(share: float | None, width: int = BAR_WIDTH) -> str:
    """A bar of blocks, eighths of a column fine; beyond the whole it ends in an arrow.

    >>> bar(0.5, 4)
    '██'
    >>> bar(1.2, 4)
    '████▸'
    """
    if share is None or share <= 0:
        return ""
    eighths = round(min(share, 1.0) * width * 8)
    full, rest = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "") + ("▸" if share > BEYOND else "")


def waterfall(left: float | None, before: float | None, width: int) -> str:
    """What is left as full blocks, and what the last step took away as light ones.

    >>> waterfall(0.25, 0.75, 8), waterfall(0.5, 0.25, 8), waterfall(1.5, 1.0, 4)
    ('██░░░░', '████', '████▸')
    """
    if left is None:
        return ""
    full = round(min(max(left, 0.0), 1.0) * width)
    taken = 0 if before is None else max(0, round(min(before, 1.0) * width) - full)
    return "█" * full + "░" * taken + ("▸" if left > BEYOND else "")
