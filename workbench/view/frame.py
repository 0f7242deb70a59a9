"""Cells as a table: one line per (layer, row) with every metric, for files and for notebooks.

Axes: L layer, T row.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from workbench.comparison.columns import known_columns
from workbench.errors import UsageError
from workbench.view.model import ViewModel
from workbench.view.state import Area

MAX_CELLS = 1_000_000
"""More than this is a job for reading `layers.arrow` itself, which is a table already."""

ROW_COLUMNS = ("request", "position", "token_id", "text", "logprob_a", "logprob_b", "dlogp")


def chosen_cells(model: ViewModel) -> tuple[np.ndarray, np.ndarray]:
    """Layers and rows of the selection, else of what the filter shows, else of everything.

    Returns:
        Parallel int64 arrays, layer by layer.
    """
    state = model.state
    chosen_LT = np.ones((model.num_layers, model.num_rows), np.bool_)
    if state.area is not None:
        chosen_LT[:] = False
        chosen_LT[slice(*state.area.layers), slice(*state.area.rows)] = True
    shown_LT = model.grids.shown(state)
    if shown_LT is not None:
        chosen_LT &= shown_LT
    layers, rows = np.nonzero(chosen_LT)
    return layers, rows


def cells_frame(model: ViewModel, area: Area | None = None) -> pl.DataFrame:
    """A line per cell: address, token, both log-probabilities, every metric of the cell.

    Missing is null and never equal; errors are of A against B, `dlogp` is A minus B.

    Args:
        model: The view-model.
        area: The cells; None for the selection, else what the filter shows, else everything.

    Raises:
        UsageError: More than `MAX_CELLS` cells.
    """
    if area is None:
        layers, rows = chosen_cells(model)
    else:
        grid = np.mgrid[slice(*area.layers), slice(*area.rows)]
        layers, rows = (axis.ravel() for axis in grid)
    if len(layers) > MAX_CELLS:
        raise UsageError(
            f"{len(layers):,} cells are too many for a table",
            expected=f"at most {MAX_CELLS:,}",
            do="select an area (v) or set a filter (F); layers.arrow holds everything",
        )
    source = model.source
    at_rows = source.rows.select(ROW_COLUMNS)[rows] if len(rows) else source.rows[ROW_COLUMNS][:0]
    columns = {"layer": pl.Series(layers, dtype=pl.UInt32), "row": pl.Series(rows, dtype=pl.UInt32)}
    columns |= {name: at_rows[name] for name in ROW_COLUMNS}
    for name in known_columns():
        if name in ("layer", "row") or not source.has_column(name):
            continue
        values, missing = source.column(name), source.missing(name)
        series = pl.Series(name, np.ascontiguousarray(values[layers, rows]))
        absent = pl.Series(np.ascontiguousarray(missing[layers, rows]))
        columns[name] = series.zip_with(~absent, pl.Series(name, [None], dtype=series.dtype))
    return pl.DataFrame(columns)
