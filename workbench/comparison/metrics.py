"""How two rows of one site differ: the per-row tensor metrics. numpy only.

Works on blocks of rows that fit in a cache. Bits are compared first and only rows that differ are
measured. Sums of squares run in float32 (relative error about 1e-6, far below what is reported);
rows where that could overflow, underflow or meet a NaN are measured again in float64.

NaN and Inf: elements that hold the same non-finite value on both sides differ by 0, any other
non-finite element differs by Inf; both are counted per side. Zero rows: 0/0 is 0 for `rel_l2` and 1
for `cosine`, x/0 is Inf for `rel_l2` and 0 for `cosine`, and `scale` is NaN, which means missing.

Axis legend: T row of a block, D element of the row.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from workbench.comparison.ulp import UNSIGNED, ulp_distance
from workbench.store.dtypes import DTYPE_BY_NAME, coarser, to_float32

BLOCK_ELEMENTS: Final = 1 << 16
"""Elements per block: three float32 work arrays of it fit in a 1 MB cache."""

_SMALLEST_SQUARE: Final = 1e-30
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


def no_difference(num_rows: int) -> RowMetrics:
    """The metrics of rows that are equal and finite."""
    zeros, ones = np.zeros(num_rows, np.float32), np.ones(num_rows, np.float32)
    counts = np.zeros(num_rows, np.uint32)
    return RowMetrics(
        max_abs=zeros,
        rel_l2=zeros.copy(),
        cosine=ones,
        scale=ones.copy(),
        bit_equal=np.ones(num_rows, np.bool_),
        nonfinite_a=counts,
        nonfinite_b=counts.copy(),
        max_ulp=counts.copy(),
        l2=zeros.copy(),
    )


def measure(x_TD: np.ndarray, y_TD: np.ndarray) -> RowMetrics:
    """Metrics of each row of x against the same row of y; shapes equal, float types may differ."""
    found = no_difference(len(x_TD))
    if x_TD.size == 0:
        return found
    equal_T = _equal_rows(x_TD, y_TD)
    found.bit_equal[:] = equal_T
    _count_in_equal_rows(x_TD, equal_T, found)
    if equal_T.all():
        return found
    if not equal_T.any():
        _write(found, slice(None), _measure_different(x_TD, y_TD))
    else:
        rows = np.flatnonzero(~equal_T)
        _write(found, rows, _measure_different(x_TD[rows], y_TD[rows]))
    return found


def _write(found: RowMetrics, rows: np.ndarray | slice, part: RowMetrics) -> None:
    for name, whole, values in zip(RowMetrics._fields, found, part, strict=True):
        if name != "bit_equal":
            whole[rows] = values


def _equal_rows(x_TD: np.ndarray, y_TD: np.ndarray) -> np.ndarray:
    if x_TD.dtype != y_TD.dtype:
        wide = np.float64 in (x_TD.dtype, y_TD.dtype)
        x_TD, y_TD = _exact(x_TD, wide=wide), _exact(y_TD, wide=wide)
    x_bits, y_bits = _words(x_TD), _words(y_TD)
    differ: np.ndarray = np.not_equal(x_bits, y_bits).any(axis=1)
    return ~differ


def _words(values_TD: np.ndarray) -> np.ndarray:
    """Rows as the widest unsigned words that divide them."""
    row_bytes = values_TD.shape[1] * values_TD.dtype.itemsize
    width = next(w for w in (8, 4, 2, 1) if row_bytes % w == 0)
    words: np.ndarray = np.ascontiguousarray(values_TD).view(UNSIGNED[width])
    return words


def _exact(values: np.ndarray, *, wide: bool) -> np.ndarray:
    exact: np.ndarray = values.astype(np.float64) if wide else to_float32(values)
    return exact


def _count_in_equal_rows(x_TD: np.ndarray, equal_T: np.ndarray, found: RowMetrics) -> None:
    suspects = np.flatnonzero(equal_T & _may_hold_nonfinite(x_TD))
    if len(suspects):
        counts = _nonfinite(x_TD[suspects])
        found.nonfinite_a[suspects] = counts
        found.nonfinite_b[suspects] = counts
        # A vector with no finite element has no direction.
        empty = suspects[counts == x_TD.shape[1]]
        found.cosine[empty] = np.nan
        found.scale[empty] = np.nan


def _may_hold_nonfinite(values_TD: np.ndarray) -> np.ndarray:
    """Rows whose largest magnitude, read as bits, has every exponent bit set."""
    if values_TD.dtype.name == "bfloat16":
        magnitude_TD = np.bitwise_and(values_TD.view(np.uint16), np.uint16(0x7FFF))
        largest: np.ndarray = magnitude_TD.max(axis=1) >= 0x7F80
        return largest
    finite_T: np.ndarray = np.isfinite(values_TD).all(axis=1)
    return ~finite_T


def _nonfinite(values_TD: np.ndarray) -> np.ndarray:
    counts_T: np.ndarray = (~np.isfinite(values_TD)).sum(axis=1, dtype=np.uint32)
    return counts_T


def _measure_different(x_TD: np.ndarray, y_TD: np.ndarray) -> RowMetrics:
    if np.float64 in (x_TD.dtype, y_TD.dtype):
        return _measure_exactly(x_TD, y_TD)
    x, y = to_float32(x_TD), to_float32(y_TD)
    with np.errstate(all="ignore"):
        d = np.subtract(x, y)
        max_abs = np.maximum(d.max(axis=1), -d.min(axis=1))
        dd, xx, yy = np.vecdot(d, d), np.vecdot(x, x), np.vecdot(y, y)
        found = _from_sums(
            max_abs, dd.astype(np.float64), xx.astype(np.float64), yy.astype(np.float64)
        )
    found.max_ulp[:] = _max_ulp(x_TD, y_TD)
    smallest = np.minimum(np.minimum(dd, xx), yy)
    # A comparison with NaN is false, so NaN and Inf land here too.
    unsafe = ~((smallest >= _SMALLEST_SQUARE) & np.isfinite(dd + xx + yy))
    rows = np.flatnonzero(unsafe)
    if len(rows):
        for whole, values in zip(found, _measure_exactly(x_TD[rows], y_TD[rows]), strict=True):
            whole[rows] = values
    return found


def _from_sums(max_abs: np.ndarray, dd: np.ndarray, xx: np.ndarray, yy: np.ndarray) -> RowMetrics:
    """Metrics from sums over a row; counts stay 0. Float64 sums, sum(xy) = (xx + yy - dd) / 2."""
    found = no_difference(len(dd))
    with np.errstate(all="ignore"):
        xy = 0.5 * (xx + yy - dd)
        found.max_abs[:] = max_abs
        found.l2[:] = np.sqrt(dd)
        found.rel_l2[:] = np.where(dd == 0, 0.0, np.sqrt(dd / yy))
        norms = np.sqrt(xx) * np.sqrt(yy)
        cosine = np.where(norms == 0, np.where((xx == 0) & (yy == 0), 1.0, 0.0), xy / norms)
        found.cosine[:] = np.clip(cosine, -1.0, 1.0)
        found.scale[:] = np.where(yy == 0, np.nan, xy / yy)
    found.bit_equal[:] = False
    return found


def _measure_exactly(x_TD: np.ndarray, y_TD: np.ndarray) -> RowMetrics:
    """The same metrics in float64, with non-finite elements set apart."""
    x, y = x_TD.astype(np.float64), y_TD.astype(np.float64)
    finite = np.isfinite(x) & np.isfinite(y)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    broken_T = (~finite & ~same).any(axis=1)
    x, y = np.where(finite, x, 0.0), np.where(finite, y, 0.0)
    d = x - y
    # Scaling by the largest magnitude keeps squares of float64 inputs in range.
    top_T = np.maximum(np.abs(x).max(axis=1), np.abs(y).max(axis=1))
    top_T[top_T == 0] = 1.0
    parts = [np.vecdot(v, v) for v in (_over(d, top_T), _over(x, top_T), _over(y, top_T))]
    found = _from_sums(np.abs(d).max(axis=1), *parts)
    found.l2[:] = np.sqrt(parts[0]) * top_T
    found.scale[:] = _exact_scale(_over(x, top_T), _over(y, top_T))
    for whole in (found.max_abs, found.rel_l2, found.l2):
        whole[broken_T] = np.inf
    nothing_T = ~finite.any(axis=1)
    found.cosine[nothing_T] = np.nan
    found.scale[nothing_T] = np.nan
    found.nonfinite_a[:] = _nonfinite(x_TD)
    found.nonfinite_b[:] = _nonfinite(y_TD)
    found.max_ulp[:] = _max_ulp(x_TD, y_TD, finite)
    return found


def _over(values_TD: np.ndarray, top_T: np.ndarray) -> np.ndarray:
    quotient: np.ndarray = values_TD / top_T[:, None]
    return quotient


def _exact_scale(x_TD: np.ndarray, y_TD: np.ndarray) -> np.ndarray:
    yy_T = np.vecdot(y_TD, y_TD)
    with np.errstate(all="ignore"):
        return np.where(yy_T == 0, np.nan, np.vecdot(x_TD, y_TD) / yy_T)


def _max_ulp(x_TD: np.ndarray, y_TD: np.ndarray, finite_TD: np.ndarray | None = None) -> np.ndarray:
    if x_TD.dtype != y_TD.dtype:
        dtype = DTYPE_BY_NAME[coarser(x_TD.dtype.name, y_TD.dtype.name)]
        with np.errstate(all="ignore"):
            x_TD, y_TD = x_TD.astype(dtype), y_TD.astype(dtype)
    distance_TD = ulp_distance(np.ascontiguousarray(x_TD), np.ascontiguousarray(y_TD))
    if finite_TD is not None:
        distance_TD[~finite_TD] = 0
    largest = distance_TD.max(axis=1)
    if largest.dtype == np.uint64:
        largest = np.minimum(largest, _LARGEST_ULP)
    saturated: np.ndarray = largest.astype(np.uint32)
    return saturated
