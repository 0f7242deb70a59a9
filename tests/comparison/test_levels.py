"""Levels: one per decade, and nothing missing reads as equal."""

from __future__ import annotations

import numpy as np

from workbench.comparison.levels import numeric_levels, router_levels


def test_numeric_levels_by_decade() -> None:
    error = np.array([0, 0.5, 1, 1.5, 15, 150, 1500, 1e9, np.inf, np.nan], np.float32)
    assert numeric_levels(error, 1.0).tolist() == [0, 1, 1, 2, 3, 4, 5, 5, 6, 6]


def test_zero_budget_makes_every_difference_the_worst() -> None:
    assert numeric_levels(np.array([0, 1e-9], np.float32), 0.0).tolist() == [0, 5]


def test_budgets_may_differ_per_layer() -> None:
    error = np.full((2, 3), 0.5, np.float32)
    assert numeric_levels(error, np.array([[1.0], [0.1]])).tolist() == [[1, 1, 1], [2, 2, 2]]


def test_bits_decide_about_equal_and_nonfinite_about_bad() -> None:
    error = np.zeros(3, np.float32)
    levels = numeric_levels(
        error, 1.0, equal=np.array([True, False, True]), bad=np.array([False, False, True])
    )
    assert levels.tolist() == [0, 1, 6]


def test_router_levels_in_order_of_severity() -> None:
    def of(**changes: object) -> int:
        fields = {
            "missing": False,
            "set_equal": True,
            "order_equal": True,
            "num_flips": 0,
            "weights_beyond": False,
            "unexplained": False,
            **changes,
        }
        return int(router_levels(**{k: np.array([v]) for k, v in fields.items()})[0])

    assert of() == 0
    assert of(order_equal=False) == 1
    assert of(order_equal=False, weights_beyond=True) == 2
    flip = {"set_equal": False, "order_equal": False}
    assert of(**flip, num_flips=1) == 3
    assert of(**flip, num_flips=2) == 4
    assert of(**flip, num_flips=1, unexplained=True) == 5
    assert of(**flip, num_flips=1, missing=True) == 6
