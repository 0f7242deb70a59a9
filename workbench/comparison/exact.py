"""The per-row metrics in float64, non-finite elements set apart: slow, for rows that need it.

Axis legend: T row, D element of the row.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from workbench.comparison.ulp import ulp_distance
from workbench.store.dtypes import coarser, numpy_dtype

_LARGEST_ULP: Final = np.uint64(2**32 - 1)


class RowMetrics(NamedTuple):
    """Metrics per row, each of shape (T,).

    Attributes:
        max_abs: Largest |x - y|, float32.
        rel_l2: ‖x - y‖ / ‖y‖, float32.
        cosine: Float32; NaN where no element is finite on both sides.
        scale: Best-fit scalar sum(xy) / sum(yy), float32: x is about scale * y. 1 where bits agree.
        bit_equal: Every stored bit agrees; across types, every value.
        nonfinite_a: NaN and Inf in x, uint32.
        nonfinite_b: NaN and Inf in y, uint32.
        max_ulp: Largest distance in units of the coarser type's last place, uint32, saturating.
        l2: ‖x - y‖, float32.
    """

    max_abs: np.ndarray
    rel_l2: np.ndarray
    cosine: np.ndarray
    scale: np.ndarray
    bit_equal: np.ndarray
    nonfinite_a: np.ndarray
    nonfinite_b: np.ndarray
    max_ulp: np.ndarray
    l2: np.ndarray


def measure_exactly(x_TD: np.ndarray, y_TD: np.ndarray) -> RowMetrics:
    """Metrics of rows of any float types; `bit_equal` is left to the caller and False."""
    # A signalling NaN warns when it is widened, and is as good as any other.
    with np.errstate(invalid="ignore"):
        x, y = x_TD.astype(np.float64), y_TD.astype(np.float64)
    finite = np.isfinite(x) & np.isfinite(y)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    broken_T = (~finite & ~same).any(axis=1)
    x, y = np.where(finite, x, 0.0), np.where(finite, y, 0.0)
    # Scaling by the largest magnitude keeps the squares of any input in range.
    top_T = np.maximum(np.abs(x).max(axis=1), np.abs(y).max(axis=1))
    top_T[top_T == 0] = 1.0
    x, y = x / top_T[:, None], y / top_T[:, None]
    d = x - y
    dd_T, xx_T, yy_T, xy_T = np.vecdot(d, d), np.vecdot(x, x), np.vecdot(y, y), np.vecdot(x, y)
    with np.errstate(all="ignore"):
        rel_l2_T = np.where(dd_T == 0, 0.0, np.sqrt(dd_T / yy_T))
        scale_T = np.where(yy_T == 0, np.nan, xy_T / yy_T)
        max_abs_T, l2_T = np.abs(d).max(axis=1) * top_T, np.sqrt(dd_T) * top_T
        cosine_T = _cosine(xx_T, yy_T, xy_T)
    for values in (max_abs_T, rel_l2_T, l2_T):
        values[broken_T] = np.inf
    nothing_T = ~finite.any(axis=1)
    cosine_T[nothing_T] = scale_T[nothing_T] = np.nan
    with np.errstate(over="ignore"):
        return RowMetrics(
            max_abs=max_abs_T.astype(np.float32),
            rel_l2=rel_l2_T.astype(np.float32),
            cosine=cosine_T.astype(np.float32),
            scale=scale_T.astype(np.float32),
            bit_equal=np.zeros(len(x), np.bool_),
            nonfinite_a=nonfinite_counts(x_TD),
            nonfinite_b=nonfinite_counts(y_TD),
            max_ulp=_max_ulp(x_TD, y_TD, finite),
            l2=l2_T.astype(np.float32),
        )


def _cosine(xx_T: np.ndarray, yy_T: np.ndarray, xy_T: np.ndarray) -> np.ndarray:
    norms_T = np.sqrt(xx_T) * np.sqrt(yy_T)
    both_zero_T = (xx_T == 0) & (yy_T == 0)
    cosine_T: np.ndarray = np.where(norms_T == 0, np.where(both_zero_T, 1.0, 0.0), xy_T / norms_T)
    np.clip(cosine_T, -1.0, 1.0, out=cosine_T)
    return cosine_T


def nonfinite_counts(values_TD: np.ndarray) -> np.ndarray:
    """NaN and Inf per row, uint32 (T,)."""
    counts_T: np.ndarray = (~np.isfinite(values_TD)).sum(axis=1, dtype=np.uint32)
    return counts_T


def _max_ulp(x_TD: np.ndarray, y_TD: np.ndarray, finite_TD: np.ndarray) -> np.ndarray:
    """Largest distance over elements that are finite on both sides."""
    if x_TD.dtype != y_TD.dtype:
        dtype = numpy_dtype(coarser(x_TD.dtype.name, y_TD.dtype.name))
        with np.errstate(all="ignore"):
            x_TD, y_TD = x_TD.astype(dtype), y_TD.astype(dtype)
    distance_TD = ulp_distance(np.ascontiguousarray(x_TD), np.ascontiguousarray(y_TD))
    largest_T: np.ndarray = np.where(finite_TD, distance_TD, 0).max(axis=1)
    return np.minimum(largest_T.astype(np.uint64), _LARGEST_ULP).astype(np.uint32)
