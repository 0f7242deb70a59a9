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
    bounds = [np.broadcast_to(bound, error.shape) for bound in _decades(budget)]
    levels = np.empty(error.shape, np.uint8)
    # Layer by layer, so that what one comparison leaves is still in the cache for the next.
    for at in range(len(error)) if error.ndim > 1 else [...]:
        _grade(
            levels[at],
            error[at],
            [bound[at] for bound in bounds],
            None if equal is None else equal[at],
            None if bad is None else bad[at],
        )
    return levels


def _decades(budget: np.ndarray | float) -> list[np.ndarray]:
    """The budget, and three decades above it."""
    bounds = [np.asarray(budget, np.float32)]
    for _ in range(3):
        bounds.append(bounds[-1] * np.float32(10))
    return bounds


def _grade(
    levels: np.ndarray,
    error: np.ndarray,
    bounds: list[np.ndarray],
    equal: np.ndarray | None,
    bad: np.ndarray | None,
) -> None:
    """Fills `levels`."""
    levels[...] = 1
    above = np.empty(error.shape, np.bool_)
    for bound in bounds:
        np.greater(error, bound, out=above)
        np.add(levels, above.view(np.uint8), out=levels)
    # Products and maxima of bytes, many times faster than writing through a mask.
    np.multiply(levels, ~((error == 0) if equal is None else equal), out=levels)
    missing = ~np.isfinite(error)
    if bad is not None:
        missing |= bad
    np.maximum(levels, missing * np.uint8(MISSING_LEVEL), out=levels)


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
    flipped = ~set_equal
    # Each takes the place of the smaller ones.
    for level, where in (
        (1, ~order_equal),
        (2, weights_beyond),
        (3, flipped),
        (4, flipped & (num_flips >= 2)),
        (5, unexplained),
        (MISSING_LEVEL, missing),
    ):
        np.maximum(levels, where * np.uint8(level), out=levels)
    return levels
