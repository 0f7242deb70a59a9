"""Work arrays of one thread, kept from block to block.

A fresh array of a block's size goes back to the system when it dies and is asked for again page by
page: that costs three times what the arithmetic on it does.

Axis legend: T row of a block, D element of the row.
"""

from __future__ import annotations

import math
import threading
from typing import Final

import numpy as np

from workbench.comparison.ulp import SIGNED, UNSIGNED

_local: Final = threading.local()
_SHAPES: Final = 64
_MAGNITUDE: Final = {signed: signed(np.iinfo(signed).max) for signed in SIGNED.values()}


def row_words(values_TD: np.ndarray) -> np.ndarray:
    """Rows as the widest unsigned words that divide them."""
    row_bytes = values_TD.shape[1] * values_TD.dtype.itemsize
    width = next(w for w in (8, 4, 2, 1) if row_bytes % w == 0)
    words: np.ndarray = np.ascontiguousarray(values_TD).view(UNSIGNED[width])
    return words


class Workspace:
    """Named scratch arrays that grow to the largest block seen; contents are undefined."""

    def __init__(self) -> None:
        self._kept: dict[str, np.ndarray] = {}
        self._shaped: dict[tuple[str, tuple[int, ...], np.dtype | type], np.ndarray] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: np.dtype | type) -> np.ndarray:
        """Scratch array of a shape; the same name gives the same memory, whatever the type."""
        key = (name, shape, dtype)
        found = self._shaped.get(key)
        if found is None:
            kind = np.dtype(dtype)
            size = math.prod(shape) * kind.itemsize
            kept = self._kept.get(name)
            if kept is None or kept.size < size:
                kept = self._kept[name] = np.empty(size, np.uint8)
                self._shaped.clear()
            if len(self._shaped) > _SHAPES:
                self._shaped.clear()
            found = self._shaped[key] = kept[:size].view(kind).reshape(shape)
        return found

    def take(self, name: str, values_TD: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Rows of an array, copied into scratch memory."""
        words_TD = row_words(values_TD)
        out_TD = self.array(name, (len(rows), words_TD.shape[1]), words_TD.dtype.type)
        # Any other mode than `raise` writes straight into `out`; the rows are known to exist.
        np.take(words_TD, rows, axis=0, out=out_TD, mode="clip")
        taken_TD: np.ndarray = out_TD.view(values_TD.dtype)
        return taken_TD

    def float32(self, name: str, values_TD: np.ndarray) -> np.ndarray:
        """Exact float32 of a float type of at most 32 bits; float32 passes through."""
        if values_TD.dtype == np.float32:
            return values_TD
        if values_TD.dtype.name == "bfloat16":
            bits_TD = self.array(name, values_TD.shape, np.uint32)
            np.copyto(bits_TD, values_TD.view(np.uint16))
            np.left_shift(bits_TD, 16, out=bits_TD)
            return bits_TD.view(np.float32)
        wide_TD = self.array(name, values_TD.shape, np.float32)
        np.copyto(wide_TD, values_TD)
        return wide_TD

    def max_ulp(self, x_TD: np.ndarray, y_TD: np.ndarray, *, is_close: bool = False) -> np.ndarray:
        """`ulp.ulp_distance`, its largest per row, for two contiguous arrays of one float type.

        Uses the memory of "x", "y" and "d", so that a block needs no more room in the caches.

        Args:
            x_TD: One side.
            y_TD: The other.
            is_close: Whether no two elements differ by 2 or more. 2.0 lies in the middle of the
                positive numbers, so elements that far apart are needed for a distance that the
                signed type cannot hold; without them one subtraction is enough.
        """
        width = x_TD.dtype.itemsize
        a_TD = self._ordered_bits("x", x_TD)
        b_TD = self._ordered_bits("y", y_TD)
        high_TD = self.array("d", x_TD.shape, SIGNED[width])
        if is_close:
            np.subtract(a_TD, b_TD, out=high_TD)
            least_T = high_TD.min(axis=1).astype(np.int64)
            distance_T: np.ndarray = np.maximum(high_TD.max(axis=1), -least_T)
            return distance_T
        np.maximum(a_TD, b_TD, out=high_TD)
        np.minimum(a_TD, b_TD, out=a_TD)
        np.subtract(high_TD, a_TD, out=high_TD)
        largest_T: np.ndarray = high_TD.view(UNSIGNED[width]).max(axis=1)
        return largest_T

    def _ordered_bits(self, name: str, values_TD: np.ndarray) -> np.ndarray:
        signed = SIGNED[values_TD.dtype.itemsize]
        bits_TD = values_TD.view(signed)
        sign_TD = self.array("d", bits_TD.shape, signed)
        out_TD = self.array(name, bits_TD.shape, signed)
        np.right_shift(bits_TD, 8 * bits_TD.dtype.itemsize - 1, out=sign_TD)
        np.bitwise_and(sign_TD, _MAGNITUDE[signed], out=sign_TD)
        np.bitwise_xor(bits_TD, sign_TD, out=out_TD)
        return out_TD


def workspace() -> Workspace:
    """This thread's work arrays."""
    found: Workspace | None = getattr(_local, "workspace", None)
    if found is None:
        found = _local.workspace = Workspace()
    return found
