"""Charts of experts: gate weights and load, A against B."""

from __future__ import annotations

from typing import Final

import altair as alt
import numpy as np
import polars as pl

from workbench.comparison.result import Comparison
from workbench.widgets import expert_frames, frames, marks
from workbench.widgets.chart import MUTED, Chart
from workbench.widgets.marks import SIDE_COLOURS, WIDTH

_STRIP: Final = (0.025, 0.065)
"""Where experts of one side alone are drawn, below the axis of the other, as shares of the axis."""


def gate_weights(comparison: Comparison, *, num_bins: int = frames.NUM_BINS) -> Chart:
    """Gate weight of each selected expert on A against that on B, matched by expert id."""
    found = expert_frames.gate_weights(comparison, num_bins=num_bins)
    top = marks.largest(found.frame, "a_to", "b_to") or 1.0
    near, far = (-share * top for share in _STRIP)
    alone = [
        pl.col(f"{side}_{end}").fill_null(place)
        for side in "ab"
        for end, place in (("from", far), ("to", near))
    ]
    axes = {
        "x": "a",
        "y": "b",
        "x_title": "gate weight on A (rollout)",
        "y_title": "gate weight on B (trainer)",
    }
    drawn = marks.counted(
        found.frame.with_columns(alone), marks.severity("pairs", "selections"), axes, top
    )
    counts = dict(found.frame.group_by("where").agg(pl.col("pairs").sum()).iter_rows())
    only_a, only_b = (counts.get(where, 0) for where in ("only A", "only B"))
    note = f"selected by A alone: {only_a:,} (strip below) · by B alone: {only_b:,} (strip at left)"
    title = "Gate weight, A against B"
    return marks.described(title, found, alt.layer(drawn, marks.diagonal(top)), note)


def expert_load(comparison: Comparison, layer: int | None = None) -> Chart:
    """How often each expert of a layer was selected, on A and on B.

    Without a layer, the one whose load moved most.
    """
    found = expert_frames.expert_load(comparison, layer)
    at = int(found.frame["layer"][0])
    load = expert_frames.Load(
        found.compared, found.frame["load_a"].to_numpy(), found.frame["load_b"].to_numpy()
    )
    long = found.frame.unpivot(["load_a", "load_b"], index="expert", variable_name="side")
    named = pl.col("side").replace_strict({"load_a": "A", "load_b": "B"}, return_dtype=pl.String)
    even = pl.DataFrame({"even": [float(load.a_E.mean())]})
    bars = (
        alt.Chart(long.with_columns(named))
        .mark_bar()
        .encode(
            x=alt.X(
                "expert:O",
                title="expert",
                axis=alt.Axis(labelAngle=0, labelOverlap=True, labelSeparation=6),
            ),
            xOffset=alt.XOffset("side:N"),
            y=alt.Y("value:Q", title="selections"),
            color=alt.Color("side:N", title=None, scale=SIDE_COLOURS),
        )
    )
    line = alt.Chart(even).mark_rule(color=MUTED, strokeDash=[3, 3]).encode(y="even:Q")
    picture = alt.layer(bars, line).properties(width=WIDTH, height=220)
    chosen = "" if layer is not None else " (it moved most)"
    note = (
        f"moved between experts: {load.moved:.2%} of selections · busiest expert above the mean: "
        f"A {_excess(load.a_E):.0%}, B {_excess(load.b_E):.0%}"
    )
    title = f"Expert load of layer {at}{chosen}"
    return marks.described(title, found, picture, note, "dashed: even load")


def _excess(load_E: np.ndarray) -> float:
    """(max load - mean load) / mean load: max_vio; 0 without any load."""
    mean = float(load_E.mean())
    return float(load_E.max() - mean) / mean if mean else 0.0
