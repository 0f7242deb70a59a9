"""Severity levels that faces draw, uint8 0 to 6: fixed per tolerance, never scaled to the data.

Numeric: 0 bit-equal, 1 within budget, 2 to 5 one decade above it each, 6 NaN, Inf or missing.
Router: 0 same order, 1 same set in another order, 2 gate weights differ beyond budget, 3 one expert
differs, 4 two or more, 5 an unexplained flip, 6 missing.

Axis legend: L layer, T row.
"""

from __future__ import annotations

from typing import Final

import numpy as np

MISSING_LEVEL: Final = 6
NUM_LEVELS: Final = 7


def numeric_levels(
    error: np.ndarray,
    budget: np.ndarray | float,
    *,
    equal: np.ndarray | None = None,
    bad: np.ndarray | None = None,
) -> np.ndarray:
    """Levels of a relative error.

    Args:
        error: Any shape; NaN is missing, Inf a difference that no number describes.
        budget: Broadcast against `error`, for example (L, 1); 0 makes every difference level 5.
        equal: Where the bits are equal, when known; otherwise an error of 0 counts as equal.
        bad: Where a side holds NaN or Inf.
    """
    levels = np.ones(error.shape, np.uint8)
    bounds = np.asarray(budget, np.float32)
    for _ in range(4):
        levels += error > bounds
        bounds = bounds * np.float32(10)
    levels[(error == 0) if equal is None else equal] = 0
    missing = ~np.isfinite(error)
    levels[missing if bad is None else missing | bad] = MISSING_LEVEL
    return levels


def router_levels(
    *,
    missing: np.ndarray,
    set_equal: np.ndarray,
    order_equal: np.ndarray,
    num_flips: np.ndarray,
    weights_beyond: np.ndarray,
    unexplained: np.ndarray,
) -> np.ndarray:
    """Levels of a routing decision; every argument of one shape, bool but `num_flips`."""
    levels = np.zeros(set_equal.shape, np.uint8)
    levels[~order_equal] = 1
    levels[weights_beyond] = 2
    levels[~set_equal] = 3
    levels[~set_equal & (num_flips >= 2)] = 4
    levels[unexplained] = 5
    levels[missing] = MISSING_LEVEL
    return levels
