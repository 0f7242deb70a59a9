"""Axis legend: T row, E expert, K top-k slot."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from workbench.capture.gate import infer_gate


def case(
    scoring: str, *, renormalise: bool, scale: float = 1.0, top_k: int = 3
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    logits_TE = np.random.default_rng(0).normal(size=(20, 8)).astype(np.float32)
    if scoring == "softmax":
        exp_TE = np.exp(logits_TE)
        scores_TE = exp_TE / exp_TE.sum(1, keepdims=True)
    else:
        scores_TE = 1 / (1 + np.exp(-logits_TE))
    ids_TK = np.argsort(-scores_TE, 1)[:, :top_k]
    weights_TK = np.take_along_axis(scores_TE, ids_TK, 1)
    if renormalise:
        weights_TK = weights_TK / weights_TK.sum(1, keepdims=True)
    return logits_TE, ids_TK, weights_TK * scale


@pytest.mark.parametrize("scoring", ["softmax", "sigmoid"])
@pytest.mark.parametrize("renormalise", [False, True])
@pytest.mark.parametrize("scale", [1.0, 2.5])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_every_rule_is_recognised(
    scoring: str, renormalise: bool, scale: float, dtype: np.dtype
) -> None:
    logits_TE, ids_TK, weights_TK = case(scoring, renormalise=renormalise, scale=scale)
    found = infer_gate(logits_TE, ids_TK, weights_TK.astype(dtype))
    assert found is not None
    assert (found.scoring, found.renormalise) == (scoring, renormalise)
    assert found.scale == pytest.approx(scale, rel=2**-8)
    assert found.topk_sorted
    assert found.selects_largest


def test_unsorted_slots_are_seen() -> None:
    logits_TE, ids_TK, weights_TK = case("softmax", renormalise=True)
    found = infer_gate(logits_TE, ids_TK[:, ::-1], weights_TK[:, ::-1])
    assert found is not None
    assert (found.topk_sorted, found.selects_largest) == (False, True)


def test_a_selection_that_is_not_by_score_is_seen() -> None:
    logits_TE, _, _ = case("sigmoid", renormalise=False)
    ids_TK = np.argsort(logits_TE, 1)[:, :2]
    weights_TK = np.take_along_axis(1 / (1 + np.exp(-logits_TE)), ids_TK, 1)
    found = infer_gate(logits_TE, ids_TK, weights_TK)
    assert found is not None
    assert not found.selects_largest


def test_weights_of_no_known_rule_are_unknown() -> None:
    logits_TE, ids_TK, weights_TK = case("softmax", renormalise=False)
    found = infer_gate(logits_TE, ids_TK, weights_TK**2)
    assert found is not None
    assert found.scoring == "unknown"


def test_rows_that_are_not_finite_are_left_out() -> None:
    logits_TE, ids_TK, weights_TK = case("softmax", renormalise=True)
    logits_TE[0, 0] = np.nan
    found = infer_gate(logits_TE, ids_TK, weights_TK)
    assert found is not None
    assert found.scoring == "softmax"
    assert infer_gate(logits_TE[:1], ids_TK[:1], weights_TK[:1]) is None
