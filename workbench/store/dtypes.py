"""Element types of recorded tensors: names, numpy types and rounding units. No torch.

`bfloat16` and the float8 types come from ml_dtypes. Unit roundoff `u` is half the distance between
1 and the next number: |round(x) - x| <= u * |x| for round to nearest.
"""

from __future__ import annotations

from typing import Final

import ml_dtypes
import numpy as np

SAFETENSORS_TO_NUMPY: Final[dict[str, np.dtype]] = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "I64": np.dtype(np.int64),
    "I32": np.dtype(np.int32),
    "I16": np.dtype(np.int16),
    "I8": np.dtype(np.int8),
    "U64": np.dtype(np.uint64),
    "U32": np.dtype(np.uint32),
    "U16": np.dtype(np.uint16),
    "U8": np.dtype(np.uint8),
    "BOOL": np.dtype(np.bool_),
}
NUMPY_TO_SAFETENSORS: Final[dict[np.dtype, str]] = {v: k for k, v in SAFETENSORS_TO_NUMPY.items()}
DTYPE_BY_NAME: Final[dict[str, np.dtype]] = {d.name: d for d in SAFETENSORS_TO_NUMPY.values()}

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
        bits = values.view(np.uint16).astype(np.uint32)
        np.left_shift(bits, 16, out=bits)
        return bits.view(np.float32)
    return values if values.dtype == np.float32 else values.astype(np.float32)
