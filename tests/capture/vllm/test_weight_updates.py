"""Fingerprints follow the weights when a live engine loads others.

They come last of those that share the engine, as their file's name sorts: on CPU the engine
computes other tokens after a reload of the very same weights, although their fingerprint is as
before (linear weights live on in a prepacked copy).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.capture.vllm.conftest import MODEL
from workbench.capture.vllm.load_sums import sums_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained() -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(MODEL)


def test_reloaded_weights_are_summed_again(
    engine: Any, runner: Any, trained: Any, tmp_path: Path
) -> None:
    sums = sums_of(runner.model)
    assert sums is not None
    before = sums.canonical()
    changed = {name: p.detach().clone() for name, p in trained.named_parameters()}
    changed["model.layers.1.self_attn.o_proj.weight"][0, 0] += 1
    changed["model.layers.2.mlp.gate.weight"][0, 0] += 1
    changed["model.norm.weight"][0] += 1
    try:
        runner.reload_weights(weights_iterator=iter(_checkpoint(changed)))
        sums.refresh(runner.model)
        after = sums.canonical()
    finally:
        runner.reload_weights()
    sums.refresh(runner.model)
    different = {name for name in before if before[name] != after[name]}
    assert different == {"layers.1.attn.out", "layers.2.router", "final_norm"}
    assert sums.canonical() == before


def _checkpoint(parameters: dict[str, torch.Tensor]) -> list[tuple[str, torch.Tensor]]:
    """Stacked experts as the checkpoint holds them: one by one, gate and up apart."""
    flat = []
    for name, tensor in parameters.items():
        if name.endswith("experts.gate_up_proj"):
            base = name.removesuffix("gate_up_proj")
            for expert, both in enumerate(tensor):
                gate, up = both.chunk(2)
                flat += [
                    (f"{base}{expert}.gate_proj.weight", gate),
                    (f"{base}{expert}.up_proj.weight", up),
                ]
        elif name.endswith("experts.down_proj"):
            base = name.removesuffix("down_proj")
            flat += [(f"{base}{e}.down_proj.weight", w) for e, w in enumerate(tensor)]
        else:
            flat.append((name, tensor))
    return flat
