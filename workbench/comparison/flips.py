"""Judging flips without the model: can the input difference, and rounding, have caused them?

A router is linear in its input: for z = W x, the gap of two scores differs between the paths by
(w_i - w_j)·(x_A - x_B), at most ‖w_i - w_j‖ * ‖x_A - x_B‖ by Cauchy-Schwarz. A flip implies a
certain move of scores against each other; it is explained when the inputs, with the rounding of
the scores themselves, can make that move, and unexplained when they cannot. Where selection does
not look at the logits alone (a selection bias, groups), only proofs of the contrary are given.

Axis legend: T row with a flip.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from workbench.comparison.routing import FlipEvidence, Scoring
from workbench.comparison.tolerance import LAMBDA, RMS_ROUNDING, U32

NOT_OWN_SHARE: Final = 0.01
"""Rows with equal sets that are not the top-k of the logits, on both sides, above this share: the
model selects by something else than the logits."""

REASONS: Final = (
    "the input difference covers the move",
    "the scores moved further than the input difference can move them",
    "a side did not select the top-k of its own scores",
    "the scores are equal and the experts are not",
    "the scores moved against the flip",
    "no router weight norm was recorded",
    "the router's input was not recorded on both sides",
    "selection does not follow the logits alone",
)
COVERED, TOO_FAR, NOT_OWN, SAME_SCORES, AGAINST, NO_NORM, NO_INPUT, NOT_BY_LOGITS = range(8)
_EXPLAINED: Final = (COVERED,)
_UNEXPLAINED: Final = (TOO_FAR, NOT_OWN, SAME_SCORES, AGAINST)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterFacts:
    """What is known about one layer's router.

    Attributes:
        pair_norm: Largest norm of the difference of two router rows, None when unknown.
        hidden_size: Length of the inner products.
        roundoff: Unit roundoff of the coarser type the scores are stored in.
        scoring: What the logits pass before selection.
        by_logits: Whether selection is by the logits alone.
    """

    pair_norm: float | None
    hidden_size: int
    roundoff: float
    scoring: Scoring
    by_logits: bool


class Judgement(NamedTuple):
    """Per flip, shape (T,).

    Attributes:
        explained: 1 explained, 0 unexplained, -1 cannot be judged, int8.
        reason: Index into `REASONS`, int8.
        needed: The move of scores that the flip implies, float64.
        bound: The move that input difference and rounding can cover, float64, NaN when unknown.
    """

    explained: np.ndarray
    reason: np.ndarray
    needed: np.ndarray
    bound: np.ndarray


def judge(evidence: FlipEvidence, input_moved_T: np.ndarray, facts: RouterFacts) -> Judgement:
    """Judges flips.

    Args:
        evidence: Of the rows with a flip.
        input_moved_T: ‖mlp_in_A - mlp_in_B‖ per row; NaN where unknown, Inf where broken.
        facts: Of the layer's router.
    """
    rounding_T = score_rounding(evidence.largest_score, facts)
    norm = math.nan if facts.pair_norm is None else facts.pair_norm
    with np.errstate(invalid="ignore"):
        bound_T = norm * input_moved_T + rounding_T
        needed_T = evidence.needed
        reason_T = np.full(len(needed_T), COVERED, np.int8)
        reason_T[np.isnan(input_moved_T)] = NO_INPUT
        reason_T[np.isnan(norm)] = NO_NORM
        # Rounding alone covers a tie, whatever else is unknown.
        reason_T[needed_T <= rounding_T] = COVERED
        reason_T[needed_T > bound_T] = TOO_FAR
        if facts.by_logits:
            reason_T[~(evidence.own_a & evidence.own_b)] = NOT_OWN
        else:
            reason_T[reason_T == COVERED] = NOT_BY_LOGITS
            reason_T[evidence.least < -2 * rounding_T] = AGAINST
            reason_T[evidence.same_scores] = SAME_SCORES
    explained_T = np.full(len(reason_T), -1, np.int8)
    explained_T[np.isin(reason_T, _EXPLAINED)] = 1
    explained_T[np.isin(reason_T, _UNEXPLAINED)] = 0
    return Judgement(explained_T, reason_T, needed_T, bound_T)


def score_rounding(largest_score_T: np.ndarray, facts: RouterFacts) -> np.ndarray:
    """How far rounding alone may move the four scores of a flip against each other.

    Each is rounded to its stored type, by at most u, and accumulated in float32 over the hidden
    size.
    """
    accumulated = LAMBDA * RMS_ROUNDING * math.sqrt(4 * facts.hidden_size) * U32
    rounding_T: np.ndarray = (4 * facts.roundoff + accumulated) * largest_score_T
    return rounding_T


def follows_logits(
    set_equal_T: np.ndarray, own_a_T: np.ndarray, own_b_T: np.ndarray, *, declared_bias: bool
) -> bool:
    """Whether a layer selects by its logits alone, from what was declared and what it did.

    Args:
        set_equal_T: Rows where both sides agree.
        own_a_T: Rows whose selection on A is the top-k of A's own scores.
        own_b_T: The same on B.
        declared_bias: Whether a side's manifest names a selection bias.
    """
    agreed = int(set_equal_T.sum())
    strange = int((set_equal_T & ~own_a_T & ~own_b_T).sum())
    return not declared_bias and strange <= NOT_OWN_SHARE * agreed
