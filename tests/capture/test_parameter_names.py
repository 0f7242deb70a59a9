from __future__ import annotations

import pytest

from workbench.capture.parameter_names import canonical_parameter

SAME = {
    "layers.0.attn.qkv": [
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.0.self_attn.k_proj.weight",
        "model.layers.0.self_attn.v_proj.weight",
        "model.layers.0.self_attn.qkv_proj.weight",
        "language_model.model.layers.0.self_attn.qkv_proj.weight",
        "model.layers.0.attn.qkv_proj.weight",
        "base_model.model.model.layers.0.self_attn.q_proj.base_layer.weight",
        "_orig_mod.model.layers.0.self_attn.q_proj.weight",
    ],
    "layers.0.attn.qkv.bias": [
        "model.layers.0.self_attn.q_proj.bias",
        "model.layers.0.self_attn.qkv_proj.bias",
    ],
    "layers.0.attn.out": [
        "model.layers.0.self_attn.o_proj.weight",
        "model.layers.0.attn.o_proj.weight",
        "model.layers.0.linear_attn.out_proj.weight",
    ],
    "layers.0.attn.qkv_a": [
        "model.layers.0.self_attn.q_a_proj.weight",
        "model.layers.0.self_attn.kv_a_proj_with_mqa.weight",
        "model.layers.0.self_attn.fused_qkv_a_proj.weight",
    ],
    "layers.0.attn.in_proj": [
        "model.layers.0.linear_attn.in_proj_qkvz.weight",
        "model.layers.0.linear_attn.in_proj_z.weight",
    ],
    "layers.0.attn.q_norm": ["model.layers.0.self_attn.q_norm.weight"],
    "layers.11.router": [
        "model.layers.11.mlp.gate.weight",
        "model.layers.11.mlp.router.weight",
        "model.layers.11.block_sparse_moe.router.layer.weight",
        "model.layers.11.block_sparse_moe.gate.weight",
        "model.layers.11.feed_forward.router.weight",
        "model.layers.11.mlp.router.gate.weight",
        "model.layers.11.router.proj.weight",
    ],
    "layers.11.router.bias": ["model.layers.11.mlp.router.bias"],
    "layers.11.router.selection_bias": [
        "model.layers.11.mlp.gate.e_score_correction_bias",
        "model.layers.11.feed_forward.expert_bias",
        "model.layers.11.mlp.gate.moe_statics.e_score_correction_bias",
    ],
    "layers.2.experts.gate_up": [
        "model.layers.2.mlp.experts.gate_up_proj",
        "model.layers.2.mlp.experts.routed_experts.w13_weight",
        "model.layers.2.mlp.experts.w13_weight",
        "model.layers.2.mlp.experts.5.gate_proj.weight",
        "model.layers.2.mlp.experts.5.up_proj.weight",
        "model.layers.2.block_sparse_moe.experts.5.w1.weight",
        "model.layers.2.block_sparse_moe.experts.5.w3.weight",
        "model.layers.2.experts.gate_up_proj",
    ],
    "layers.2.experts.gate_up.bias": [
        "model.layers.2.mlp.experts.gate_up_proj_bias",
        "model.layers.2.mlp.experts.routed_experts.w13_bias",
    ],
    "layers.2.experts.down": [
        "model.layers.2.mlp.experts.down_proj",
        "model.layers.2.mlp.experts.routed_experts.w2_weight",
        "model.layers.2.block_sparse_moe.experts.5.w2.weight",
    ],
    "layers.2.shared.gate_up": [
        "model.layers.2.mlp.shared_expert.gate_proj.weight",
        "model.layers.2.mlp.shared_experts.gate_up_proj.weight",
        "model.layers.2.shared_mlp.input_linear.weight",
    ],
    "layers.2.shared.down": [
        "model.layers.2.mlp.shared_experts.down_proj.weight",
        "model.layers.2.shared_mlp.output_linear.weight",
    ],
    "layers.2.shared.gate": ["model.layers.2.mlp.shared_expert_gate.weight"],
    "layers.1.mlp.gate_up": [
        "model.layers.1.mlp.gate_proj.weight",
        "model.layers.1.mlp.gate_up_proj.weight",
        "model.layers.1.feed_forward.w1.weight",
        "model.layers.1.feed_forward.w13.weight",
    ],
    "layers.1.mlp.down": [
        "model.layers.1.mlp.down_proj.weight",
        "model.layers.1.feed_forward.w2.weight",
    ],
    "layers.1.input_layernorm": [
        "model.layers.1.input_layernorm.weight",
        "model.language_model.layers.1.input_layernorm.weight",
    ],
    "embed": ["model.embed_tokens.weight", "model.embedding.weight"],
    "final_norm": ["model.norm.weight", "model.embedding_norm.weight"],
    "head": ["lm_head.weight"],
    "head.bias": ["lm_head.bias"],
}


@pytest.mark.parametrize(("canonical", "names"), SAME.items(), ids=list(SAME))
def test_names_of_every_engine_meet(canonical: str, names: list[str]) -> None:
    assert {canonical_parameter(name) for name in names} == {canonical}


def test_a_router_is_not_a_gate_projection() -> None:
    names = [
        "model.layers.0.mlp.gate.weight",
        "model.layers.0.mlp.gate_proj.weight",
        "model.layers.0.mlp.experts.0.gate_proj.weight",
        "model.layers.0.mlp.shared_expert_gate.weight",
        "model.layers.0.self_attn.gate_proj.weight",
    ]
    assert len({canonical_parameter(name) for name in names}) == len(names)


def test_unknown_names_keep_their_path() -> None:
    assert (
        canonical_parameter("model.visual.blocks.3.attn.qkv.weight") == "visual.blocks.3.attn.qkv"
    )
    assert canonical_parameter("model.layers.0.mamba.A_log") == "layers.0.mamba.A_log"


def test_adapter_matrices_are_not_added_to_the_weights_they_adapt() -> None:
    adapter = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight"
    assert canonical_parameter(adapter) == "layers.0.self_attn.q_proj.lora_A.default.weight"
