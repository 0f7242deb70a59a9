"""Charts of what happens by layer: errors of sites and modules, flips by margin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import altair as alt
import polars as pl

from workbench.view import palette
from workbench.view.numbers import compact_count
from workbench.view.source import Source
from workbench.widgets import layer_frames, marks
from workbench.widgets.chart import MUTED, TEXT, Chart, Picture
from workbench.widgets.marks import WIDTH

Statistic = Literal["median", "p95", "max"]
STATISTIC_WORDS: Final = {
    "median": "median over rows",
    "p95": "95th percentile over rows",
    "max": "largest of all rows",
}
ERROR_FLOOR: Final = 1e-9
"""Relative error below which it is drawn as zero: under the rounding of float32."""

_FEW_LAYERS: Final = 24

_NUMBER_COLOURS: Final = alt.Scale(
    domain=list(layer_frames.NUMBERS), range=[marks.VERMILLION, marks.GREEN, MUTED]
)
_SITE_COLOURS: Final = alt.Scale(
    range=[marks.GREEN, marks.VERMILLION, marks.PURPLE, "#56b4e9", MUTED]
)
_FLIPS: Final = ("explained", "unexplained", "unjudged")
_FLIP_COLOURS: Final = alt.Scale(
    domain=list(_FLIPS), range=[palette.RAMP[2], palette.RAMP[6], palette.RAMP[4]]
)


def layer_profile(
    source: Source, sites: Sequence[str] = ("mlp_in", "output"), *, statistic: Statistic = "p95"
) -> Chart:
    """Total error by layer at some sites, with the rounding budget as ticks."""
    found = layer_frames.layer_profile(source, sites)
    drawn_values = pl.concat([found.frame[statistic], found.frame["budget"]])
    error = marks.logarithmic(drawn_values, ERROR_FLOOR)
    base = alt.Chart(marks.drawable(found.frame, (statistic, "budget"), ERROR_FLOOR))
    x = _layers(source.num_layers)
    y = alt.Y(f"{statistic}:Q", title="relative error", scale=error.scale, axis=error.axis)
    colour = alt.Color("site:N", title=None, sort=list(sites), scale=_SITE_COLOURS)
    dash = alt.StrokeDash("site:N", sort=list(sites), legend=None)
    drawn = base.mark_line(point=_points(source.num_layers)).encode(
        x=x, y=y, color=colour, strokeDash=dash
    )
    budget = _budget(base, x, source.num_layers, detail="site:N")
    picture = alt.layer(drawn, budget).properties(width=WIDTH, height=230)
    title = "Total error of A against B by layer"
    return marks.described(
        title,
        found,
        picture,
        f"|A−B| / |B|, {STATISTIC_WORDS[statistic]}; {_budget_words(source.num_layers)}",
    )


def local_errors(
    source: Source, modules: Sequence[str] = (), *, statistic: Statistic = "p95"
) -> Chart:
    """Local, inherited and total error by layer, one panel per module, budget as ticks."""
    found = layer_frames.local_errors(source, modules)
    drawn_values = pl.concat([found.frame[statistic], found.frame["budget"]])
    error = marks.logarithmic(drawn_values, ERROR_FLOOR)
    # The head scores fewer rows than the layers compute: each panel has its own n.
    most = pl.col("rows").max().over("module")
    panels = found.frame.with_columns(pl.format("{} · n {}", "module", most).alias("panel"))
    # What comes last is drawn on top: the local error.
    base = alt.Chart(marks.drawable(panels.reverse(), (statistic, "budget"), ERROR_FLOOR))
    x = _layers(source.num_layers)
    y = alt.Y(f"{statistic}:Q", title="relative error", scale=error.scale, axis=error.axis)
    drawn = base.mark_line(point=_points(source.num_layers), strokeWidth=1.3).encode(
        x=x,
        y=y,
        color=alt.Color("number:N", title=None, scale=_NUMBER_COLOURS),
    )
    budget = _budget(base, x, source.num_layers, detail="module:N")
    order = panels["panel"].unique(maintain_order=True).to_list()
    picture = (
        alt.layer(drawn, budget)
        .properties(width=150, height=110)
        .facet(facet=alt.Facet("panel:N", title=None, sort=order), columns=4)
    )
    title = "Local, inherited and total error of A against B, by layer and module"
    budget_words = f"{_budget_words(source.num_layers)} of the local error"
    note = f"{STATISTIC_WORDS[statistic]}, relative; {budget_words}"
    return marks.described(title, found, picture, note)


def _layers(num_layers: int) -> alt.X:
    """Layers from left to right, with half a layer of room at the ends."""
    ends = alt.Scale(domain=[-0.5, num_layers - 0.5], nice=False)
    step = -(-num_layers // 16)
    axis = alt.Axis(values=list(range(0, num_layers, step)), format="d", grid=False)
    return alt.X("layer:Q", title="layer", scale=ends, axis=axis)


def _points(num_layers: int) -> alt.OverlayMarkDef | bool:
    """A dot at each layer where they can be told apart."""
    return alt.OverlayMarkDef(size=30) if num_layers <= _FEW_LAYERS else False


def _budget_words(num_layers: int) -> str:
    return "bars: budget" if num_layers <= _FEW_LAYERS else "dashed: budget"


def _budget(base: alt.Chart, x: alt.X, num_layers: int, *, detail: str) -> alt.Chart:
    """The budget: a bar at each layer, or one dashed line where they are many."""
    known = base.transform_filter("isValid(datum.budget)")
    if num_layers <= _FEW_LAYERS:
        mark = known.mark_tick(orient="horizontal", thickness=1.5, size=16, color=TEXT)
    else:
        mark = known.mark_line(strokeWidth=1.2, strokeDash=[4, 2], color=TEXT)
    drawn: alt.Chart = mark.encode(x=x, y="budget:Q", detail=detail)
    return drawn


def flips_by_margin(source: Source) -> Chart:
    """Router flips by A's margin: where they are explained by the inputs, and where not."""
    found = layer_frames.flips_by_margin(source)
    frame = found.frame.with_columns(_margin_label().alias("margin"))
    order = frame["margin"].to_list()
    long = frame.unpivot(list(_FLIPS), index="margin", variable_name="flips", value_name="n")
    x = alt.X("margin:N", title=None, sort=order, axis=alt.Axis(labels=False, ticks=False))
    bars = (
        alt.Chart(long.with_columns(pl.col("n").cast(pl.Int64)))
        .mark_bar(stroke=MUTED, strokeWidth=0.7)
        .encode(
            x=x,
            y=alt.Y("n:Q", title="flips", axis=alt.Axis(format="d", tickMinStep=1)),
            color=alt.Color("flips:N", title=None, sort=list(_FLIPS), scale=_FLIP_COLOURS),
        )
        .properties(width=WIDTH, height=150)
    )
    counts = _flip_totals(found.frame)
    title = "Router flips by A's margin k/k+1"
    picture = alt.vconcat(bars, _flip_rate(frame, order))
    return marks.described(title, found, picture, counts)


def _flip_totals(frame: pl.DataFrame) -> str:
    totals = [f"{int(frame[kind].sum()):,} {kind}" for kind in _FLIPS]
    return f"another expert set on B: {', '.join(totals)}"


def _flip_rate(frame: pl.DataFrame, order: list[str]) -> Picture:
    label = ("n " + pl.col("cells").map_elements(compact_count, return_dtype=pl.String)).alias(
        "label"
    )
    base = alt.Chart(frame.with_columns(label))
    axis = alt.Axis(labelAngle=0, labelFontSize=10)
    x = alt.X("margin:N", title="margin in units of the router's scores", sort=order, axis=axis)
    scale = alt.Scale(domain=[0, 1])
    y = alt.Y("flip_share:Q", title="share that flips", scale=scale)
    bars = base.mark_bar(color=MUTED).encode(x=x, y=y.axis(alt.Axis(format="%", tickCount=3)))
    text = base.mark_text(dy=-5, baseline="bottom", fontSize=10)
    return alt.layer(bars, text.encode(x=x, y="flip_share:Q", text="label:N")).properties(
        width=WIDTH, height=100
    )


def _margin_label() -> pl.Expr:
    """`tie`, or the lower end of the bin and that it reaches to the next."""
    powers = pl.col("margin_from").map_elements(_power, return_dtype=pl.String)
    return pl.when(pl.col("margin_to") == 0).then(pl.lit("tie")).otherwise("≥ " + powers)


def _power(value: float) -> str:
    return f"{value:.1e}".replace(".0e", "e").replace("e-0", "e-").replace("e+0", "e")
