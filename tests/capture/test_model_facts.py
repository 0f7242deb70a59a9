from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import transformers

from tests.capture.models import FAMILIES, make_model
from workbench.capture.model_facts import config_hash, model_facts, router_pair_norm
from workbench.capture.structure import find_parts


def qwen(**changes: object) -> transformers.PretrainedConfig:
    return transformers.Qwen3MoeConfig(
        num_hidden_layers=4, num_experts=8, num_experts_per_tok=2, mlp_only_layers=[2], **changes
    )


def test_facts_of_a_configuration() -> None:
    facts = model_facts(qwen(architectures=["Qwen3MoeForCausalLM"]), "name")
    assert (facts.id, facts.architecture) == ("name", "Qwen3MoeForCausalLM")
    assert (facts.num_layers, facts.num_experts, facts.top_k) == (4, 8, 2)
    assert facts.layer_kinds == ("moe", "moe", "dense", "moe")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_names_its_counts_and_kinds_of_layers(family: str) -> None:
    model = make_model(family)
    facts = model_facts(model.config, "x")
    experts = find_parts(model).layers[-1].experts
    assert experts is not None
    assert facts.num_experts == next(p.shape[0] for p in experts.parameters() if p.ndim == 3)
    assert facts.top_k in (1, 2, 3)
    assert facts.num_layers == 3
    assert facts.layer_kinds == tuple(layer.kind for layer in find_parts(model).layers)


def test_a_dense_model_has_no_experts() -> None:
    facts = model_facts(transformers.LlamaConfig(num_hidden_layers=2), "x")
    assert (facts.num_experts, facts.top_k, facts.layer_kinds) == (0, 0, ("dense", "dense"))


def test_a_multimodal_configuration_is_read_through_its_text_part() -> None:
    text = qwen()
    facts = model_facts(SimpleNamespace(text_config=text, model_type="vl"), "x")
    assert (facts.num_layers, facts.num_experts) == (4, 8)


def test_the_hash_survives_saving_and_loading(tmp_path: Path) -> None:
    config = qwen(architectures=["Qwen3MoeForCausalLM"])
    config.save_pretrained(tmp_path)
    assert config_hash(transformers.AutoConfig.from_pretrained(tmp_path)) == config_hash(config)


def test_the_hash_ignores_how_a_model_is_loaded() -> None:
    changed = qwen(dtype="bfloat16", use_cache=False, output_router_logits=True)
    changed._attn_implementation = "eager"
    changed.transformers_version = "9.9"
    changed.name_or_path = "/elsewhere"
    assert config_hash(changed) == config_hash(qwen())


@pytest.mark.parametrize(
    "change", [{"norm_topk_prob": True}, {"rms_norm_eps": 1e-5}, {"rope_theta": 5e5}]
)
def test_the_hash_sees_what_changes_the_mathematics(change: dict[str, object]) -> None:
    assert config_hash(qwen(**change)) != config_hash(qwen())


def test_the_pair_norm_by_hand() -> None:
    # Rows (0, 0), (3, 4), (3, 0): distances 5, 3, 4.
    assert router_pair_norm(torch.tensor([[0.0, 0.0], [3.0, 4.0], [3.0, 0.0]])) == 5.0


def test_the_pair_norm_bounds_how_far_two_scores_can_move_apart() -> None:
    generator = torch.Generator().manual_seed(0)
    weight_ED = torch.randn(16, 32, generator=generator, dtype=torch.float64)
    change_D = torch.randn(32, generator=generator, dtype=torch.float64)
    moved_E = weight_ED @ change_D
    assert float(moved_E.max() - moved_E.min()) <= router_pair_norm(weight_ED) * float(
        change_D.norm()
    )


def test_the_pair_norm_of_a_single_expert_is_zero_and_of_nan_is_nan() -> None:
    assert router_pair_norm(torch.ones(1, 4)) == 0.0
    assert math.isnan(router_pair_norm(torch.tensor([[float("nan")], [1.0]])))
