"""Per-row metrics: by hand, against float64, and at the edges (NaN, Inf, zeros, extremes)."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.strategies import FLOAT_DTYPES
from workbench.comparison.exact import RowMetrics
from workbench.comparison.metrics import Accumulator, measure

BF16 = ml_dtypes.bfloat16


def one(x: list[float], y: list[float], dtype: type = np.float32) -> RowMetrics:
    return measure(np.array([x], dtype), np.array([y], dtype))


def test_hand_worked_row() -> None:
    # d = (1, 0), ‖d‖ = 1, ‖x‖ = 5, ‖y‖ = sqrt(4 + 16) = sqrt(20), xy = 6 + 16 = 22
    found = one([3, 4], [2, 4])
    assert found.max_abs[0] == 1
    assert found.l2[0] == 1
    assert found.rel_l2[0] == pytest.approx(1 / math.sqrt(20), rel=1e-6)
    assert found.cosine[0] == pytest.approx(22 / (5 * math.sqrt(20)), rel=1e-6)
    assert found.scale[0] == pytest.approx(22 / 20, rel=1e-6)
    assert not found.bit_equal[0]
    assert found.max_ulp[0] == 2**22
    assert (found.nonfinite_a[0], found.nonfinite_b[0]) == (0, 0)


def test_equal_rows_are_equal_in_every_metric() -> None:
    found = one([1, -2, 0], [1, -2, 0], BF16)
    assert found.bit_equal[0]
    assert [found.max_abs[0], found.rel_l2[0], found.l2[0]] == [0, 0, 0]
    assert [found.cosine[0], found.scale[0], found.max_ulp[0]] == [1, 1, 0]


def test_largest_difference_may_be_negative() -> None:
    assert one([1, 0], [1.25, 7])[0][0] == 7


def test_zero_against_zero_of_other_sign_differs_in_bits_alone() -> None:
    found = one([0.0, 0.0], [-0.0, 0.0])
    assert not found.bit_equal[0]
    assert [found.rel_l2[0], found.cosine[0], found.max_ulp[0]] == [0, 1, 1]
    assert np.isnan(found.scale[0])


def test_something_against_zero_is_infinitely_off() -> None:
    found = one([1, 2], [0, 0])
    assert found.rel_l2[0] == np.inf
    assert found.cosine[0] == 0
    assert np.isnan(found.scale[0])
    assert one([0, 0], [1, 2]).rel_l2[0] == 1


def test_the_same_nan_on_both_sides_is_equal_and_counted() -> None:
    found = one([np.nan, 1], [np.nan, 1])
    assert found.bit_equal[0]
    assert found.rel_l2[0] == 0
    assert (found.nonfinite_a[0], found.nonfinite_b[0]) == (1, 1)


def test_nan_on_one_side_is_infinitely_off_and_counted() -> None:
    found = one([np.nan, 1, np.inf], [3, 1, 2], BF16)
    assert (found.nonfinite_a[0], found.nonfinite_b[0]) == (2, 0)
    assert found.rel_l2[0] == np.inf
    assert found.max_abs[0] == np.inf
    # The finite element agrees.
    assert (found.cosine[0], found.max_ulp[0]) == (1, 0)


def test_infinities_of_one_sign_agree_and_of_two_do_not() -> None:
    assert one([np.inf, 1], [np.inf, 2]).rel_l2[0] == pytest.approx(0.5)
    assert one([np.inf, 1], [-np.inf, 1]).rel_l2[0] == np.inf


def test_nan_of_other_bits_differs_in_bits_but_not_in_value() -> None:
    x = np.array([[0x7FC00000, 0x3F800000]], np.uint32).view(np.float32)
    y = np.array([[0x7FC00001, 0x3F800000]], np.uint32).view(np.float32)
    found = measure(x, y)
    assert not found.bit_equal[0]
    assert found.rel_l2[0] == 0


@pytest.mark.parametrize("dtype", [np.float32, BF16, np.float16])
def test_a_signalling_nan_is_a_nan_like_any_other(dtype: type) -> None:
    bits = {4: 0x7F800001, 2: 0x7F81 if dtype is BF16 else 0x7C01}[np.dtype(dtype).itemsize]
    word = {4: np.uint32, 2: np.uint16}[np.dtype(dtype).itemsize]
    x: np.ndarray = np.ones((1, 4), dtype)
    x.view(word)[0, 1] = bits
    found = measure(x, np.full((1, 4), 2, dtype))
    assert (found.nonfinite_a[0], found.rel_l2[0]) == (1, np.inf)


def test_a_row_without_a_finite_element_has_no_direction() -> None:
    for y in ([np.nan, np.nan], [np.nan, np.inf]):
        found = one([np.nan, np.nan], y)
        assert np.isnan(found.cosine[0])
        assert np.isnan(found.scale[0])


@pytest.mark.parametrize("factor", [1e30, 1e-30, 1e-42])
def test_extreme_sizes_neither_overflow_nor_vanish(factor: float) -> None:
    found = one([3 * factor, 4 * factor], [2 * factor, 4 * factor])
    # Near 1e-42 float32 itself holds only about 9 bits.
    assert found.rel_l2[0] == pytest.approx(1 / math.sqrt(20), rel=3e-3)
    assert found.cosine[0] == pytest.approx(22 / (5 * math.sqrt(20)), rel=3e-3)


def test_float64_keeps_differences_that_float32_cannot_hold() -> None:
    found = one([1.0, 1e300], [1.0, 1e300 * (1 + 2**-52)], np.float64)
    assert found.rel_l2[0] == pytest.approx(2**-52, rel=1e-3)
    assert found.max_ulp[0] == 1


def test_other_types_compare_by_value_and_count_in_the_coarser() -> None:
    x: np.ndarray = np.array([[1.0, 2.0]], BF16)
    assert measure(x, x.astype(np.float32)).bit_equal[0]
    y = np.array([[1.0 + 2**-7, 2.0 + 2**-10]], np.float32)
    found = measure(x, y)
    assert not found.bit_equal[0]
    assert found.max_ulp[0] == 1
    assert found.max_abs[0] == np.float32(2**-7)


def test_no_rows_and_no_elements() -> None:
    assert len(measure(np.zeros((0, 4), np.float32), np.zeros((0, 4), np.float32)).rel_l2) == 0
    assert measure(np.zeros((2, 0), BF16), np.zeros((2, 0), BF16)).bit_equal.all()


def test_blocks_add_up_to_the_whole() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((30, 16)).astype(BF16)
    y = x.copy()
    y[::3] *= BF16(1.5)
    y[7, 2] = np.nan
    whole, blocks = measure(x, y), Accumulator(30)
    for rows in np.array_split(rng.permutation(30), 7):
        blocks.add(rows, x[rows], y[rows])
    for name, expected, found in zip(RowMetrics._fields, whole, blocks.finish(), strict=True):
        np.testing.assert_array_equal(found, expected, name)


@given(st.data(), st.sampled_from(FLOAT_DTYPES))
def test_agrees_with_float64_to_float32_rounding(data: st.DataObject, dtype: np.dtype) -> None:
    elements = st.floats(-100, 100).map(lambda v: round(v, 3))
    x, y = data.draw(arrays(np.float64, (2, 3, 7), elements=elements)).astype(dtype)
    found = measure(x, y)
    wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
    d = np.linalg.norm(wide_x - wide_y, axis=1)
    norm = np.linalg.norm(wide_y, axis=1)
    # Sums of 7 float32 products: 7 roundings and the square root, in units of 2**-24.
    tolerance = 16 * 2.0**-24
    np.testing.assert_allclose(found.l2, d, rtol=tolerance, atol=1e-30)
    with np.errstate(all="ignore"):
        expected = np.where(d == 0, 0, d / norm)
    np.testing.assert_allclose(found.rel_l2, expected, rtol=tolerance, atol=1e-30)
    assert (found.bit_equal == (x.view(np.uint8) == y.view(np.uint8)).reshape(3, -1).all(1)).all()
    np.testing.assert_allclose(
        found.max_abs, np.abs(wide_x - wide_y).max(axis=1), rtol=tolerance, atol=1e-30
    )


@given(st.data())
def test_scale_and_cosine_stay_in_their_bounds(data: st.DataObject) -> None:
    # A quotient of extremes has no float32; that is Inf, and not what this is about.
    elements = st.floats(-1e3, 1e3).map(lambda v: round(v, 3))
    x, y = data.draw(arrays(np.float64, (2, 4, 5), elements=elements)).astype(np.float32)
    found = measure(x, y)
    assert (np.abs(found.cosine) <= 1).all()
    wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
    nonzero = (y != 0).any(axis=1)
    exact = (wide_x * wide_y).sum(1)[nonzero] / (wide_y**2).sum(1)[nonzero]
    # Against subnormal numbers the factor itself can be too large for float32.
    fits = np.abs(exact) < np.finfo(np.float32).max / 2
    assert np.isfinite(found.scale[nonzero][fits]).all()


def test_a_common_factor_is_the_scale() -> None:
    y = np.random.default_rng(0).standard_normal((5, 64)).astype(np.float32)
    found = measure(y / np.float32(1.02), y)
    np.testing.assert_allclose(found.scale, 1 / 1.02, rtol=1e-6)
