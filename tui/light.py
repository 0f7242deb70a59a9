"""Light ground: turns what was drawn for a dark terminal into what reads on a light one."""

from __future__ import annotations

from functools import lru_cache

from rich.color import Color as RichColor
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter

from workbench.view import palette


class LightGround(LineFilter):
    """Exchanges the colours of workbench.view.palette, the last thing before the terminal.

    Every style is worked out once, so that drawing costs a look-up.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002 - Textual calls it so
        return [
            Segment(text, None if style is None else light_style(style), control)
            for text, style, control in segments
        ]


@lru_cache(4096)
def light_style(style: Style) -> Style:
    """The style for light ground."""
    text, fill = palette.on_light(
        _hex(style.color, palette.TEXT), _hex(style.bgcolor, palette.BACKGROUND)
    )
    return style + Style(color=text, bgcolor=fill)


def _hex(color: RichColor | None, default: str) -> str:
    if color is None or color.is_default:
        return default
    return color.get_truecolor().hex
