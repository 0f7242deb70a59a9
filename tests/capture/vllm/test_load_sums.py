"""Fingerprints of a live engine's weights against transformers' and over writes in place."""

from __future__ import annotations

from typing import Any

import pytest

from tests.capture.vllm.conftest import MODEL
from workbench.capture.fingerprint import fingerprint
from workbench.capture.model_facts import router_pair_norm
from workbench.capture.vllm.load_sums import sums_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained() -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(MODEL)


def test_sums_equal_those_of_transformers_for_the_same_checkpoint(
    engine: Any, runner: Any, trained: Any
) -> None:
    """Fused q, k, v and stacked experts on one side; bfloat16 there, float32 here."""
    sums = sums_of(runner.model)
    assert sums is not None
    ours = {name: (p.sum, p.numel) for name, p in sums.canonical().items()}
    theirs = {name: (p.sum, p.numel) for name, p in fingerprint(trained.named_parameters()).items()}
    assert ours == theirs
    assert {p.dtype for p in sums.canonical().values()} == {"float32"}


def test_linear_weights_are_summed_although_the_engine_empties_them(
    engine: Any, runner: Any
) -> None:
    assert runner.model.model.layers[0].self_attn.qkv_proj.weight.numel() == 0
    sums = sums_of(runner.model)
    assert sums is not None
    assert sums.canonical()["layers.0.attn.qkv"].numel > 0


def test_router_norms_are_those_of_the_checkpoint(engine: Any, runner: Any, trained: Any) -> None:
    sums = sums_of(runner.model)
    assert sums is not None
    for layer in range(4):
        weight = trained.model.layers[layer].mlp.gate.weight
        assert sums.router_pair_norm[layer] == router_pair_norm(weight)
        assert sums.router_row_norm[layer] == float(weight.detach().double().norm(dim=1).max())


def test_a_parameter_written_in_place_changes_its_sum(engine: Any, runner: Any) -> None:
    sums = sums_of(runner.model)
    assert sums is not None
    before = sums.canonical()
    weight = runner.model.model.norm.weight
    kept = weight.data.clone()
    try:
        weight.data[0] += 1
        sums.refresh(runner.model)
        after = sums.canonical()
    finally:
        weight.data.copy_(kept)
        sums.refresh(runner.model)
    assert {name for name in before if before[name] != after[name]} == {"final_norm"}
    assert sums.canonical() == before
