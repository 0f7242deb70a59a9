"""Hypothesis strategies that several tests share."""

from __future__ import annotations

from typing import Final

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

FLOAT_DTYPES: Final = tuple(
    np.dtype(kind) for kind in (np.float32, np.float16, ml_dtypes.bfloat16, np.float64)
)


def finite_floats(dtype: np.dtype) -> st.SearchStrategy[float]:
    """Numbers whose rounding to `dtype` is finite, zeros and subnormals included."""
    largest = float(ml_dtypes.finfo(dtype).max) / 2  # type: ignore[no-untyped-call]
    return st.floats(-largest, largest, allow_nan=False, allow_infinity=False)
