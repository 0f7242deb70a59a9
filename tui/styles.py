"""Terminal styles made once: per code, per pair of codes, and the few others. No widgets."""

from __future__ import annotations

from typing import Final

from rich.style import Style

from workbench.view import palette
from workbench.view.palette import LOOKS

BASE: Final = Style(color=palette.TEXT, bgcolor=palette.BACKGROUND)
MUTED: Final = Style(color=palette.MUTED, bgcolor=palette.BACKGROUND)
RULE: Final = Style(color=palette.RULE, bgcolor=palette.BACKGROUND)
BOLD: Final = Style(color=palette.ACCENT, bgcolor=palette.BACKGROUND, bold=True)
GOOD: Final = Style(color=palette.GOOD, bgcolor=palette.BACKGROUND, bold=True)
SIDE_A: Final = Style(color=palette.SIDE_A_TEXT, bgcolor=palette.BACKGROUND)
SIDE_B: Final = Style(color=palette.SIDE_B_TEXT, bgcolor=palette.BACKGROUND)

BAR: Final = Style(color=palette.TEXT, bgcolor=palette.RAISED)
BAR_MUTED: Final = Style(color=palette.MUTED, bgcolor=palette.RAISED)
BAR_BOLD: Final = Style(color=palette.ACCENT, bgcolor=palette.RAISED, bold=True)
CHIP_A: Final = Style(color="#ffffff", bgcolor=palette.SIDE_A_FILL, bold=True)
CHIP_B: Final = Style(color="#000000", bgcolor=palette.SIDE_B_FILL, bold=True)
CHIP: Final = Style(color=palette.ACCENT, bgcolor=palette.RULE)
CHIP_WARNING: Final = Style(color="#000000", bgcolor=palette.RAMP[6], bold=True)
KEY: Final = Style(color=palette.RAMP[5], bgcolor=palette.RAISED, bold=True)

SELECTED: Final = Style(underline=True)
HIT: Final = Style(color="#000000", bgcolor=palette.SIDE_A_TEXT)
CURSOR: Final = Style(color="#000000", bgcolor=palette.ACCENT, bold=True)
CURSOR_MARK: Final = Style(color=palette.ACCENT, bgcolor=palette.BACKGROUND, bold=True)
HERE: Final = Style(color=palette.RAMP[6], bgcolor=palette.BACKGROUND, bold=True)
HEADING: Final = Style(color=palette.TEXT, bgcolor=palette.PANEL)
HEADING_ODD: Final = Style(color=palette.TEXT, bgcolor=palette.RAISED)

CODE: Final = tuple(Style(color=look.text, bgcolor=look.fill) for look in LOOKS)
"""A cell's own colours, for a glyph on it."""

CODE_TEXT: Final = tuple(
    Style(
        # The darker levels cannot be read as text on the background; their glyph carries them.
        color=look.fill
        if palette.contrast(look.fill, palette.BACKGROUND) >= 4.5
        else palette.MUTED,
        bgcolor=palette.BACKGROUND,
    )
    for look in LOOKS
)
"""A level's colour as text on the background."""

HALVES: Final = tuple(
    tuple(Style(color=top.fill, bgcolor=bottom.fill) for bottom in LOOKS) for top in LOOKS
)
"""`HALVES[top][bottom]` for an upper half block."""

CURSOR_OVER: Final = tuple(Style(color=palette.ACCENT, bgcolor=look.fill) for look in LOOKS)
"""The cursor as one half of a character, over or under a cell of each level."""
