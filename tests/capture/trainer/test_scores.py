"""Axis legend: R row, V vocabulary."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from workbench.capture.trainer import scores as module
from workbench.capture.trainer.scores import score_tokens

LOGITS_RV = torch.log(torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]]))


def test_scores_by_hand() -> None:
    found = score_tokens(LOGITS_RV, np.array([0, 1]), np.array([0, 1]))
    assert found.logprob_R.tolist() == pytest.approx([math.log(0.5), math.log(0.2)], rel=2**-22)
    assert found.rank_R.tolist() == [1, 2]
    # -(0.5 ln 0.5 + 2 * 0.25 ln 0.25) = 1.5 ln 2
    assert found.entropy_R[0] == pytest.approx(1.5 * math.log(2), rel=2**-22)


def test_ties_count_against_the_token() -> None:
    assert score_tokens(LOGITS_RV, np.array([0]), np.array([1])).rank_R.tolist() == [3]


def test_a_masked_token_has_no_weight_in_the_entropy() -> None:
    logits_RV = torch.tensor([[0.0, 0.0, -math.inf]])
    found = score_tokens(logits_RV, np.array([0, 0]), np.array([0, 2]))
    assert found.entropy_R.tolist() == pytest.approx([math.log(2)] * 2)
    assert found.logprob_R[1] == -math.inf


def test_nan_in_the_logits_stays_nan() -> None:
    found = score_tokens(torch.tensor([[0.0, math.nan]]), np.array([0]), np.array([0]))
    assert math.isnan(found.logprob_R[0])
    assert math.isnan(found.entropy_R[0])


def test_bfloat16_logits_are_scored_in_float32() -> None:
    logits_RV = torch.randn(4, 50, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    found = score_tokens(logits_RV, np.arange(4), np.arange(4))
    exact_RV = torch.log_softmax(logits_RV.double(), -1)
    expected = exact_RV[torch.arange(4), torch.arange(4)].tolist()
    assert found.logprob_R.tolist() == pytest.approx(expected, abs=8 * 2**-22)


def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = score_tokens(LOGITS_RV, np.array([0, 1, 0]), np.array([0, 1, 2]))
    monkeypatch.setattr(module, "_BLOCK_VALUES", 1)
    parts = score_tokens(LOGITS_RV, np.array([0, 1, 0]), np.array([0, 1, 2]))
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one, other)


def test_nothing_to_score() -> None:
    found = score_tokens(LOGITS_RV, np.empty(0, np.int64), np.empty(0, np.int64))
    assert [len(column) for column in found] == [0, 0, 0]
