"""How two routing decisions differ, per row of one layer. numpy only.

Experts are matched by id, never by slot; ids below 0 are empty slots. Owns the evidence of a flip;
`flips.py` judges it.

NaN scores give a NaN margin and KL, which means missing. Ties: equal scores may be selected in any
order, so a selection counts as the top-k of its scores when its lowest score reaches the k-th
largest.

Axis legend: T row, E expert, K slot (J on side B).
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import numpy as np

from workbench.store.dtypes import to_float32, unit_roundoff

Scoring = Literal["softmax", "sigmoid"]
_SERIES_REACH: Final = 0.1
"""The first term left out, e^6/720, is then below 3e-7 of the result."""

_SOFTMAX_ULPS: Final = 8.0
"""Roundings of 2**-24 between a score and the float32 probability that selection looks at."""


class Decisions(NamedTuple):
    """Selected experts and router logits of some rows on one side."""

    ids_TK: np.ndarray
    scores_TE: np.ndarray

    def at(self, rows: np.ndarray) -> Decisions:
        """The decisions of some of the rows."""
        return Decisions(self.ids_TK[rows], self.scores_TE[rows])


class SetMetrics(NamedTuple):
    """Per row, shape (T,): same set, same slots, experts on one side only (the larger count)."""

    set_equal: np.ndarray
    order_equal: np.ndarray
    num_flips: np.ndarray


class MatchedGates(NamedTuple):
    """Gate weights matched by expert id, an expert of one side alone counting as 0 on the other.

    Attributes:
        a: A's weights over the union of both sides' experts, shape (T, K + J), 0 in unused places.
        b: B's weights at the same places.
        mass_moved: 0.5 * sum over experts of |w_A - w_B|, float32 (T,).
    """

    a: np.ndarray
    b: np.ndarray
    mass_moved: np.ndarray


class ScoreMetrics(NamedTuple):
    """Per row, float32 (T,).

    Attributes:
        margin_a: Gap between the k-th and the (k+1)-th score of A.
        margin_b: The same on B.
        kl: KL(softmax z_A || softmax z_B), nats.
    """

    margin_a: np.ndarray
    margin_b: np.ndarray
    kl: np.ndarray


class FlipEvidence(NamedTuple):
    """What speaks for or against a flip, per row, shape (T,); meaningful where the sets differ.

    Attributes:
        needed: Largest move of two scores against each other that the flip implies, float64: over
            experts i of A alone and j of B alone, (zA_i - zA_j) + (zB_j - zB_i).
        least: The smallest such move, in the units that selection looks at.
        largest_score: max |z| over both sides.
        own_a, own_b: Whether the side selected the top-k of its own recorded scores.
        same_scores: Whether every score is equal on both sides.
    """

    needed: np.ndarray
    least: np.ndarray
    largest_score: np.ndarray
    own_a: np.ndarray
    own_b: np.ndarray
    same_scores: np.ndarray


def match_slots(ids_a_TK: np.ndarray, ids_b_TJ: np.ndarray) -> np.ndarray:
    """Slot of B that holds the expert of each slot of A, int64 (T, K), -1 where B lacks it."""
    same_TKJ = ids_a_TK[:, :, None] == ids_b_TJ[:, None, :]
    slots_TK: np.ndarray = same_TKJ.argmax(axis=2)
    slots_TK[~same_TKJ.any(axis=2) | (ids_a_TK < 0)] = -1
    return slots_TK


def compare_sets(ids_a_TK: np.ndarray, ids_b_TJ: np.ndarray) -> SetMetrics:
    """Same experts, same order, number of experts that differ."""
    if ids_a_TK.shape == ids_b_TJ.shape:
        order_T = (ids_a_TK == ids_b_TJ).all(axis=1)
    else:
        order_T = np.zeros(len(ids_a_TK), np.bool_)
    only_a_T = ((match_slots(ids_a_TK, ids_b_TJ) < 0) & (ids_a_TK >= 0)).sum(axis=1)
    only_b_T = ((match_slots(ids_b_TJ, ids_a_TK) < 0) & (ids_b_TJ >= 0)).sum(axis=1)
    flips_T = np.maximum(only_a_T, only_b_T).astype(np.uint32)
    return SetMetrics(flips_T == 0, order_T, flips_T)


def match_gates(
    ids_a_TK: np.ndarray, weights_a_TK: np.ndarray, ids_b_TJ: np.ndarray, weights_b_TJ: np.ndarray
) -> MatchedGates:
    """Brings both sides' gate weights to the same places."""
    slots_TK = match_slots(ids_a_TK, ids_b_TJ)
    only_b_TJ = (match_slots(ids_b_TJ, ids_a_TK) < 0) & (ids_b_TJ >= 0)
    empty = np.zeros((), weights_b_TJ.dtype)
    matched_TK = np.take_along_axis(weights_b_TJ, np.maximum(slots_TK, 0), axis=1)
    b_TU = np.concatenate(
        [np.where(slots_TK < 0, empty, matched_TK), np.where(only_b_TJ, weights_b_TJ, empty)],
        axis=1,
    )
    used_TK = np.where(ids_a_TK >= 0, weights_a_TK, np.zeros((), weights_a_TK.dtype))
    a_TU = np.concatenate([used_TK, np.zeros(only_b_TJ.shape, weights_a_TK.dtype)], axis=1)
    with np.errstate(invalid="ignore"):
        moved_T = np.abs(a_TU.astype(np.float64) - b_TU.astype(np.float64)).sum(axis=1)
    return MatchedGates(a_TU, b_TU, (0.5 * moved_T).astype(np.float32))


def compare_scores(scores_a_TE: np.ndarray, scores_b_TE: np.ndarray, top_k: int) -> ScoreMetrics:
    """Margins of both sides and the KL between their softmax."""
    a_TE, b_TE = to_float32(scores_a_TE), to_float32(scores_b_TE)
    same_T = (a_TE == b_TE).all(axis=1)
    kl_T = np.zeros(len(a_TE))
    if not same_T.all():
        kl_T[~same_T] = _softmax_kl(a_TE[~same_T], b_TE[~same_T])
    return ScoreMetrics(margin(a_TE, top_k), margin(b_TE, top_k), kl_T.astype(np.float32))


def margin(scores_TE: np.ndarray, top_k: int) -> np.ndarray:
    """Gap between the k-th and the (k+1)-th score, float32 (T,); NaN where there is none."""
    num_experts = scores_TE.shape[1]
    if not 0 < top_k < num_experts:
        return np.full(len(scores_TE), np.nan, np.float32)
    cut = num_experts - top_k
    ordered_TE = np.partition(scores_TE, (cut - 1, cut), axis=1)
    with np.errstate(invalid="ignore"):
        margin_T: np.ndarray = ordered_TE[:, cut] - ordered_TE[:, cut - 1]
    # NaN sorts last, so it may sit beyond the cut without showing in the gap.
    margin_T[np.isnan(scores_TE).any(axis=1)] = np.nan
    return margin_T


def log_softmax(scores_TE: np.ndarray) -> np.ndarray:
    """Float64 log softmax along the last axis."""
    shifted_TE: np.ndarray = scores_TE.astype(np.float64)
    shifted_TE -= shifted_TE.max(axis=1, keepdims=True)
    shifted_TE -= np.log(np.exp(shifted_TE).sum(axis=1, keepdims=True))
    return shifted_TE


def _softmax_kl(a_TE: np.ndarray, b_TE: np.ndarray) -> np.ndarray:
    """KL between softmax distributions, float64.

    With e = z_A - z_B less its mean under p_A, KL = log(sum p_A exp(-e)), and the linear term of
    the
    exponential vanishes: a short series keeps the digits of a small KL, and costs a fifth.
    """
    with np.errstate(all="ignore"):
        weights_TE = np.exp(a_TE - a_TE.max(axis=1, keepdims=True)).astype(np.float64)
        total_T = weights_TE.sum(axis=1)
        e_TE = a_TE.astype(np.float64)
        e_TE -= b_TE
        e_TE -= (np.vecdot(weights_TE, e_TE) / total_T)[:, None]
        near_T = np.maximum(e_TE.max(axis=1), -e_TE.min(axis=1)) <= _SERIES_REACH
        series_TE = e_TE * (-1 / 120)
        for coefficient in (1 / 24, -1 / 6, 1 / 2):
            series_TE += coefficient
            series_TE *= e_TE
        series_TE *= e_TE
        kl_T: np.ndarray = np.log1p(np.vecdot(weights_TE, series_TE) / total_T)
        far_T = ~near_T
        if far_T.any():
            log_a_TE, log_b_TE = log_softmax(a_TE[far_T]), log_softmax(b_TE[far_T])
            kl_T[far_T] = np.vecdot(np.exp(log_a_TE), log_a_TE - log_b_TE)
    # KL is at least 0; rounding of equal distributions may end a hair below.
    np.maximum(kl_T, 0.0, out=kl_T)
    return kl_T


def flip_evidence(a: Decisions, b: Decisions, scoring: Scoring) -> FlipEvidence:
    """Evidence for rows whose ids and scores both sides recorded."""
    a_TE, b_TE = to_float32(a.scores_TE), to_float32(b.scores_TE)
    in_a_TE = _selected(a.ids_TK, a_TE.shape[1])
    in_b_TE = _selected(b.ids_TK, b_TE.shape[1])
    with np.errstate(invalid="ignore"):
        largest_T = np.maximum(np.abs(a_TE).max(axis=1), np.abs(b_TE).max(axis=1))
        moved_TE = a_TE.astype(np.float64) - b_TE
        seen_TE = _as_selected(a_TE, scoring) - _as_selected(b_TE, scoring)
    only_a_TE, only_b_TE = in_a_TE & ~in_b_TE, in_b_TE & ~in_a_TE
    return FlipEvidence(
        needed=_largest(moved_TE, only_a_TE) + _largest(-moved_TE, only_b_TE),
        least=-_largest(-seen_TE, only_a_TE) - _largest(seen_TE, only_b_TE),
        largest_score=largest_T.astype(np.float64),
        own_a=is_own_top_k(a),
        own_b=is_own_top_k(b),
        same_scores=(a_TE == b_TE).all(axis=1),
    )


def _selected(ids_TK: np.ndarray, num_experts: int) -> np.ndarray:
    """Mask of selected experts, bool (T, E); ids outside 0..E-1 select nothing."""
    mask_TE = np.zeros((len(ids_TK), num_experts), np.bool_)
    rows_T, slots_T = np.nonzero((ids_TK >= 0) & (ids_TK < num_experts))
    mask_TE[rows_T, ids_TK[rows_T, slots_T]] = True
    return mask_TE


def _as_selected(scores_TE: np.ndarray, scoring: Scoring) -> np.ndarray:
    wide_TE = scores_TE.astype(np.float64)
    if scoring == "sigmoid":
        sigmoid_TE: np.ndarray = 1.0 / (1.0 + np.exp(-wide_TE))
        return sigmoid_TE
    softmax_TE: np.ndarray = np.exp(log_softmax(wide_TE))
    return softmax_TE


def _largest(values_TE: np.ndarray, mask_TE: np.ndarray) -> np.ndarray:
    """Largest value under the mask per row; NaN where the mask is empty."""
    found_T: np.ndarray = np.where(mask_TE, values_TE, -np.inf).max(axis=1)
    found_T[~mask_TE.any(axis=1)] = np.nan
    return found_T


def is_own_top_k(side: Decisions) -> np.ndarray:
    """Whether a side selected the top-k of its own scores, bool (T,); NaN scores never are.

    Scores closer than their rounding, or than that of the float32 probabilities which selection may
    look at instead, count as tied.
    """
    u = unit_roundoff(side.scores_TE.dtype.name)
    scores_TE = to_float32(side.scores_TE)
    in_TE = _selected(side.ids_TK, scores_TE.shape[1])
    with np.errstate(invalid="ignore"):
        largest_T = np.abs(scores_TE).max(axis=1)
        slack_T = largest_T * u + _SOFTMAX_ULPS * 2.0**-24 * np.maximum(largest_T, 1)
        lowest_in_T = np.where(in_TE, scores_TE, np.inf).min(axis=1)
        highest_out_T = np.where(in_TE, -np.inf, scores_TE).max(axis=1)
        own_T: np.ndarray = lowest_in_T >= highest_out_T - slack_T
    return own_T
