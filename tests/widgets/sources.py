"""A comparison of seven rows whose numbers are worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from tests.view.synthetic import ArraySource, make_source

LN2 = float(np.log(2))


def seven_rows(
    *,
    b: Sequence[float | None] = (None, -1.0, -1.0 - LN2, -0.5, None, -2.0, None),
    modality: Sequence[str] = ("text",) * 7,
    phase: Sequence[str] = ("prompt", "prompt", "generated", "generated") + ("generated",) * 3,
    flips: Sequence[tuple[int, int]] = (),
    unexplained: Sequence[tuple[int, int]] = (),
) -> ArraySource:
    """Requests r0 (positions 0 to 3) and r1 (0 to 2) on two layers.

    A scores -1, -1, -0.5 and -2, -1 after each first token; `b` is what B says. By default one row
    has dlogp = ln 2, one has no score on B, and the others are equal.
    """
    source = make_source(
        num_layers=2,
        num_rows=7,
        texts=list("abcdefg"),
        flips=tuple(flips),
        unexplained=tuple(unexplained),
    )
    columns: Mapping[str, pl.Series] = {
        "request": pl.Series(["r0"] * 4 + ["r1"] * 3),
        "position": pl.Series([0, 1, 2, 3, 0, 1, 2], dtype=pl.Int32),
        "phase": pl.Series(list(phase)),
        "modality": pl.Series(list(modality)),
        "logprob_a": pl.Series([None, -1.0, -1.0, -0.5, None, -2.0, -1.0], dtype=pl.Float32),
        "logprob_b": pl.Series(list(b), dtype=pl.Float32),
        "offset_a": pl.Series(range(7), dtype=pl.Int32),
        "offset_b": pl.Series(range(7), dtype=pl.Int32),
        "kl_exact": pl.Series([None, 0.1, 0.2, 0.4, None, 0.0, None], dtype=pl.Float32),
    }
    source.rows = source.rows.with_columns(series.alias(n) for n, series in columns.items())
    return source


def put(source: ArraySource, name: str, values: Sequence[Sequence[float]]) -> None:
    """Sets a column of the layer table; NaN is missing."""
    column = np.asarray(values, np.float32)
    source._columns[name] = column
    source._absent[name] = np.isnan(column)
