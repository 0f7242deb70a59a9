"""Colours and glyphs of severity, and the contrast arithmetic that keeps them readable.

Owns the look of the seven levels in every face. The ramp is cividis: rising in lightness and
distinct under the common colour deficiencies. Each level also has its own glyph, so colour is never
the only signal.

Grids hold **codes**, ordered so that the maximum of several cells is what their pooled cell must
show: 0 is hidden by a filter, 1 is absent (by design there is nothing to compare; drawn apart from
equal), 2 to 8 are levels 0 to 6. Stdlib only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NUM_CODES: Final = 9
HIDDEN: Final = 0
ABSENT: Final = 1
EQUAL: Final = 2

BACKGROUND: Final = "#10131a"
PANEL: Final = "#171b24"
RAISED: Final = "#222835"
RULE: Final = "#39414f"
TEXT: Final = "#e6e8ec"
MUTED: Final = "#98a1b0"
ACCENT: Final = "#ffffff"
GOOD: Final = "#7fd1ae"

EQUAL_TEXT: Final = "#818a99"
ABSENT_FILL: Final = "#262a33"
HIDDEN_FILL: Final = "#0a0c10"

SIDE_A_FILL: Final = "#0072b2"
SIDE_B_FILL: Final = "#e69f00"
SIDE_A_TEXT: Final = "#56b4e9"
"""Sky blue of the same Okabe-Ito family: the fill's blue is too dark to read as text."""
SIDE_B_TEXT: Final = "#e69f00"

RAMP: Final = ("#00224e", "#2a3f6d", "#575d6d", "#7d7c78", "#a59c74", "#d2c060", "#fee838")
"""Cividis stops of levels 0 to 6."""
LIGHT_RAMP: Final = ("#efe6bd", "#c9bb72", "#706f6c", "#4b5468", "#2a3f6d", "#00153a")
"""Levels 1 to 6 on light ground: the ramp turned round, since there the dark stands out; from level
3 on dark enough to be read as text."""
LEVEL_GLYPHS: Final = ("·", "~", "-", "=", "#", "!", "×")
ABSENT_GLYPH: Final = "/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How a code is drawn.

    Attributes:
        fill: Colour of the cell.
        text: Colour of anything written on it; contrast with `fill` is at least 4.5.
        glyph: One-column character that stands for the code without colour.
    """

    fill: str
    text: str
    glyph: str


def relative_luminance(colour: str) -> float:
    """WCAG 2 relative luminance of `#rrggbb`, 0 (black) to 1 (white)."""

    def linear(channel: int) -> float:
        value = channel / 255
        return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4

    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue)


def contrast(colour_a: str, colour_b: str) -> float:
    """WCAG 2 contrast ratio of two colours, 1 (equal) to 21.

    >>> round(contrast("#000000", "#ffffff"))
    21
    """
    dark, light = sorted((relative_luminance(colour_a), relative_luminance(colour_b)))
    return (light + 0.05) / (dark + 0.05)


def text_on(fill: str) -> str:
    """Black or white, whichever reads better on `fill`."""
    return max("#000000", "#ffffff", key=lambda colour: contrast(colour, fill))


def code_of_level(level: int) -> int:
    """The code of a level 0 to 6."""
    return level + EQUAL


def _looks() -> tuple[Look, ...]:
    hidden = Look(fill=HIDDEN_FILL, text=MUTED, glyph=" ")
    # What is equal should not draw the eye: it takes the background.
    equal = Look(fill=BACKGROUND, text=EQUAL_TEXT, glyph=LEVEL_GLYPHS[0])
    absent = Look(fill=ABSENT_FILL, text=MUTED, glyph=ABSENT_GLYPH)
    rest = (
        Look(fill=fill, text=text_on(fill), glyph=glyph)
        for fill, glyph in zip(RAMP[1:], LEVEL_GLYPHS[1:], strict=True)
    )
    return (hidden, absent, equal, *rest)


LOOKS: Final = _looks()
"""The look of each code."""
_ON_LIGHT: Final[dict[str, str]] = {
    BACKGROUND: "#fbfbf9",
    PANEL: "#f1f2f4",
    RAISED: "#e4e7ec",
    RULE: "#b9c0cb",
    TEXT: "#1b1f27",
    MUTED: "#545d6a",
    ACCENT: "#000000",
    GOOD: "#0f6b47",
    SIDE_A_TEXT: "#00598c",
    SIDE_B_TEXT: "#8a5200",
    EQUAL_TEXT: "#5b6472",
    ABSENT_FILL: "#d6dae0",
    HIDDEN_FILL: "#e9eaec",
    "#000000": "#ffffff",
    **dict(zip(RAMP[1:], LIGHT_RAMP, strict=True)),
}
_FILLS: Final = frozenset((*RAMP, ABSENT_FILL, HIDDEN_FILL))
_KEPT: Final = frozenset((SIDE_A_FILL, SIDE_B_FILL))
"""Chips name the sides; both read on either ground, with the text they have."""


def on_light(text: str, fill: str) -> tuple[str, str]:
    """Text and fill for light ground in place of these, which are for dark ground.

    >>> on_light("#ffffff", BACKGROUND)
    ('#000000', '#fbfbf9')
    """
    if fill in _KEPT:
        return text, fill
    new_fill = _ON_LIGHT.get(fill, fill)
    if fill in _FILLS and text not in _FILLS:
        # The cursor's half of a character keeps its own colour, everything written is chosen anew.
        return text_on(new_fill), new_fill
    return _ON_LIGHT.get(text, text), new_fill


GLYPHS: Final = tuple(look.glyph for look in LOOKS)
