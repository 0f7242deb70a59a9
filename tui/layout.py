"""Which layout suits a terminal's size. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

SMALL: Final = "kldive needs 60 x 18 or more; `kldive show DIR` prints the report"


class Layout(NamedTuple):
    """What the size allows; with all False the inspector stands on the right.

    Attributes:
        drawer: The inspector lies below the grid.
        compact: One line of overview, a narrow rail, layers pooled to fit.
        small: Too small for anything but a line that says so.
        drawer_height: Lines of the inspector when it lies below.
    """

    drawer: bool
    compact: bool
    small: bool
    drawer_height: int


_FRAME_LINES: Final = 8
"""Status 3, overview 2, strip 2, footer 1."""
_MAX_DRAWER: Final = 15


def layout_for(width: int, height: int, num_layers: int) -> Layout:
    """The layout for a terminal of this many columns and lines, and a model of this many layers.

    >>> layout_for(200, 60, 4)[:3], layout_for(80, 24, 4)[:3]
    ((False, False, False), (True, True, False))
    """
    compact = width <= 80 or height < 30
    # A drawer takes what few layers leave free, and never more than it can fill.
    spare = height - _FRAME_LINES + compact - (num_layers + 2)
    return Layout(
        drawer=compact or width < 120,
        compact=compact,
        small=width < 60 or height < 18,
        drawer_height=min(max(spare, 9 if height < 30 else 13), _MAX_DRAWER),
    )
