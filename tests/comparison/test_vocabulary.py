"""Exact divergences of full distributions."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from workbench.comparison.vocabulary import compare_distributions


def logits(*p: float) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(np.array([p], np.float32))


def test_by_hand() -> None:
    found = compare_distributions(logits(0.5, 0.5), logits(0.75, 0.25))
    assert found.kl[0] == pytest.approx(0.5 * math.log(2 / 3) + 0.5 * math.log(2), rel=1e-6)
    assert found.kl_reverse[0] == pytest.approx(
        0.75 * math.log(1.5) + 0.25 * math.log(0.5), rel=1e-6
    )
    assert found.tv[0] == pytest.approx(0.25, rel=1e-6)
    assert found.entropy_a[0] == pytest.approx(math.log(2), rel=1e-6)
    assert found.argmax_equal[0]


def test_equal_logits_have_zero_divergence() -> None:
    values = np.random.default_rng(0).standard_normal((3, 50)).astype(ml_dtypes.bfloat16)
    found = compare_distributions(values, values)
    assert found.kl.tolist() == [0, 0, 0]
    assert found.tv.tolist() == [0, 0, 0]


def test_a_shift_of_all_logits_changes_nothing_but_rounding() -> None:
    values = np.random.default_rng(0).standard_normal((1, 50)).astype(np.float32)
    assert compare_distributions(values, values + np.float32(8)).kl[0] <= 1e-12


def test_a_masked_token_counts_nothing_on_both_sides() -> None:
    found = compare_distributions(logits(0.5, 0.5, 0), logits(0.75, 0.25, 0))
    assert found.kl[0] == pytest.approx(0.5 * math.log(2 / 3) + 0.5 * math.log(2), rel=1e-6)


def test_a_token_that_b_excludes_is_infinitely_far() -> None:
    found = compare_distributions(logits(0.5, 0.5), logits(1, 0))
    assert found.kl[0] == np.inf
    assert found.kl_reverse[0] == pytest.approx(math.log(2), rel=1e-6)


def test_nan_logits_give_nan() -> None:
    values = np.array([[np.nan, 1]], np.float32)
    assert np.isnan(compare_distributions(values, logits(0.5, 0.5)).kl[0])


def test_ties_at_the_top_go_to_the_lowest_id() -> None:
    assert compare_distributions(logits(0.5, 0.5), logits(0.6, 0.4)).argmax_equal[0]
    assert not compare_distributions(logits(0.5, 0.5), logits(0.4, 0.6)).argmax_equal[0]
