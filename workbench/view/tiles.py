"""Grids of severity codes at every zoom: pooled by maximum, never sampled.

A grid is uint8, shape (L, T), of codes (workbench.view.palette). Zoomed out, a drawn cell shows the
worst of the cells beneath it, so one bad cell in three million stays visible. numpy only.

Axes: L layer, T row, P pooled column, Q pooled layer.
"""

from __future__ import annotations

import numpy as np

Grid = np.ndarray


class Pyramid:
    """A grid and its halvings along the rows, each built when first asked for."""

    def __init__(self, codes_LT: Grid) -> None:
        if codes_LT.dtype != np.uint8 or codes_LT.ndim != 2:
            raise TypeError(f"codes must be 2-D uint8, got {codes_LT.ndim}-D {codes_LT.dtype}")
        self._steps = {0: codes_LT}

    def at(self, step: int) -> Grid:
        """The grid with 2**step rows of the comparison per column, shape (L, ceil(T / 2**step))."""
        found = self._steps.get(step)
        if found is None:
            # Two threads may come here at once; both make the same.
            found = self._steps[step] = halve_rows(self.at(step - 1))
        return found


def halve_rows(codes_LT: Grid) -> Grid:
    """Maximum of each pair of columns; a last odd column stands alone."""
    num_rows = codes_LT.shape[1]
    even = codes_LT[:, : num_rows - num_rows % 2]
    pooled: Grid = np.maximum(even[:, 0::2], even[:, 1::2])
    if num_rows % 2:
        pooled = np.concatenate([pooled, codes_LT[:, -1:]], axis=1)
    return pooled


def pool_layers(codes_LT: Grid, layers_per_cell: int) -> Grid:
    """Maximum over groups of consecutive layers, shape (ceil(L / layers_per_cell), T)."""
    if layers_per_cell <= 1 or codes_LT.shape[0] == 0:
        return codes_LT
    starts = np.arange(0, codes_LT.shape[0], layers_per_cell)
    return np.maximum.reduceat(codes_LT, starts, axis=0)


def pool_to_width(codes_LT: Grid, width: int) -> Grid:
    """Maximum over rows so that all of them fit in at most `width` columns, shape (L, <= width).

    Column p covers rows `column_starts(T, width)[p]` up to the next start.
    """
    num_rows = codes_LT.shape[1]
    if num_rows <= width or num_rows == 0:
        return codes_LT
    return np.maximum.reduceat(codes_LT, column_starts(num_rows, width), axis=1)


def column_starts(num_rows: int, width: int) -> np.ndarray:
    """First row of each column when `num_rows` are spread over at most `width` columns, int64."""
    columns = max(1, min(width, num_rows))
    return np.arange(columns, dtype=np.int64) * num_rows // columns


def column_of(row: int, num_rows: int, width: int) -> int:
    """The column of `pool_to_width` that covers a row."""
    return int(np.searchsorted(column_starts(num_rows, width), row, side="right")) - 1
