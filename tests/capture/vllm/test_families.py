"""Other architectures through the same contracts: shared experts, scaled outputs, other residuals.

What is recorded is held against transformers on the same weights, whose hidden states and module
outputs are known without any recorder.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.capture.vllm.conftest import Row, rows_of
from tests.capture.vllm.families import FAMILIES
from workbench.capture.fingerprint import fingerprint
from workbench.names import LAYER_SITES, layer_site
from workbench.store import Capture, open_capture

pytestmark = pytest.mark.slow

# float32, three layers: the engine and transformers differ by rounding alone.
TOLERANCE = 2e-4
NUM_LAYERS = 3


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("families")
    subprocess.run([sys.executable, "-m", "tests.capture.vllm.families", path], check=True)
    return path


@pytest.fixture(params=list(FAMILIES))
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def capture_of(directory: Path, family: str) -> Capture:
    return open_capture(directory / family / "capture")


def model_of(directory: Path, family: str) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(
        directory / family / "model", experts_implementation="eager"
    )


def computed_rows(capture: Capture) -> list[Row]:
    rows = [row for _, row in sorted(rows_of(capture).items())]
    return [row for row in rows if row.arrays]


def stacked(rows: list[Row], site: str) -> np.ndarray:
    return np.stack([row.arrays[site] for row in rows])


def outputs_of(model: Any, modules: dict[str, nn.Module], ids: torch.Tensor) -> dict[str, Any]:
    """Outputs of some modules, and the model's own hidden states and logits."""
    seen: dict[str, Any] = {}
    handles = []
    for name, module in modules.items():

        def hook(_m: Any, _a: Any, output: Any, name: str = name) -> None:
            first = output[0] if isinstance(output, tuple) else output
            seen[name] = first.reshape(-1, first.shape[-1]).detach().numpy()

        handles.append(module.register_forward_hook(hook))
    with torch.no_grad():
        out = model(ids.unsqueeze(0), output_hidden_states=True)
    for handle in handles:
        handle.remove()
    seen["hidden_states"] = [h[0].numpy() for h in out.hidden_states]
    seen["logits"] = out.logits[0]
    return seen


def test_every_site_is_there_or_its_absence_has_a_reason(directory: Path, family: str) -> None:
    capture = capture_of(directory, family)
    assert capture.complete
    for layer in range(NUM_LAYERS):
        for name in LAYER_SITES:
            site = layer_site(layer, name)
            assert (site in capture.sites) != (site in capture.manifest.missing), site
    assert {"embed", "final_norm", "logits"} <= set(capture.sites)


def test_fingerprints_equal_those_of_transformers(directory: Path, family: str) -> None:
    model = model_of(directory, family)
    buffers = [(n, b) for n, b in model.named_buffers() if n.endswith("e_score_correction_bias")]
    theirs = fingerprint([*model.named_parameters(), *buffers])
    ours = capture_of(directory, family).manifest.weights
    assert {n: (p.sum, p.numel) for n, p in ours.items()} == {
        n: (p.sum, p.numel) for n, p in theirs.items()
    }


def test_streams_and_block_outputs_are_those_of_transformers(directory: Path, family: str) -> None:
    capture, model = capture_of(directory, family), model_of(directory, family)
    rows = computed_rows(capture)
    ids = torch.tensor([row.token["token_id"] for row in rows])
    blocks = {
        f"layers.{i}.mlp_out": getattr(layer, "mlp", None) or layer.block_sparse_moe
        for i, layer in enumerate(model.model.layers)
    }
    attentions = {
        f"layers.{i}.attn_out": layer.self_attn for i, layer in enumerate(model.model.layers)
    }
    expected = outputs_of(model, {**blocks, **attentions}, ids)
    states = expected["hidden_states"]
    for layer in range(NUM_LAYERS):
        close(stacked(rows, f"layers.{layer}.input"), states[layer])
        if layer + 1 < NUM_LAYERS:
            close(stacked(rows, f"layers.{layer}.output"), states[layer + 1])
        for name in ("attn_out", "mlp_out"):
            site = f"layers.{layer}.{name}"
            if site in capture.sites:
                close(stacked(rows, site), expected[site])
    close(stacked(rows, "final_norm"), states[NUM_LAYERS])


def test_logprobs_are_those_of_transformers(directory: Path, family: str) -> None:
    rows = computed_rows(capture_of(directory, family))
    ids = torch.tensor([row.token["token_id"] for row in rows])
    model = model_of(directory, family)
    logprobs = outputs_of(model, {}, ids)["logits"].log_softmax(-1)
    for position in range(1, len(rows)):
        expected = float(logprobs[position - 1, ids[position]])
        assert abs(rows[position].token["logprob"] - expected) < TOLERANCE


def test_the_block_is_the_sum_of_its_experts(directory: Path, family: str) -> None:
    capture = capture_of(directory, family)
    rows = computed_rows(capture)
    for layer in range(NUM_LAYERS):
        routed, shared, block = (
            layer_site(layer, name) for name in ("routed_out", "shared_out", "mlp_out")
        )
        if {routed, block} <= set(capture.sites):
            parts = stacked(rows, routed)
            if shared in capture.sites:
                parts = parts + stacked(rows, shared)
            close(parts, stacked(rows, block), tolerance=1e-6)


def test_contracts_say_where_the_mathematics_is(directory: Path) -> None:
    def contracts(family: str) -> Any:
        return capture_of(directory, family).manifest.contracts

    qwen2, glm4 = contracts("qwen2_moe"), contracts("glm4_moe")
    assert (qwen2["shared_expert"], qwen2["renormalise"], qwen2["scoring"]) == (
        "inside",
        False,
        "softmax",
    )
    assert (glm4["scoring"], glm4["routed_scaling"], glm4["routed_scaling_at"]) == (
        "sigmoid",
        2.5,
        "output",
    )
    assert contracts("granitemoeshared")["shared_expert"] == "outside"
    # The runner was told not to renormalise; the numbers show that the model's own code did.
    by_transformers = contracts("by_transformers")
    assert by_transformers["scoring"] == "softmax"
    assert by_transformers["routed_scaling_at"] == "none"


def test_dense_layers_are_told_apart(directory: Path) -> None:
    capture = capture_of(directory, "glm4_moe")
    assert capture.manifest.model.layer_kinds == ("dense", "moe", "moe")
    assert capture.manifest.missing["layers.0.topk_ids"] == "a dense layer has no experts"
    assert "layers.0.mlp_out" in capture.sites


def close(found: np.ndarray, expected: np.ndarray, tolerance: float = TOLERANCE) -> None:
    scale = float(np.abs(expected).max())
    assert float(np.abs(found - expected).max()) <= tolerance * scale
