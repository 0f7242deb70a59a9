"""The routing ladder: each rung removes its own kind of difference, and the last what is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.attribution.matrix import capture, subject
from workbench.attribution.bench import Bench
from workbench.attribution.combine import CANDIDATES
from workbench.attribution.ladder import ladder, recombined
from workbench.attribution.run import attribute
from workbench.capture.structure import find_parts
from workbench.comparison.run import compare
from workbench.faults import Fault, inject

RUNGS = ["live", "same set", "same slot order", "same gate weights", "same combine order"]


def rungs_of(scratch: Path, fault: Fault, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    tried = subject("qwen2_moe", dtype)
    b = capture(tried, scratch / "b")
    a = capture(tried, scratch / "a", path="rollout", context=inject(tried.model, fault))
    comparison = compare(a, b, out=scratch / "comparison")
    comparison = attribute(comparison, tried.model, swaps=False)
    with torch.no_grad():
        bench = Bench(comparison, find_parts(tried.model))
        lines = ladder(bench, comparison.summary["attribution"]["combine"])
    assert [line["rung"] for line in lines] == [*RUNGS, "reference module"]
    return {line["rung"]: line for line in lines}


@pytest.mark.slow
def test_a_wrong_choice_is_gone_with_the_same_set(tmp_path: Path) -> None:
    rungs = rungs_of(tmp_path, Fault(kind="top_k", layer=1))
    assert rungs["live"]["left"] == 1.0
    assert rungs["same set"]["left"] < 1e-6


@pytest.mark.slow
def test_wrong_gate_weights_stay_until_their_rung(tmp_path: Path) -> None:
    rungs = rungs_of(tmp_path, Fault(kind="gate_weights", layer=2, size=0.2))
    assert rungs["same slot order"]["left"] == pytest.approx(1.0, abs=0.2)
    assert rungs["same gate weights"]["left"] == 0.0
    assert "far below rounding" in rungs["same combine order"]["reason"]


@pytest.mark.slow
def test_another_combine_order_stays_until_its_rung(tmp_path: Path) -> None:
    fault = Fault(kind="combine-order", layer=2, order="cast_each")
    rungs = rungs_of(tmp_path, fault, torch.bfloat16)
    assert rungs["live"]["kl"] > 0
    assert rungs["same gate weights"]["left"] > 0.5
    assert rungs["same combine order"]["left"] == 0.0


@pytest.mark.slow
def test_what_is_not_of_the_experts_is_left_by_the_last_rung(tmp_path: Path) -> None:
    rungs = rungs_of(tmp_path, Fault(kind="lm_head", size=0.1))
    assert rungs["reference module"]["left"] == pytest.approx(1.0)


def test_recombining_leaves_the_model_as_it_was() -> None:
    tried = subject("qwen2_moe", torch.bfloat16)
    parts = find_parts(tried.model)
    ids = torch.tensor([tried.ids[0]])
    by_name = {candidate.name: candidate for candidate in CANDIDATES}
    with torch.no_grad():
        before = tried.model(input_ids=ids).logits
        with recombined(parts, {0: by_name["ii-slot"], 1: by_name["ii-slot"]}):
            other = tried.model(input_ids=ids).logits
        after = tried.model(input_ids=ids).logits
    assert not torch.equal(before, other)
    assert torch.equal(before, after)
