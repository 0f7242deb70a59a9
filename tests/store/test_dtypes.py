"""Element types: roundoff by definition, and exact widening."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from workbench.store.dtypes import (
    DTYPE_BY_NAME,
    NUMPY_TO_SAFETENSORS,
    SAFETENSORS_TO_NUMPY,
    coarser,
    is_float,
    to_float32,
    unit_roundoff,
)

FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


@pytest.mark.parametrize("name", FLOATS)
def test_roundoff_is_half_the_step_above_one(name: str) -> None:
    dtype = DTYPE_BY_NAME[name]
    step = float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]
    assert unit_roundoff(name) == step / 2
    assert is_float(dtype)


def test_integers_and_unknown_types_do_not_round() -> None:
    assert unit_roundoff("int32") == unit_roundoff("strange") == 0.0
    assert not is_float(np.dtype(np.int32))
    assert coarser("float32", "bfloat16") == coarser("bfloat16", "float32") == "bfloat16"
    assert coarser("float16", "float16") == "float16"


def test_names_of_types_map_both_ways() -> None:
    assert {v: k for k, v in NUMPY_TO_SAFETENSORS.items()} == SAFETENSORS_TO_NUMPY


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_every_sixteen_bit_float_widens_exactly(name: str) -> None:
    every = np.arange(2**16, dtype=np.uint16).view(DTYPE_BY_NAME[name])
    found = to_float32(every)
    assert found.dtype == np.float32
    # Signalling NaN warn when they are widened.
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(found.astype(np.float64), every.astype(np.float64))


def test_float32_passes_through_without_a_copy() -> None:
    values = np.ones(3, np.float32)
    assert to_float32(values) is values
