"""`compare`: aligns two captures, measures them, judges, and writes a comparison directory."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from workbench.comparison import facts, summary
from workbench.comparison.align import Alignment, align
from workbench.comparison.columns import NUMERIC_SITES
from workbench.comparison.contracts import relate
from workbench.comparison.measure import Measured, Measurement
from workbench.comparison.newer import FORMAT_VERSION, newer_notes, newer_side
from workbench.comparison.publish import check_target, staged, write_summary
from workbench.comparison.result import (
    FORMAT_NAME,
    LAYERS_NAME,
    ROWS_NAME,
    Comparison,
    open_comparison,
)
from workbench.comparison.rowmap import RowMap
from workbench.comparison.rowtable import row_table
from workbench.comparison.tolerance import Precision, budgets, coarsest, resolve_profile
from workbench.comparison.weights import compare_weights
from workbench.names import split_site
from workbench.store import Capture, open_capture

Progress = Callable[[str], None]
Tick = Callable[[float], None]
CaptureLike = str | os.PathLike[str] | Capture


def compare(
    a: CaptureLike,
    b: CaptureLike,
    *,
    out: str | os.PathLike[str],
    tolerance: str = "auto",
    common_prefix: bool = False,
    progress: Progress | None = None,
    tick: Tick | None = None,
) -> Comparison:
    """Aligns captures A (rollout) and B (trainer), measures how they differ, and writes `out`.

    Reads both through memory maps, on two threads; memory does not grow with their size, apart from
    about 1 KB per row.

    Args:
        a: Directory of capture A, or the open capture.
        b: The same for B.
        out: Directory to write: new, empty, or an earlier comparison, which is then replaced.
        tolerance: Profile: auto, bitwise, fp32, bf16, fp16 or fp8.
        common_prefix: Where the tokens of a request part, compare the rows before that instead of
            refusing. The status is then not_comparable, with what was left out as the reason.
        progress: Called with the name of each stage.
        tick: Called once per layer and more, in the caller's thread, with the share that is done.
            What it or `progress` raises stops the comparison, and nothing is written.

    Raises:
        AlignmentError: The captures do not hold the same tokens of the same model, or have none in
            common. Nothing is written.
        CaptureError: A capture cannot be read, or `out` holds something else.
        UsageError: Unknown tolerance profile.
    """
    say, tell = progress or _silent, tick or _silent
    resolve_profile(tolerance, "")
    target = Path(out)
    check_target(target)
    side_a, side_b = _opened(a), _opened(b)
    sides = {"a": newer_side(side_a.manifest), "b": newer_side(side_b.manifest)}
    for title, text in newer_notes(sides):
        say(f"{title}  {text}")
    say("aligning rows")
    alignment = align(side_a, side_b, common_prefix=common_prefix)
    cut = alignment.cut
    tell(_ALIGNED)
    with staged(target) as stage:
        measured, layers = _measured(side_a, side_b, alignment, stage, say, tell)
        say("judging")
        tell(_MEASURED)
        described = {
            "format": FORMAT_NAME,
            "version": FORMAT_VERSION,
            "a": facts.side_facts(side_a, target),
            "b": facts.side_facts(side_b, target),
            "layers": layers,
            "rows": {
                "expected": alignment.expected,
                "only_a": alignment.only_a,
                "only_b": alignment.only_b,
                "other_tokens": 0 if cut is None else cut.num_rows,
            },
            "cut": None if cut is None else cut.to_json(),
            **_tolerance(side_a, side_b, layers["num_layers"], tolerance),
            "flip_reasons": measured.flip_reasons,
            "coverage": facts.coverage(
                side_a,
                side_b,
                measured.coverage,
                num_layers=layers["num_layers"],
                num_rows=alignment.rows.height,
            ),
            "contracts": relate(side_a.manifest, side_b.manifest).to_json(),
        }
        weights = compare_weights(side_a.manifest, side_b.manifest)
        draft = Comparison(stage, described, captures={"a": side_a, "b": side_b})
        found = summary.judged(
            draft,
            weights,
            incomplete=facts.incompleteness(side_a, side_b),
            other_tokens="" if cut is None else cut.reason(),
        )
        body = {**described, **found, "weights_detail": weights.to_json(), **facts.FIXED}
        write_summary(stage, {**{key: body[key] for key in found}, **body})
    return open_comparison(target)


_ALIGNED: Final = 0.05
_MEASURED: Final = 0.95
"""Shares of the whole after a stage: judging reads the table that measuring wrote."""


def _silent(_told: object) -> None:
    pass


def _opened(capture: CaptureLike) -> Capture:
    return capture if isinstance(capture, Capture) else open_capture(capture)


def _measured(
    a: Capture, b: Capture, alignment: Alignment, stage: Path, say: Progress, tell: Tick
) -> tuple[Measured, dict[str, Any]]:
    rows = alignment.rows
    row_map = RowMap(
        a,
        b,
        chunk_a=_places(rows, "chunk_a"),
        offset_a=_places(rows, "offset_a"),
        chunk_b=_places(rows, "chunk_b"),
        offset_b=_places(rows, "offset_b"),
    )
    num_layers = max(1, _num_layers(a), _num_layers(b))
    contracts = relate(a.manifest, b.manifest)
    measurement = Measurement(a, b, rows, row_map, contracts, num_layers=num_layers)

    def tick(done: float) -> None:
        tell(_ALIGNED + done * (_MEASURED - _ALIGNED))

    measured = measurement.run(stage / LAYERS_NAME, say, tick)
    row_table(rows, measured, a, b).write_parquet(stage / ROWS_NAME, compression="zstd")
    layers = {
        "num_layers": num_layers,
        "num_rows": rows.height,
        "columns": [list(column) for column in measurement.layer_columns()],
    }
    return measured, layers


def _places(rows: pl.DataFrame, name: str) -> np.ndarray:
    places: np.ndarray = rows[name].fill_null(-1).to_numpy()
    return places


def _num_layers(capture: Capture) -> int:
    layers = [layer for layer, _ in map(split_site, capture.sites) if layer is not None]
    return max(capture.manifest.model.num_layers, max(layers, default=-1) + 1)


def _tolerance(a: Capture, b: Capture, num_layers: int, profile: str) -> dict[str, Any]:
    """The chosen profile, and what its budgets are worked out from."""
    dtypes = {"router_logits": [""], "hidden": [a.manifest.dtype, b.manifest.dtype]}
    for capture in (a, b):
        for name, info in capture.manifest.sites.items():
            site = split_site(name)[1]
            kind = "router_logits" if site == "router_logits" else "hidden"
            if site in NUMERIC_SITES:
                dtypes[kind].append(info.dtype)
    model = a.manifest.model
    hidden = [math.prod(i.shape) for n, i in a.manifest.sites.items() if n.endswith("_in")]
    precision = Precision(
        num_layers=num_layers,
        hidden_size=model.hidden_size or max(hidden, default=1),
        top_k=model.top_k,
        dtype=coarsest(dtypes["hidden"]),
        router_dtype=coarsest(dtypes["router_logits"]),
        log_vocab=math.log(model.vocab_size) if model.vocab_size > 1 else 1.0,
    )
    found = budgets(precision, profile)
    return {
        "tolerance": {
            "profile": found.profile,
            "reason": found.reason,
            "unit_roundoff": found.roundoff,
            "kl_gate": found.kl,
        },
        "precision": precision.to_json(),
    }
