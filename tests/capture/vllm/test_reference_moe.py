"""The trainer's MoE module in the live engine: it runs, it agrees, and it goes away again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.capture.vllm.conftest import MODEL, assert_same_bits, random_requests, rows_of
from workbench.capture.structure import find_parts
from workbench.capture.vllm.engine import RolloutSettings, record_requests
from workbench.capture.vllm.reference_moe import reference_moe
from workbench.errors import UsageError
from workbench.faults import Fault, inject

pytestmark = pytest.mark.slow
SETTINGS = RolloutSettings(max_tokens=4, temperature=0.0, seed=3, sites=("mlp_out", "output"))


@pytest.fixture(scope="module")
def trainer() -> nn.Module:
    from transformers import AutoModelForCausalLM

    model: nn.Module = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()
    return model


def scored(llm: Any, out: Path) -> dict[tuple[str, int], Any]:
    llm.reset_prefix_cache()
    record_requests(llm, random_requests(3, seed=5, high=20), out, settings=SETTINGS)
    return rows_of(out)


def worst(a: dict[tuple[str, int], Any], b: dict[tuple[str, int], Any], site: str) -> float:
    """Largest difference at a site over the rows that both have."""
    shared = [key for key in a.keys() & b.keys() if site in a[key].arrays]
    return max(float(np.abs(a[k].arrays[site] - b[k].arrays[site]).max()) for k in shared)


def test_the_reference_agrees_to_rounding_and_goes_away(
    llm: Any, trainer: nn.Module, tmp_path: Path
) -> None:
    live = scored(llm, tmp_path / "live")
    with reference_moe(llm, find_parts(trainer).layers) as replaced:
        swapped = scored(llm, tmp_path / "swapped")
    assert replaced == [0, 1, 2, 3]
    assert 0 < worst(live, swapped, "layers.3.output") < 1e-3
    assert_same_bits(live, scored(llm, tmp_path / "again"))


def test_only_the_asked_layer_computes_with_the_reference(
    llm: Any, trainer: nn.Module, tmp_path: Path
) -> None:
    live = scored(llm, tmp_path / "live")
    with (
        inject(trainer, Fault(kind="routed_experts", layer=2)),
        reference_moe(llm, find_parts(trainer).layers, layers=[2]) as replaced,
    ):
        swapped = scored(llm, tmp_path / "swapped")
    assert replaced == [2]
    prompts = {key: row for key, row in live.items() if row.token["phase"] == "prompt"}
    assert worst(prompts, swapped, "layers.1.output") == 0.0
    assert worst(prompts, swapped, "layers.2.mlp_out") > 1e-2


def test_a_layer_that_is_not_there_is_refused(llm: Any, trainer: nn.Module) -> None:
    with (
        pytest.raises(UsageError, match="layer 9 of the engine"),
        reference_moe(llm, find_parts(trainer).layers, layers=[0, 9]),
    ):
        pass
