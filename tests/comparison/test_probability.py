"""The sampled-token family, number by number."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.comparison.probability import (
    ess_fraction,
    pearson,
    row_terms,
    sampled_rows,
    summarise,
)

A = np.array([-1.0, -2.0, -0.5])
B = np.array([-1.5, -1.0, -0.5])
REQUESTS = np.array([0, 0, 1])
ALL = np.ones(3, np.bool_)


def test_terms_by_hand() -> None:
    found = row_terms(A, B)
    assert found.dlogp.tolist() == [0.5, -1.0, 0.0]
    assert found.k1.tolist() == [0.5, -1.0, 0.0]
    assert found.k2.tolist() == [0.125, 0.5, 0.0]
    assert found.ratio.tolist() == pytest.approx([math.exp(-0.5), math.e, 1])
    # k3 = r - 1 - ln r with r = p_B / p_A
    assert found.k3.tolist() == pytest.approx([math.exp(-0.5) - 0.5, math.e - 2, 0])
    assert found.reverse_k3.tolist() == pytest.approx([math.exp(0.5) - 1.5, math.exp(-1), 0])


def test_means_by_hand() -> None:
    found = summarise(A, B, ALL, REQUESTS)
    assert found["n"] == 3
    assert found["k1"] == pytest.approx(-0.5 / 3)
    assert found["k2"] == pytest.approx(0.625 / 3)
    assert found["abs_dlogp"]["mean"] == pytest.approx(0.5)
    assert found["abs_dlogp"]["max"] == 1.0
    assert found["abs_dprob"]["max"] == pytest.approx(math.exp(-1) - math.exp(-2))
    assert found["mult_prob_error"] == pytest.approx((math.exp(0.5) + math.e + 1) / 3)
    assert found["extreme_fraction"] == pytest.approx(1 / 3)
    # Requests: mean dlogp -0.25 over two tokens, 0 over one.
    assert found["log_ppl_gap"]["mean"] == pytest.approx(0.125)
    assert found["log_ppl_gap"]["signed_mean"] == pytest.approx(-0.125)
    r = [math.exp(-0.5), math.e, 1]
    assert found["ratio"]["mean"] == pytest.approx(sum(r) / 3)
    assert found["ess_fraction"] == pytest.approx(sum(r) ** 2 / (3 * sum(x * x for x in r)))


def test_equal_sides_give_zero_and_one() -> None:
    found = summarise(A, A, ALL, REQUESTS)
    assert [found[k] for k in ("k1", "k2", "k3", "reverse_k3")] == [0, 0, 0, 0]
    assert (found["mult_prob_error"], found["ess_fraction"], found["pearson"]) == (1, 1, 1)


def test_no_row_gives_none_not_zero() -> None:
    found = summarise(A, B, np.zeros(3, np.bool_), REQUESTS)
    assert found["n"] == 0
    assert found["k3"] is None
    assert found["abs_dlogp"] == {"mean": None, "max": None, "p95": None, "p99": None}
    assert (found["pearson"], found["ess_fraction"]) == (None, None)


def test_missing_and_infinite_are_counted_not_averaged() -> None:
    a = np.array([-1.0, np.nan, -np.inf])
    found = summarise(a, B, ALL, REQUESTS)
    assert (found["n"], found["nonfinite"]) == (1, 2)
    assert found["k1"] == 0.5


def test_huge_gaps_are_clamped_and_counted() -> None:
    found = summarise(np.array([-1.0, -1.0]), np.array([-50.0, -2.0]), ALL[:2], REQUESTS[:2])
    assert found["overflow"] == 1
    assert found["abs_dlogp"]["max"] == 49
    # exp is clamped at 20; k1 is not.
    assert found["reverse_k3"] == pytest.approx((math.exp(20) - 21 + math.exp(1) - 2) / 2)
    assert found["k1"] == pytest.approx(25)


def test_small_gaps_keep_their_digits() -> None:
    gap = 1e-9
    found = row_terms(np.array([-1.0]), np.array([-1.0 - gap]))
    assert found.k3[0] == pytest.approx(0.5 * gap**2, rel=1e-6)


def test_estimators_average_over_sampled_tokens_where_there_are_any() -> None:
    both = np.array([True, True, False])
    rows, over = sampled_rows(np.array([False, True, True]), both)
    assert (rows.tolist(), over) == ([False, True, False], "tokens sampled from A")
    rows, over = sampled_rows(np.zeros(3, np.bool_), both)
    assert rows.tolist() == both.tolist()
    assert over == "all rows with both log-probabilities"


def test_correlation_needs_two_rows_that_vary() -> None:
    assert pearson(np.array([0.1]), np.array([0.2])) is None
    assert pearson(np.array([0.1, 0.1]), np.array([0.2, 0.3])) is None
    assert pearson(np.array([0.1, 0.3]), np.array([0.9, 0.1])) == pytest.approx(-1)
    assert ess_fraction(np.array([1.0, 0.0])) == 0.5


@given(st.lists(st.tuples(st.floats(-30, 0), st.floats(-30, 0)), min_size=1, max_size=20))
def test_k3_is_never_negative_and_k2_is_symmetric(pairs: list[tuple[float, float]]) -> None:
    a, b = (np.array(side) for side in zip(*pairs, strict=True))
    there, back = row_terms(a, b), row_terms(b, a)
    assert (there.k3 >= 0).all()
    assert there.k2.tolist() == back.k2.tolist()
    assert there.k3.tolist() == back.reverse_k3.tolist()
