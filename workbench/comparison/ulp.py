"""Distance between floats in units of the last place, from their stored bits. numpy only.

The bits of a float, read as sign and magnitude, count the floats of its type in order: neighbours
are 1 apart, -0 and +0 too, so any two that differ in bits are at least 1 apart. Inf is one step
beyond the largest finite number. NaN has no place on that line: callers leave such elements out.

"""

from __future__ import annotations

from typing import Final

import numpy as np

SIGNED: Final[dict[int, type[np.signedinteger]]] = {
    1: np.int8,
    2: np.int16,
    4: np.int32,
    8: np.int64,
}
UNSIGNED: Final[dict[int, type[np.unsignedinteger]]] = {
    1: np.uint8,
    2: np.uint16,
    4: np.uint32,
    8: np.uint64,
}


def ordered_bits(values: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Signed integers that ascend with the floats, one step per float: 0 for +0, -1 for -0.

    Args:
        values: Any float type, contiguous along its last axis.
        out: Array of the same shape and the signed integer type of the same width.
    """
    signed = SIGNED[values.dtype.itemsize]
    width = 8 * values.dtype.itemsize
    bits = values.view(signed)
    sign = np.right_shift(bits, width - 1)
    # Where the sign is set, the magnitude's bits are turned round.
    np.bitwise_and(sign, np.iinfo(signed).max, out=sign)
    found: np.ndarray = np.bitwise_xor(bits, sign, out=out)
    return found


def ulp_distance(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Elementwise distance of two arrays of one float type, unsigned, of the type's width.

    >>> int(ulp_distance(np.array([1.0]), np.array([1.0 + 2**-52]))[0])
    1
    """
    a, b = ordered_bits(x), ordered_bits(y)
    # The line is twice as long as the signed type, so the difference wraps into the unsigned one.
    high = np.maximum(a, b)
    low = np.minimum(a, b, out=a)
    np.subtract(high, low, out=high)
    distance: np.ndarray = high.view(UNSIGNED[x.dtype.itemsize])
    return distance
