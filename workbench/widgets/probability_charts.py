"""Charts of log-probabilities: KL and k3 by place and kind, probabilities, importance ratios."""

from __future__ import annotations

from typing import Final

import altair as alt
import polars as pl

from workbench.names import DivergenceClass
from workbench.view.classes import CLASS_TITLES
from workbench.view.numbers import compact_count, short
from workbench.view.source import Source
from workbench.widgets import frames, marks
from workbench.widgets.chart import MUTED, TEXT, Chart, Picture
from workbench.widgets.marks import ESTIMATOR_COLOURS, ESTIMATOR_SHAPES, WIDTH

KL_FLOOR: Final = 1e-10
"""Nats below which KL is drawn as zero: far below what float32 log-probabilities resolve."""

_NATS: Final = "nats per token"
_FEW_GROUPS: Final = 14
_RATIO_ENDS: Final = (0.2, 10.0)


def kl_by_position(source: Source, *, num_bins: int = 120) -> Chart:
    """Exact KL and k3 along the request."""
    found = frames.by_position(source, num_bins=num_bins)
    keys = ["position_from", "position_to", "rows"]
    lines = marks.estimators(found.frame, keys)
    kl = marks.logarithmic(lines["value"], KL_FLOOR)
    picture = (
        alt.Chart(marks.drawable(lines, ("value",), KL_FLOOR))
        .mark_line(point=alt.OverlayMarkDef(size=24), strokeWidth=1.2)
        .encode(
            x=alt.X("position_from:Q", title="position in the request", axis=_whole()),
            y=alt.Y("value:Q", title=_NATS, scale=kl.scale, axis=kl.axis),
            color=alt.Color("estimator:N", title=None, scale=ESTIMATOR_COLOURS),
        )
        .properties(width=WIDTH, height=240)
    )
    title = "KL(A || B) by position, mean"
    return marks.described(title, found, picture, _overall(source), _no_exact(found.frame))


def kl_by_first_layer(source: Source, klass: DivergenceClass = "flip") -> Chart:
    """Exact KL and k3 by the first layer that diverged while the token was scored."""
    found = frames.by_first_layer(source, klass)
    frame = found.frame.with_columns(
        pl.when(pl.col("layer").is_not_null())
        .then("L" + pl.col("layer").cast(pl.String))
        .otherwise("state")
        .alias("group")
    )
    order = frame["group"].to_list()
    lines = marks.estimators(frame, ["group", "rows"])
    kl = marks.logarithmic(lines["value"], KL_FLOOR)
    x = alt.X("group:N", title=None, sort=order, axis=_groups())
    means = (
        alt.Chart(marks.drawable(lines, ("value",), KL_FLOOR))
        .mark_point(filled=True, size=70, opacity=1)
        .encode(
            x=x,
            y=alt.Y("value:Q", title=_NATS, scale=kl.scale, axis=kl.axis),
            color=alt.Color("estimator:N", title=None, scale=ESTIMATOR_COLOURS),
            shape=alt.Shape("estimator:N", scale=ESTIMATOR_SHAPES, legend=None),
        )
        .properties(width=WIDTH, height=190)
    )
    title = f"KL(A || B) by the layer of the first {CLASS_TITLES[klass]}, mean"
    note = "a token counts to the layers of the row that scored it, the one before"
    counts = found.frame["rows"].to_list()
    many = len(counts) > _FEW_GROUPS
    spread = f"n per layer or group: {min(counts)} to {max(counts):,}" if many else ""
    return marks.described(
        title,
        found,
        alt.vconcat(means, _shares(frame, order)).resolve_scale(color="independent"),
        note,
        spread,
        _no_exact(found.frame),
    )


def _shares(frame: pl.DataFrame, order: list[str]) -> Picture:
    """Share of the rows against share of the k3 that they carry, with n."""
    total = frame["rows"].sum()
    shares = frame.select(
        "group",
        "rows",
        (pl.col("rows") / total if total else pl.lit(None, pl.Float64)).alias("of the rows"),
        pl.col("k3_share").cast(pl.Float64).alias("of all k3"),
    )
    long = shares.unpivot(["of the rows", "of all k3"], index=["group", "rows"])
    x = alt.X("group:N", title=None, sort=order, axis=_groups())
    scale = alt.Scale(domain=["of the rows", "of all k3"], range=[MUTED, marks.GREEN])
    bars = (
        alt.Chart(long)
        .mark_bar()
        .encode(
            x=x,
            xOffset=alt.XOffset("variable:N", sort=["of the rows", "of all k3"]),
            y=alt.Y("value:Q", title="share", axis=alt.Axis(format="%", tickCount=4)),
            color=alt.Color("variable:N", title=None, scale=scale),
        )
    )
    label = "n " + pl.col("rows").map_elements(compact_count, return_dtype=pl.String)
    labels = (
        alt.Chart(shares.with_columns(label.alias("label")))
        .mark_text(dy=-6, baseline="bottom", fontSize=10)
        .encode(x=alt.X("group:N", sort=order), y=alt.Y("top:Q"), text="label:N")
        .transform_calculate(top="max(datum['of the rows'], datum['of all k3'] || 0)")
    )
    drawn = alt.layer(bars, labels) if frame.height <= _FEW_GROUPS else alt.layer(bars)
    return drawn.properties(width=WIDTH, height=110)


def kl_by_modality(source: Source) -> Chart:
    """Exact KL and k3 of text tokens against image tokens and others."""
    found = frames.by_modality(source)
    frame = found.frame.with_columns(
        pl.format("{} (n = {} of {})", "modality", "rows", "expected").alias("group")
    )
    lines = marks.estimators(frame, ["group", "rows"])
    kl = marks.logarithmic(lines["value"], KL_FLOOR)
    picture = (
        alt.Chart(marks.drawable(lines, ("value",), KL_FLOOR))
        .mark_point(filled=True, size=90, opacity=1)
        .encode(
            x=alt.X("value:Q", title=_NATS, scale=kl.scale, axis=kl.axis),
            y=alt.Y("group:N", title=None, sort=frame["group"].to_list()),
            color=alt.Color("estimator:N", title=None, scale=ESTIMATOR_COLOURS),
            shape=alt.Shape("estimator:N", scale=ESTIMATOR_SHAPES, legend=None),
        )
        .properties(width=WIDTH - 120, height=alt.Step(44))
    )
    title = "KL(A || B) of text and other tokens, mean"
    only = found.frame["modality"].unique().to_list()
    note = f"every row is {only[0]}: nothing to set it against" if len(only) == 1 else ""
    return marks.described(title, found, picture, note, _no_exact(found.frame))


def probabilities(source: Source, *, num_bins: int = frames.NUM_BINS) -> Chart:
    """Probability of the token on the rollout against that on the trainer, in bins."""
    found = frames.probability_bins(source, num_bins=num_bins)
    axes = {
        "x": "p_a",
        "y": "p_b",
        "x_title": "p on A (rollout)",
        "y_title": "p on B (trainer)",
    }
    colour = marks.severity("rows", "rows")
    picture = alt.layer(marks.counted(found.frame, colour, axes, 1.0), marks.diagonal(1.0))
    family = source.summary.get("probability") or {}
    pearson = family.get("pearson")
    note = "" if pearson is None else f"Pearson correlation {pearson:.6f}"
    title = "Probability of the token, A against B"
    return marks.described(title, found, picture, note)


def ratios(source: Source, *, num_bins: int = frames.NUM_BINS + 1) -> Chart:
    """Histogram of importance ratios, and how much each recipe's safeguard would cut."""
    found = frames.ratio_bins(source, num_bins=num_bins)
    guards = frames.safeguards(source)
    title = "Importance ratio p_B / p_A"
    picture = alt.vconcat(_histogram(found.frame), _windows(guards.frame))
    return marks.described(
        title, found, picture, "below: each safeguard's window (grey) and the ratios seen (line)"
    )


def _histogram(frame: pl.DataFrame) -> Picture:
    filled = frame.filter(pl.col("rows") > 0)
    most = marks.largest(filled, "ratio_to") or 1.0
    wide = most > 2
    edge = pl.DataFrame({"one": [1.0]})
    powers = [10**power for power in range(len(str(filled["rows"].sum())))]
    counts = alt.Scale(type="log", domainMin=0.7)
    scale = alt.Scale(type="log" if wide else "linear", zero=False, nice=False)
    axis = alt.Axis(format="~g", grid=True)
    bars = (
        alt.Chart(filled.with_columns(pl.lit(0.7).alias("base")))
        .mark_bar(color=TEXT, stroke=MUTED, strokeWidth=0.5)
        .encode(
            x=alt.X("ratio_from:Q", title="ratio", scale=scale, axis=axis),
            x2="ratio_to:Q",
            y=alt.Y("base:Q", title="rows", scale=counts, axis=alt.Axis(values=powers)),
            y2="rows:Q",
        )
    )
    line = alt.Chart(edge).mark_rule(strokeDash=[3, 3]).encode(x="one:Q")
    return alt.layer(bars, line).properties(width=WIDTH, height=170)


def _windows(frame: pl.DataFrame) -> Picture:
    low, high = _RATIO_ENDS
    label = pl.format(
        "{} of {} {} outside{}",
        pl.col("below") + pl.col("above"),
        "n",
        "unit",
        pl.format(" ({}%)", (100 * pl.col("outside")).round(1)).fill_null(""),
    )
    lines = frame.with_columns(
        pl.col("low").fill_null(low),
        pl.col("high").fill_null(high),
        pl.col("least", "most").clip(low, high),
        label.alias("label"),
    )
    order = frame["name"].to_list()
    y = alt.Y("name:N", title=None, sort=order)
    scale = alt.Scale(type="log", domain=[low, high], nice=False)
    ticks = [0.2, 0.5, 0.8, 1, 1.2, 2, 5, 10]
    axis = alt.Axis(values=ticks, format="~g")
    base = alt.Chart(lines)
    x = alt.X("low:Q", title="ratio (logarithmic)", scale=scale, axis=axis)
    kept = base.mark_bar(color=MUTED, opacity=0.35, height=10).encode(x=x, x2="high:Q", y=y)
    seen = base.mark_rule(color=TEXT, strokeWidth=3).encode(x="least:Q", x2="most:Q", y=y)
    text = base.mark_text(align="left", dx=8).encode(x=alt.value(WIDTH - 150), y=y, text="label:N")
    return alt.layer(kept, seen, text).properties(width=WIDTH - 150, height=alt.Step(24))


def _overall(source: Source) -> str:
    kl = source.summary.get("kl") or {}
    both = f"{marks.nats('exact KL', kl.get('exact_mean'))} · {marks.nats('k3', kl.get('k3'))}"
    largest = short(source.summary.get("max_abs_dlogp"))
    return f"whole comparison: {both} {_NATS} · max |dlogp| {largest}"


def _no_exact(frame: pl.DataFrame) -> str:
    """Why there is no exact KL, where there is none."""
    missing = frame["kl_exact"].null_count() == frame.height
    return "no exact KL: it needs full logits on both sides" if missing and frame.height else ""


def _groups() -> alt.Axis:
    return alt.Axis(labelAngle=0, labelOverlap=True, labelSeparation=6)


def _whole() -> alt.Axis:
    return alt.Axis(format="d", tickMinStep=1)
