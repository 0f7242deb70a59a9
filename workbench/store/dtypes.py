"""Element types of recorded tensors: names, numpy types and rounding units. No torch.

Types go by name everywhere but in an array itself. `bfloat16` and the float8 types come from
ml_dtypes, which takes longer to import than a comparison to open: it is loaded when the first array
of such a type is made, and never for a number that is only shown. Unit roundoff `u` is half the
distance between 1 and the next number: |round(x) - x| <= u * |x| for round to nearest.
"""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import Final

import numpy as np

SAFETENSORS_TO_NAME: Final = MappingProxyType(
    {
        "F64": "float64",
        "F32": "float32",
        "F16": "float16",
        "BF16": "bfloat16",
        "F8_E4M3": "float8_e4m3fn",
        "F8_E5M2": "float8_e5m2",
        "I64": "int64",
        "I32": "int32",
        "I16": "int16",
        "I8": "int8",
        "U64": "uint64",
        "U32": "uint32",
        "U16": "uint16",
        "U8": "uint8",
        "BOOL": "bool",
    }
)
"""Element types by their code in a safetensors header."""

DTYPE_NAMES: Final = frozenset(SAFETENSORS_TO_NAME.values())

_BITS: Final = MappingProxyType(
    {"bfloat16": np.uint16, "float8_e4m3fn": np.uint8, "float8_e5m2": np.uint8}
)
"""Types that numpy does not know, and the integers of their width."""

_UNIT_ROUNDOFF: Final[dict[str, float]] = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
    "float8_e4m3fn": 2.0**-4,
    "float8_e5m2": 2.0**-3,
}


def unit_roundoff(dtype: str) -> float:
    """Unit roundoff of a float type by name; 0.0 for integers, which do not round.

    >>> unit_roundoff("bfloat16")
    0.00390625
    """
    return _UNIT_ROUNDOFF.get(dtype, 0.0)


@cache
def numpy_dtype(name: str) -> np.dtype:
    """The numpy type of a name, from ml_dtypes where numpy has none.

    Raises:
        KeyError: A name that is not one of `DTYPE_NAMES`.
    """
    if name not in DTYPE_NAMES:
        raise KeyError(name)
    if name not in _BITS:
        return np.dtype(name)
    import ml_dtypes

    found: np.dtype = np.dtype(getattr(ml_dtypes, name))
    return found


@cache
def bits_dtype(name: str) -> np.dtype:
    """A type of the same width that numpy itself knows: the integers where it lacks the floats."""
    return np.dtype(_BITS[name]) if name in _BITS else numpy_dtype(name)


def is_storable(dtype: np.dtype) -> bool:
    """Whether a chunk can hold arrays of this type: a known one, in this machine's byte order."""
    return dtype.name in DTYPE_NAMES and dtype.isnative


def coarser(dtype_a: str, dtype_b: str) -> str:
    """The type with the larger unit roundoff; the first when equal."""
    return dtype_a if unit_roundoff(dtype_a) >= unit_roundoff(dtype_b) else dtype_b


def is_float(dtype: np.dtype) -> bool:
    """Whether a numpy type is one of the float types above, ml_dtypes included."""
    return dtype.name in _UNIT_ROUNDOFF


def to_float32(values: np.ndarray) -> np.ndarray:
    """Exact float32 copy or view of a float16, bfloat16, float8 or float32 array.

    bfloat16 goes through a shift of its bits, several times faster than a cast.
    """
    if values.dtype.name == "bfloat16":
        return _widened(values.view(np.uint16))
    return values if values.dtype == np.float32 else values.astype(np.float32)


def decoded(stored: np.ndarray, name: str) -> np.ndarray:
    """Values that were read as `bits_dtype(name)`: float32, exact, where numpy lacks the type."""
    if name == "bfloat16":
        return _widened(stored)
    return to_float32(stored.view(numpy_dtype(name))) if name in _BITS else stored


def _widened(bits: np.ndarray) -> np.ndarray:
    """bfloat16 is the upper half of a float32."""
    words = bits.astype(np.uint32)
    np.left_shift(words, 16, out=words)
    return words.view(np.float32)
