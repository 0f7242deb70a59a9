"""ULP distance: hand-worked, and against its definition for every pair of 8-bit floats."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.strategies import FLOAT_DTYPES, finite_floats
from workbench.comparison.ulp import ordered_bits, ulp_distance
from workbench.comparison.workspace import Workspace


def distance(x: float, y: float, dtype: type) -> int:
    return int(ulp_distance(np.array([x], dtype), np.array([y], dtype))[0])


@pytest.mark.parametrize(
    ("x", "y", "dtype", "expected"),
    [
        (1.0, 1.0, np.float32, 0),
        (1.0, 1.0 + 2**-23, np.float32, 1),
        (1.0, 1.0 - 2**-24, np.float32, 1),
        (1.0, 2.0, np.float32, 2**23),
        (1.0, 1.0 + 2**-7, ml_dtypes.bfloat16, 1),
        (-1.0, -1.0 - 2**-7, ml_dtypes.bfloat16, 1),
        (1.0, 1.0 + 2**-10, np.float16, 1),
        (0.0, -0.0, np.float32, 1),
        (0.0, 2.0**-149, np.float32, 1),
        (-(2.0**-149), 2.0**-149, np.float32, 3),
        (np.inf, np.finfo(np.float32).max, np.float32, 1),
        (np.inf, -np.inf, np.float32, 2 * 0x7F800000 + 1),
        (1.0, 1.0 + 2**-52, np.float64, 1),
    ],
)
def test_distance_counts_floats_between(x: float, y: float, dtype: type, expected: int) -> None:
    assert distance(x, y, dtype) == expected


def test_every_pair_of_eight_bit_floats_agrees_with_their_order() -> None:
    every = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn)
    numbers = every[~np.isnan(every)]

    def order(value: np.generic) -> tuple[float, bool]:
        return float(value), not np.signbit(value)

    ranks = {order(value): rank for rank, value in enumerate(sorted(numbers, key=order))}
    x, y = (grid.ravel() for grid in np.meshgrid(numbers, numbers))
    expected = [abs(ranks[order(p)] - ranks[order(q)]) for p, q in zip(x, y, strict=True)]
    assert ulp_distance(x, y).tolist() == expected


@given(st.data(), st.sampled_from(FLOAT_DTYPES))
def test_order_of_bits_is_order_of_numbers(data: st.DataObject, dtype: np.dtype) -> None:
    values = data.draw(arrays(np.float64, 2, elements=finite_floats(dtype))).astype(dtype)
    bits = ordered_bits(values)
    if values[0] != values[1]:
        assert (bits[0] < bits[1]) == bool(values[0] < values[1])


@given(st.data(), st.sampled_from(FLOAT_DTYPES))
def test_distance_is_symmetric_and_zero_only_for_equal_bits(
    data: st.DataObject, dtype: np.dtype
) -> None:
    x, y = data.draw(arrays(np.float64, (2, 5), elements=finite_floats(dtype))).astype(dtype)
    there, back = ulp_distance(x, y), ulp_distance(y, x)
    assert there.tolist() == back.tolist()
    width = x.dtype.itemsize
    same = x.view(f"u{width}") == y.view(f"u{width}")
    assert ((there == 0) == same).all()


@given(st.data(), st.sampled_from(FLOAT_DTYPES))
def test_work_arrays_give_the_same_distance(data: st.DataObject, dtype: np.dtype) -> None:
    x, y = data.draw(arrays(np.float64, (2, 3, 4), elements=finite_floats(dtype))).astype(dtype)
    expected = ulp_distance(x, y).max(axis=1)
    assert Workspace().max_ulp(x, y).tolist() == expected.tolist()


@given(st.data(), st.sampled_from(FLOAT_DTYPES[:3]))
def test_one_subtraction_is_enough_for_numbers_less_than_two_apart(
    data: st.DataObject, dtype: np.dtype
) -> None:
    near = st.floats(-1e3, 1e3, width=16)
    x = data.draw(arrays(np.float64, (3, 4), elements=near))
    gap = data.draw(arrays(np.float64, (3, 4), elements=st.floats(-1.99, 1.99)))
    x, y = x.astype(dtype), (x + gap).astype(dtype)
    assume((abs(x.astype(np.float64) - y.astype(np.float64)) < 2).all())
    found = Workspace().max_ulp(x, y, is_close=True)
    assert found.tolist() == ulp_distance(x, y).max(axis=1).tolist()


def test_just_below_two_apart_and_across_zero_still_fits() -> None:
    below = np.array([[np.nextafter(np.float32(1), np.float32(0))]], np.float32)
    found = Workspace().max_ulp(below, -below, is_close=True)
    assert found.tolist() == ulp_distance(below, -below).max(axis=1).tolist()
