"""How two rows of one site differ: the per-row tensor metrics. numpy only.

Works on blocks of rows that fit in a core's caches. Bits are compared first and only rows that
differ are measured. Sums of squares run in float32 (relative error about 1e-6, far below what is
reported); rows where that could overflow, underflow or meet a NaN are measured again, exactly, in
float64.

NaN and Inf: elements that hold the same non-finite value on both sides differ by 0, any other
non-finite element differs by Inf; both are counted per side. Zero rows: 0/0 is 0 for `rel_l2` and 1
for `cosine`, x/0 is Inf for `rel_l2` and 0 for `cosine`, and `scale` is NaN, which means missing.

Axis legend: T row, D element of the row.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from workbench.comparison.exact import RowMetrics, measure_exactly, nonfinite_counts
from workbench.comparison.workspace import Workspace, row_words, workspace
from workbench.store.dtypes import coarser, numpy_dtype, to_float32

BLOCK_ELEMENTS: Final = 1 << 17
"""Elements per block: with its work arrays 2 MB in bfloat16. Half of it is a quarter slower with
two threads, which then meet too often at the interpreter's lock; eight times as much is half as
fast, for the caches."""

_SMALLEST_SQUARE: Final = 1e-30


class Accumulator:
    """Metrics of one site over all rows of a comparison, filled block by block.

    Attributes:
        there: Rows that were added, bool (T,).
    """

    def __init__(self, num_rows: int) -> None:
        self.there = np.zeros(num_rows, np.bool_)
        self._equal = np.ones(num_rows, np.bool_)
        self._max_abs = np.zeros(num_rows, np.float32)
        self._dd = np.zeros(num_rows, np.float32)
        self._xx = np.ones(num_rows, np.float32)
        self._yy = np.ones(num_rows, np.float32)
        self._nonfinite_a = np.zeros(num_rows, np.uint32)
        self._nonfinite_b = np.zeros(num_rows, np.uint32)
        self._max_ulp = np.zeros(num_rows, np.uint32)
        self._exact: list[tuple[np.ndarray, RowMetrics]] = []
        self._expect_equal = True

    def add(self, rows: np.ndarray, x_TD: np.ndarray, y_TD: np.ndarray) -> None:
        """Measures x against y, of one shape and any float types, as the metrics of `rows`."""
        self.there[rows] = True
        if x_TD.size == 0:
            return
        # Where the block before had no equal row, this one rarely has: its bits are then looked at
        # only in rows whose values turn out to be equal.
        equal_T = _equal_rows(x_TD, y_TD) if self._expect_equal else None
        if equal_T is not None and equal_T.any():
            self._count_in_equal_rows(rows[equal_T], x_TD[equal_T])
            if equal_T.all():
                return
            rows, x_TD, y_TD = rows[~equal_T], x_TD[~equal_T], y_TD[~equal_T]
        self._expect_equal = False
        self._equal[rows] = False
        if np.float64 in (x_TD.dtype, y_TD.dtype):
            self._measure_exactly(rows, x_TD, y_TD)
        else:
            self._measure(rows, x_TD, y_TD)

    def _count_in_equal_rows(self, rows: np.ndarray, x_TD: np.ndarray) -> None:
        suspect_T = _may_hold_nonfinite(x_TD)
        if suspect_T.any():
            counts = nonfinite_counts(x_TD[suspect_T])
            self._nonfinite_a[rows[suspect_T]] = counts
            self._nonfinite_b[rows[suspect_T]] = counts
            # A vector with no finite element has no direction.
            empty = rows[suspect_T][counts == x_TD.shape[1]]
            self._xx[empty] = self._yy[empty] = np.nan

    def _measure(self, rows: np.ndarray, x_TD: np.ndarray, y_TD: np.ndarray) -> None:
        work = workspace()
        with np.errstate(all="ignore"):
            x, y = work.float32("x", x_TD), work.float32("y", y_TD)
            d = np.subtract(x, y, out=work.array("d", x.shape, np.float32))
            dd, xx, yy = np.vecdot(d, d), np.vecdot(x, x), np.vecdot(y, y)
            max_abs = np.maximum(d.max(axis=1), -d.min(axis=1))
            # A comparison with NaN is false, so NaN and Inf land here too.
            smallest = np.minimum(np.minimum(dd, xx), yy)
            unsafe_T = ~((smallest >= _SMALLEST_SQUARE) & np.isfinite(dd + xx + yy))
        self._dd[rows], self._xx[rows], self._yy[rows] = dd, xx, yy
        self._max_abs[rows] = max_abs
        self._max_ulp[rows] = _max_ulp(work, x_TD, y_TD, is_close=bool(max_abs.max() < 2))
        # Squares vanish before differences do, and NaN is never equal to itself: all are in here.
        if unsafe_T.any():
            same_T = np.zeros(len(rows), np.bool_)
            same_T[unsafe_T] = _equal_rows(x_TD[unsafe_T], y_TD[unsafe_T])
            if same_T.any():
                self._expect_equal = True
                self._equal[rows[same_T]] = True
                self._dd[rows[same_T]] = 0
                self._xx[rows[same_T]] = self._yy[rows[same_T]] = 1
                self._count_in_equal_rows(rows[same_T], x_TD[same_T])
                unsafe_T &= ~same_T
        if unsafe_T.any():
            self._measure_exactly(rows[unsafe_T], x_TD[unsafe_T], y_TD[unsafe_T])

    def _measure_exactly(self, rows: np.ndarray, x_TD: np.ndarray, y_TD: np.ndarray) -> None:
        self._exact.append((rows, measure_exactly(x_TD, y_TD)))

    def finish(self) -> RowMetrics:
        """The metrics of all rows; those never added read as equal."""
        dd, xx, yy = (sums.astype(np.float64) for sums in (self._dd, self._xx, self._yy))
        with np.errstate(all="ignore"):
            # sum(xy) = (xx + yy - dd) / 2
            xy = 0.5 * (xx + yy - dd)
            whole = RowMetrics(
                max_abs=self._max_abs,
                rel_l2=np.where(dd == 0, 0.0, np.sqrt(dd / yy)).astype(np.float32),
                cosine=np.clip(xy / (np.sqrt(xx) * np.sqrt(yy)), -1, 1).astype(np.float32),
                scale=(xy / yy).astype(np.float32),
                bit_equal=self._equal,
                nonfinite_a=self._nonfinite_a,
                nonfinite_b=self._nonfinite_b,
                max_ulp=self._max_ulp,
                l2=np.sqrt(dd).astype(np.float32),
            )
        for rows, part in self._exact:
            for name, target, values in zip(RowMetrics._fields, whole, part, strict=True):
                if name != "bit_equal":
                    target[rows] = values
        return whole


def measure(x_TD: np.ndarray, y_TD: np.ndarray) -> RowMetrics:
    """Metrics of each row of x against the same row of y; shapes equal, float types may differ."""
    whole = Accumulator(len(x_TD))
    whole.add(np.arange(len(x_TD)), x_TD, y_TD)
    return whole.finish()


def _equal_rows(x_TD: np.ndarray, y_TD: np.ndarray) -> np.ndarray:
    if x_TD.dtype != y_TD.dtype:
        wide = np.float64 in (x_TD.dtype, y_TD.dtype)
        x_TD, y_TD = _exact(x_TD, wide=wide), _exact(y_TD, wide=wide)
    x_bits, y_bits = row_words(x_TD), row_words(y_TD)
    differ_TD = workspace().array("d", x_bits.shape, np.bool_)
    np.not_equal(x_bits, y_bits, out=differ_TD)
    differ_T: np.ndarray = np.logical_or.reduce(differ_TD, axis=1)
    return ~differ_T


def _exact(values: np.ndarray, *, wide: bool) -> np.ndarray:
    exact: np.ndarray = values.astype(np.float64) if wide else to_float32(values)
    return exact


def _may_hold_nonfinite(values_TD: np.ndarray) -> np.ndarray:
    """Rows whose largest magnitude, read as bits, has every exponent bit set."""
    if values_TD.dtype.name == "bfloat16":
        magnitude_TD = workspace().array("d", values_TD.shape, np.uint16)
        np.bitwise_and(values_TD.view(np.uint16), np.uint16(0x7FFF), out=magnitude_TD)
        largest_T: np.ndarray = magnitude_TD.max(axis=1)
        return largest_T >= 0x7F80
    return nonfinite_counts(values_TD) > 0


def _max_ulp(work: Workspace, x_TD: np.ndarray, y_TD: np.ndarray, *, is_close: bool) -> np.ndarray:
    if x_TD.dtype != y_TD.dtype:
        dtype = numpy_dtype(coarser(x_TD.dtype.name, y_TD.dtype.name))
        with np.errstate(all="ignore"):
            x_TD, y_TD = x_TD.astype(dtype), y_TD.astype(dtype)
        # Rounding to the coarser type may have moved them further apart.
        is_close = False
    x_TD, y_TD = np.ascontiguousarray(x_TD), np.ascontiguousarray(y_TD)
    return work.max_ulp(x_TD, y_TD, is_close=is_close)
