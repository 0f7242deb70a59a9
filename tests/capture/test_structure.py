from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from torch import nn

from tests.capture.models import FAMILIES, make_model
from workbench.capture.layers import router_weight, score_projection, takes_choices
from workbench.capture.structure import find_parts
from workbench.errors import RecordingError


@pytest.mark.parametrize("family", FAMILIES)
def test_the_parts_of_every_family_are_found(family: str) -> None:
    model = make_model(family)
    layers = list(model.model.layers)
    parts = find_parts(model)
    assert parts.backbone is model.model
    assert parts.embedding is model.get_input_embeddings()
    assert [layer.module for layer in parts.layers] == layers
    assert parts.model is model
    for layer in parts.layers:
        assert layer.attention is not None
        if layer.experts is not None:
            assert type(layer.experts).__name__.endswith("Experts")
            num_experts = next(p.shape[0] for p in layer.experts.parameters() if p.ndim == 3)
            weight = router_weight(layer, parts.hidden_size)
            assert weight is not None
            assert weight.shape == (num_experts, 32)


def test_shared_experts_are_told_from_routed_ones() -> None:
    layer = find_parts(make_model("qwen2_moe")).layers[0]
    assert layer.block is not None
    assert layer.shared is layer.block.shared_expert
    assert layer.shared_gate is layer.block.shared_expert_gate
    assert layer.router is layer.block.gate
    assert layer.shared_inside


def test_only_routers_with_a_linear_of_their_own_have_a_projection() -> None:
    afmoe = find_parts(make_model("afmoe")).layers[1]
    assert score_projection(afmoe, 32) is afmoe.router.gate  # type: ignore[union-attr]
    assert score_projection(find_parts(make_model("qwen3_moe")).layers[0], 32) is None
    assert score_projection(find_parts(make_model("llama4_text")).layers[0], 32) is None


def test_experts_that_are_not_given_choices_are_known() -> None:
    experts = {f: find_parts(make_model(f)).layers[-1].experts for f in ("mixtral", "llama4_text")}
    assert [takes_choices(module) for module in experts.values() if module] == [True, False]


def test_a_wrapped_model_is_looked_through() -> None:
    model = make_model("qwen3_moe")
    assert find_parts(nn.DataParallel(model)).model is model


def test_an_adapted_model_is_looked_through() -> None:
    peft = pytest.importorskip("peft")
    model = make_model("qwen3_moe")
    adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"], r=2))
    parts = find_parts(adapted)
    assert parts.model is model
    assert parts.layers[0].kind == "moe"


def test_a_dense_model_has_dense_layers() -> None:
    config = transformers.LlamaConfig(
        vocab_size=11,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    parts = find_parts(transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32))
    assert [layer.kind for layer in parts.layers] == ["dense", "dense"]
    assert all(layer.block is not None for layer in parts.layers)


def test_a_model_without_decoder_layers_is_refused() -> None:
    class Odd(nn.Module):
        config: Any = transformers.LlamaConfig(num_hidden_layers=3)

        def get_output_embeddings(self) -> None: ...

    with pytest.raises(RecordingError, match="no list of decoder layers"):
        find_parts(Odd())
