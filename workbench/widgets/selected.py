"""Selected cells as a table: one line per cell, a column per metric, null where there is no number.

Axes: L layer, T row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from workbench.comparison.columns import known_columns
from workbench.view.source import Source

Rectangle = tuple[int, int, int, int]
"""First layer, layer after the last, first row, row after the last."""
_OF_TOKEN = ("request", "position", "token_id", "text", "logprob_a", "logprob_b", "dlogp")


def selected_frame(source: Source, rectangles: Sequence[Rectangle]) -> pl.DataFrame:
    """The cells of some rectangles, each cell once, in order of row and layer.

    Args:
        source: The comparison.
        rectangles: May overlap; parts outside the comparison are left out.

    Returns:
        layer, row, facts of the token, then `<site>.<metric>` for everything that was measured.
        Differences are A minus B. A metric that has no value at a cell is null; NaN is NaN.
    """
    chosen_LT = np.zeros((source.num_layers, source.num_rows), np.bool_)
    for l0, l1, t0, t1 in rectangles:
        chosen_LT[max(l0, 0) : max(l1, 0), max(t0, 0) : max(t1, 0)] = True
    rows_N, layers_N = np.nonzero(chosen_LT.T)
    tokens = source.rows[rows_N].select(_OF_TOKEN)
    places = [
        pl.Series("layer", layers_N, dtype=pl.Int32),
        pl.Series("row", rows_N, dtype=pl.Int64),
    ]
    metrics = [
        _metric(source, name, layers_N, rows_N)
        for name in known_columns()
        if "." in name and source.has_column(name)
    ]
    return pl.DataFrame([*places, *tokens.get_columns(), *metrics])


def _metric(source: Source, name: str, layers_N: np.ndarray, rows_N: np.ndarray) -> pl.Series:
    values = pl.Series(name, source.column(name)[layers_N, rows_N])
    missing = pl.Series("missing", source.missing(name)[layers_N, rows_N])
    return pl.select(pl.when(~missing).then(values).alias(name)).to_series()
