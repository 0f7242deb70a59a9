from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.capture.models import make_model, random_ids
from workbench.capture.trainer import record
from workbench.store import Manifest, read_manifest


def manifest_of(model: Any, directory: Path) -> Manifest:
    with torch.no_grad(), record(model, directory):
        model(input_ids=torch.tensor(random_ids(24)))
    return read_manifest(directory)


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        (
            "qwen3_moe",
            {
                "scoring": "softmax",
                "renormalise": True,
                "routed_scaling": 1.0,
                "shared_expert": "none",
            },
        ),
        ("qwen2_moe", {"scoring": "softmax", "renormalise": False, "shared_expert": "inside"}),
        ("mixtral", {"scoring": "softmax", "renormalise": True, "topk_sorted": True}),
        (
            "glm4_moe",
            {
                "scoring": "sigmoid",
                "renormalise": True,
                "routed_scaling": 2.5,
                "routed_scaling_at": "gate_weights",
                "selection_bias": True,
                "topk_sorted": False,
                "selects_largest_scores": False,
            },
        ),
        ("granitemoe", {"scoring": "softmax", "renormalise": True, "logits_scaling": 4.0}),
        ("llama4_text", {"scoring": "sigmoid", "renormalise": False, "gate_weights_on": "input"}),
        ("lfm2_moe", {"scoring": "sigmoid", "renormalise": True, "selection_bias": True}),
    ],
)
def test_contracts_are_read_off_the_model(
    family: str, expected: dict[str, Any], tmp_path: Path
) -> None:
    found = manifest_of(make_model(family), tmp_path / "c").contracts
    assert {name: found[name] for name in expected} == expected
    assert found["residual"] == "stream"


def test_a_switch_that_the_model_ignores_does_not_fool_the_contract(tmp_path: Path) -> None:
    # mixtral always renormalises, whatever its configuration says.
    model = make_model("mixtral", norm_topk_prob=False)
    assert manifest_of(model, tmp_path / "c").contracts["renormalise"] is True


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_the_attention_that_runs_is_read_from_the_live_model(
    implementation: str, tmp_path: Path
) -> None:
    model = make_model("qwen3_moe")
    model.set_attn_implementation(implementation)
    knobs = manifest_of(model, tmp_path / "c").knobs
    assert knobs["attn_implementation"] == implementation


@pytest.mark.parametrize("implementation", ["eager", "grouped_mm", "batched_mm"])
def test_the_experts_that_run_are_read_from_the_live_model(
    implementation: str, tmp_path: Path
) -> None:
    model = make_model("qwen3_moe")
    model.set_experts_implementation(implementation)
    assert manifest_of(model, tmp_path / "c").knobs["experts_implementation"] == implementation


def test_autocast_and_training_are_read_when_the_model_runs(tmp_path: Path) -> None:
    model = make_model("qwen3_moe")
    with torch.no_grad(), record(model, tmp_path / "c"):
        model.train()
        with torch.autocast("cpu", torch.bfloat16):
            model(input_ids=torch.tensor(random_ids(6)))
    manifest = read_manifest(tmp_path / "c")
    assert manifest.knobs["autocast"] == "bfloat16"
    assert manifest.knobs["training"] is True
    assert manifest.sites["layers.0.attn_out"].dtype == "bfloat16"
    assert manifest.dtype == "float32"


def test_an_experts_switch_that_a_class_does_not_have_is_not_reported_as_used(
    tmp_path: Path,
) -> None:
    model = make_model("llama4_text")
    model.config._experts_implementation = "grouped_mm"
    assert manifest_of(model, tmp_path / "c").knobs["experts_implementation"] == "own"


def test_the_manifest_says_what_ran(tmp_path: Path) -> None:
    manifest = manifest_of(make_model("qwen3_moe"), tmp_path / "c")
    assert manifest.engine == "transformers"
    assert {"python", "torch", "transformers"} <= set(manifest.versions)
    assert manifest.device == "cpu"
    assert manifest.dtype == "float32"
    assert manifest.model.architecture == "Qwen3MoeForCausalLM"
    assert set(manifest.router_pair_norm) == {0, 2}
    assert manifest.weights["layers.0.router"].numel == 8 * 32
    assert manifest.knobs["training"] is False
    assert "a row's logprob is" in manifest.convention
