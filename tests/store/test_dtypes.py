"""Element types: roundoff by definition, and exact widening."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from workbench.store.dtypes import (
    DTYPE_NAMES,
    bits_dtype,
    coarser,
    decoded,
    is_float,
    is_storable,
    numpy_dtype,
    to_float32,
    unit_roundoff,
)

FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


@pytest.mark.parametrize("name", FLOATS)
def test_roundoff_is_half_the_step_above_one(name: str) -> None:
    dtype = numpy_dtype(name)
    step = float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]
    assert unit_roundoff(name) == step / 2
    assert is_float(dtype)


def test_integers_and_unknown_types_do_not_round() -> None:
    assert unit_roundoff("int32") == unit_roundoff("strange") == 0.0
    assert not is_float(np.dtype(np.int32))
    assert coarser("float32", "bfloat16") == coarser("bfloat16", "float32") == "bfloat16"
    assert coarser("float16", "float16") == "float16"


@pytest.mark.parametrize("name", sorted(DTYPE_NAMES))
def test_every_type_goes_by_the_name_that_numpy_gives_it(name: str) -> None:
    dtype = numpy_dtype(name)
    assert dtype.name == name
    assert dtype.itemsize == bits_dtype(name).itemsize
    assert is_storable(dtype)


def test_what_a_file_cannot_hold_is_told() -> None:
    assert not is_storable(np.dtype(">f4"))
    assert not is_storable(np.dtype(np.complex64))
    with pytest.raises(KeyError):
        numpy_dtype("complex64")


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_every_sixteen_bit_float_widens_exactly(name: str) -> None:
    every = np.arange(2**16, dtype=np.uint16).view(numpy_dtype(name))
    found = to_float32(every)
    assert found.dtype == np.float32
    # Signalling NaN warn when they are widened.
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(found.astype(np.float64), every.astype(np.float64))


def test_float32_passes_through_without_a_copy() -> None:
    values = np.ones(3, np.float32)
    assert to_float32(values) is values


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_bits_that_numpy_has_no_type_for_are_decoded_exactly(name: str) -> None:
    integers = bits_dtype(name)
    every = np.arange(2 ** (8 * integers.itemsize)).astype(integers)
    found = decoded(every, name)
    assert found.dtype == np.float32
    with np.errstate(invalid="ignore"):
        expected = every.view(numpy_dtype(name)).astype(np.float32)
    np.testing.assert_array_equal(found, expected)


def test_what_numpy_knows_is_decoded_as_it_is() -> None:
    values = np.ones(3, np.float16)
    assert decoded(values, "float16") is values
