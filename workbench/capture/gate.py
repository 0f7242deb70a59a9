"""How a router turns scores into gate weights, read off its numbers. numpy only.

A configuration says what was meant; the numbers say what runs (a switch for renormalising may exist
and be ignored). The contract is found by trying the few rules that exist on recorded scores.

Axis legend: T row, E expert, K top-k slot.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import numpy as np

Scoring = Literal["softmax", "sigmoid", "unknown"]

MAX_ROWS: Final = 64
_TOLERANCE: Final = 2.0**-6
"""Relative; 4 units of bfloat16, the coarsest type gate weights come in."""


class GateContract(NamedTuple):
    """How gate weights follow from scores.

    Attributes:
        scoring: What maps scores to weights; `unknown` when no rule gives the recorded weights.
        renormalise: Whether a row's weights were divided by their sum. Softmax over the selected
            scores alone is the same as softmax over all, renormalised.
        scale: Constant factor on the weights.
        topk_sorted: Whether the weights of every row seen descend.
        selects_largest: Whether every row seen selects its K largest scores; false where a
            selection bias, groups or noise decide too.
    """

    scoring: Scoring
    renormalise: bool
    scale: float
    topk_sorted: bool
    selects_largest: bool


def infer_gate(
    logits_TE: np.ndarray, topk_ids_TK: np.ndarray, topk_weights_TK: np.ndarray
) -> GateContract | None:
    """Finds the contract from recorded scores, choices and weights; None without a finite row.

    With one slot, or weights that are all alike, several rules may fit: the first of softmax,
    softmax renormalised, sigmoid, sigmoid renormalised is named.
    """
    logits_TE = np.asarray(logits_TE[:MAX_ROWS], np.float64)
    weights_TK = np.asarray(topk_weights_TK[:MAX_ROWS], np.float64)
    ids_TK = np.asarray(topk_ids_TK[:MAX_ROWS], np.int64)
    finite_T = np.isfinite(logits_TE).all(1) & np.isfinite(weights_TK).all(1)
    logits_TE, weights_TK, ids_TK = logits_TE[finite_T], weights_TK[finite_T], ids_TK[finite_T]
    if not len(logits_TE) or not (weights_TK > 0).any():
        return None
    topk_sorted = bool((np.diff(weights_TK, axis=1) <= 0).all())
    chosen_TK = np.take_along_axis(logits_TE, ids_TK, 1)
    smallest_TK = np.sort(logits_TE, 1)[:, -ids_TK.shape[1] :]
    selects_largest = bool(np.array_equal(np.sort(chosen_TK, 1), smallest_TK))
    for scoring, scores_TE in (("softmax", _softmax(logits_TE)), ("sigmoid", _sigmoid(logits_TE))):
        picked_TK = np.take_along_axis(scores_TE, ids_TK, 1)
        for renormalise in (False, True):
            rule_TK = picked_TK / picked_TK.sum(1, keepdims=True) if renormalise else picked_TK
            scale = _common_factor(weights_TK, rule_TK)
            if scale is not None:
                return GateContract(
                    "softmax" if scoring == "softmax" else "sigmoid",
                    renormalise,
                    scale,
                    topk_sorted,
                    selects_largest,
                )
    return GateContract("unknown", False, 1.0, topk_sorted, selects_largest)


def _common_factor(weights_TK: np.ndarray, rule_TK: np.ndarray) -> float | None:
    """The one factor between two matrices, or None; 1.0 exactly when it is 1 to rounding."""
    scale = float((weights_TK * rule_TK).sum() / (rule_TK * rule_TK).sum())
    if not np.allclose(weights_TK, scale * rule_TK, rtol=_TOLERANCE, atol=2.0**-14):
        return None
    return 1.0 if abs(scale - 1.0) < _TOLERANCE / 2 else scale


def _softmax(logits_TE: np.ndarray) -> np.ndarray:
    exp_TE = np.exp(logits_TE - logits_TE.max(1, keepdims=True))
    return np.asarray(exp_TE / exp_TE.sum(1, keepdims=True))


def _sigmoid(logits_TE: np.ndarray) -> np.ndarray:
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(logits_TE, -500, 500))))
