"""Pieces that several charts share: scales that say where zero is, colours, labels of counts."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import altair as alt
import polars as pl

from workbench.view import palette
from workbench.view.numbers import short
from workbench.widgets.chart import MUTED, RULE, TEXT, Chart, Picture
from workbench.widgets.frames import Aggregate

WIDTH: Final = 600
SQUARE: Final = 380
COLOUR_A: Final = palette.SIDE_A_FILL
COLOUR_B: Final = palette.SIDE_B_FILL
SIDE_COLOURS: Final = alt.Scale(domain=["A", "B"], range=[COLOUR_A, COLOUR_B])

GREEN, VERMILLION, PURPLE = "#009e73", "#d55e00", "#cc79a7"
"""Okabe and Ito's colours for what is neither a side nor a severity."""

ESTIMATORS: Final = {"kl_exact": "exact KL", "k3": "k3"}
ESTIMATOR_COLOURS: Final = alt.Scale(domain=list(ESTIMATORS.values()), range=[TEXT, GREEN])
ESTIMATOR_SHAPES: Final = alt.Scale(domain=list(ESTIMATORS.values()), range=["circle", "square"])


def described(
    title: str,
    found: Aggregate,
    picture: Picture,
    *notes: str,
) -> Chart:
    """The chart: over what in its title, coverage as the first note."""
    return Chart(
        title=f"{title}, over {found.over}",
        notes=(found.coverage, *(n for n in notes if n)),
        frame=found.frame,
        altair=picture,
    )


class Logarithmic(NamedTuple):
    """Scale and axis of a channel."""

    scale: alt.Scale
    axis: alt.Axis


def logarithmic(values: pl.Series, floor: float) -> Logarithmic:
    """A logarithmic axis whose lowest line stands for zero where there are zeros, and says so.

    Args:
        values: What is drawn; null is not.
        floor: Power of ten below which everything counts as zero.
    """
    known = values.drop_nulls().cast(pl.Float64)
    above = known.filter((known > floor) & known.is_finite())
    least, most = above.min(), above.max()
    bottom = round(math.log10(floor))
    low, high = bottom, bottom + 1
    if isinstance(least, float) and isinstance(most, float):
        high = math.ceil(math.log10(most) + 1e-9)
        low = max(bottom, min(math.floor(math.log10(least)), high - 2))
    small = known <= floor
    if small.any():
        # A decade to itself, so that zero never stands on the smallest number.
        low = max(bottom, low - 1)
    zero = "'0'" if (known.filter(small) == 0).all() else f"'0..1e{bottom}'"
    label = "format(datum.value, '.0e')"
    if small.any():
        label = f"datum.value < {10.0**low * 1.01} ? {zero} : {label}"
    step = -(-(high - low) // 8)
    ticks = [10.0**power for power in range(low, high + 1, step)]
    scale = alt.Scale(type="log", domain=[10.0**low, 10.0**high], clamp=True)
    return Logarithmic(scale, alt.Axis(values=ticks, labelExpr=label))


def drawable(frame: pl.DataFrame, columns: tuple[str, ...], floor: float) -> pl.DataFrame:
    """The frame with zero raised to `floor`, which a clamped scale draws on its lowest line.

    Null stays null and is not drawn.
    """
    return frame.with_columns(pl.col(name).clip(lower_bound=floor) for name in columns)


def estimators(frame: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """One line per key and estimator: `estimator`, `value` in nats; without the nulls."""
    long = frame.unpivot(list(ESTIMATORS), index=keys, variable_name="estimator")
    named = pl.col("estimator").replace_strict(ESTIMATORS, return_dtype=pl.String)
    return long.with_columns(named).drop_nulls("value")


def largest(frame: pl.DataFrame, *columns: str) -> float | None:
    """The largest finite value of some columns, None where there is none."""
    values = pl.concat([frame[name].cast(pl.Float64) for name in columns]).drop_nulls()
    value = values.filter(values.is_finite()).max()
    return value if isinstance(value, float) else None


def counted(frame: pl.DataFrame, colour: alt.Color, axes: dict[str, str], top: float) -> alt.Chart:
    """Square bins, coloured by how much they hold, on a logarithmic scale."""
    x, y = axes["x"], axes["y"]
    scale = alt.Scale(domain=[min(0.0, _least(frame, x)), top], nice=False)
    high = alt.Scale(domain=[min(0.0, _least(frame, y)), top], nice=False)
    squares: alt.Chart = (
        alt.Chart(frame)
        .mark_rect(stroke=RULE, strokeWidth=0.4)
        .encode(
            x=alt.X(f"{x}_from:Q", title=axes["x_title"], scale=scale),
            x2=f"{x}_to:Q",
            y=alt.Y(f"{y}_from:Q", title=axes["y_title"], scale=high),
            y2=f"{y}_to:Q",
            color=colour,
        )
        .properties(width=SQUARE, height=SQUARE)
    )
    return squares


def _least(frame: pl.DataFrame, axis: str) -> float:
    value = frame[f"{axis}_from"].min()
    return value if isinstance(value, float) else 0.0


def severity(field: str, title: str) -> alt.Color:
    """Colour by a count: cividis on a logarithmic scale."""
    scale = alt.Scale(type="log", range=list(palette.RAMP))
    return alt.Color(f"{field}:Q", title=title, scale=scale, legend=alt.Legend(tickCount=4))


def diagonal(top: float) -> alt.Chart:
    """The line on which both sides agree."""
    ends = pl.DataFrame({"x": [0.0, top], "y": [0.0, top]})
    line = alt.Chart(ends).mark_line(color=MUTED, strokeDash=[3, 3], strokeWidth=1)
    placed: alt.Chart = line.encode(x="x:Q", y="y:Q")
    return placed


def nats(name: str, value: float | None) -> str:
    """`exact KL 2.10e-05`, or that it is not known."""
    return f"{name} {short(value)}" if value is not None else f"{name} not known"
