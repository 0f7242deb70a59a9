"""A chart as it is shown, saved and read: one picture, and the frame behind it.

The picture is an SVG that vl-convert draws in this process: JupyterLab renders no Vega-Lite of this
major version by itself, and the usual way round that loads scripts from the network. An image also
survives in a saved notebook, where scripts are not trusted. It carries colours for light and dark
and stands on a card of its own, so that it reads on any page.
"""

from __future__ import annotations

import html
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote

import altair as alt
import polars as pl
import vl_convert

from workbench.errors import UsageError
from workbench.view import palette

Theme = Literal["light", "dark"]

Picture = alt.Chart | alt.LayerChart | alt.VConcatChart | alt.FacetChart

CARD: Final = "#fdfdfe"
TEXT: Final = "#1f2430"
MUTED: Final = "#5b6472"
RULE: Final = "#dcdfe5"
DARK: Final = {
    CARD: palette.PANEL,
    TEXT: palette.TEXT,
    MUTED: palette.MUTED,
    RULE: palette.RULE,
}
"""What each colour of the light theme is in the dark one. They occur nowhere else in a chart."""

FONT: Final = "Helvetica, Arial, Liberation Sans, DejaVu Sans, sans-serif"
LINE_CHARS: Final = 60
"""A longer title takes two lines."""
_VEGA_LITE: Final = ".".join(alt.VEGALITE_VERSION.split(".")[:2])
_CLASS: Final = "kldive-chart"
_FORMATS: Final = (".png", ".svg")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart of a comparison; shows itself in a notebook, without network or scripts.

    Attributes:
        title: What is drawn, with direction and sampling side.
        notes: Lines below the title: coverage first.
        frame: The numbers that are drawn.
        altair: The chart as Altair made it, to build upon.
    """

    title: str
    notes: tuple[str, ...]
    frame: pl.DataFrame
    altair: Picture

    def spec(self, theme: Theme = "light") -> dict[str, Any]:
        """The Vega-Lite specification in one theme."""
        text: str = self.altair.properties(
            title=alt.TitleParams(_lines(self.title), subtitle=list(self.notes))
        ).to_json(validate=False)
        body: dict[str, Any] = json.loads(text)
        body["config"] = _config()
        return body if theme == "light" else _darkened(body)

    def svg(self) -> str:
        """The picture, in the colours of the page it stands on: light, or dark."""
        text: str = vl_convert.vegalite_to_svg(self.spec(), vl_version=_VEGA_LITE)
        end = text.index(">", text.index("<svg")) + 1
        opening = text[:end].replace('class="marks"', f'class="{_CLASS}"')
        return _renumbered(f"{opening}{_dark_rules()}{text[end:]}")

    def save(self, path: str | Path, *, theme: Theme = "light", scale: float = 2.0) -> Path:
        """Writes a `.png`, in one theme, or an `.svg`, which follows the reader's.

        Args:
            path: Where to.
            theme: Of the PNG.
            scale: Pixels of the PNG per unit.

        Raises:
            UsageError: Another ending.
        """
        target = Path(path)
        if target.suffix == ".svg":
            target.write_text(self.svg(), "utf-8")
        elif target.suffix == ".png":
            spec = self.spec(theme)
            target.write_bytes(vl_convert.vegalite_to_png(spec, vl_version=_VEGA_LITE, scale=scale))
        else:
            raise UsageError(
                "cannot save a chart in this format",
                where=target,
                expected=" or ".join(_FORMATS),
                got=target.suffix or "no ending",
            )
        return target

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        del include, exclude
        picture = quote(self.svg(), safe=" =:/,;()")
        alternative = html.escape(f"{self.title}. {' '.join(self.notes)}", quote=True)
        image = f'<img class="{_CLASS}" alt="{alternative}" src="data:image/svg+xml,{picture}">'
        return {"text/html": f"{_PAGE_RULES}{image}", "text/plain": repr(self)}

    def __repr__(self) -> str:
        return "\n".join([self.title, *self.notes, str(self.frame)])


# An image takes the colour scheme of the element that shows it; JupyterLab names its own theme.
_PAGE_RULES: Final = (
    f"<style>img.{_CLASS}{{max-width:100%}}"
    f'[data-jp-theme-light="true"] img.{_CLASS}{{color-scheme:light}}'
    f'[data-jp-theme-light="false"] img.{_CLASS}{{color-scheme:dark}}</style>'
)


def _lines(title: str) -> list[str]:
    """A title in one line, or in two when it is long: what is drawn, and over what.

    >>> _lines("Probability of the token, A against B, over tokens sampled from A")
    ['Probability of the token, A against B,', 'over tokens sampled from A']
    """
    drawn, _, over = title.rpartition(", over ")
    return [f"{drawn},", f"over {over}"] if drawn and len(title) > LINE_CHARS else [title]


def _renumbered(svg: str) -> str:
    """Ids counted from 0 in each picture, not over all of a process: the same chart, same bytes."""
    ids = list(dict.fromkeys(re.findall(r'id="((?:clip|gradient_)\d+)"', svg)))
    names = {name: f"{name.rstrip('0123456789')}{place}" for place, name in enumerate(ids)}
    return re.sub(
        r'(id="|url\(#)((?:clip|gradient_)\d+)',
        lambda found: found[1] + names.get(found[2], found[2]),
        svg,
    )


def _dark_rules() -> str:
    rules = "".join(
        f'.{_CLASS} [{place}="{light}"]{{{place}:{dark}}}'
        for light, dark in DARK.items()
        for place in ("fill", "stroke")
    )
    return f"<style>@media (prefers-color-scheme:dark){{{rules}}}</style>"


def _darkened(spec: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(spec)
    for light, dark in DARK.items():
        text = text.replace(light, dark)
    dark_spec: dict[str, Any] = json.loads(text)
    return dark_spec


def _config() -> dict[str, Any]:
    return {
        # A description of every mark would treble the picture; the alternative text speaks for it.
        "aria": False,
        "background": CARD,
        # Text is laid out with the widths of the first font; where another one draws it, it may
        # need a sixth more.
        "padding": {"left": 30, "top": 14, "right": 44, "bottom": 14},
        "font": FONT,
        "view": {"stroke": RULE, "fill": None},
        "title": {
            "anchor": "start",
            "frame": "group",
            "color": TEXT,
            "fontSize": 14,
            "fontWeight": 600,
            "subtitleColor": MUTED,
            "subtitleFontSize": 11.5,
            "subtitlePadding": 5,
            "offset": 12,
        },
        "axis": {
            "labelColor": MUTED,
            "titleColor": TEXT,
            "domainColor": MUTED,
            "tickColor": MUTED,
            "gridColor": RULE,
            "labelFontSize": 11,
            "titleFontSize": 11.5,
            "titleFontWeight": 400,
            "titlePadding": 8,
        },
        "legend": {
            "labelColor": TEXT,
            "titleColor": MUTED,
            "labelFontSize": 11.5,
            "titleFontSize": 11,
            "titleFontWeight": 400,
            "gradientStrokeColor": RULE,
        },
        "header": {"labelColor": TEXT, "titleColor": TEXT, "labelFontSize": 11.5},
        "text": {"color": TEXT, "fontSize": 11},
        "rule": {"color": MUTED},
    }
