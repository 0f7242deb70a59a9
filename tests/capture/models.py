"""Tiny random models of several families, made from configurations; nothing is downloaded."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import transformers

VOCAB_SIZE = 61

_COMMON: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
    "pad_token_id": 0,
}
_FAMILIES: dict[str, dict[str, Any]] = {
    "qwen3_moe": {
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "norm_topk_prob": True,
        "mlp_only_layers": [1],
    },
    "mixtral": {"num_local_experts": 6, "num_experts_per_tok": 2},
    "qwen2_moe": {
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 24,
        "norm_topk_prob": False,
    },
    "glm4_moe": {
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "n_shared_experts": 1,
        "n_group": 2,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        "routed_scaling_factor": 2.5,
        "norm_topk_prob": True,
    },
    "granitemoe": {
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "logits_scaling": 4.0,
        "embedding_multiplier": 3.0,
        "residual_multiplier": 0.5,
    },
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 64},
    "llama4_text": {
        "num_local_experts": 4,
        "num_experts_per_tok": 1,
        "intermediate_size_mlp": 32,
        "interleave_moe_layer_step": 1,
        "attn_temperature_tuning": False,
    },
    "lfm2_moe": {
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "num_dense_layers": 1,
        "layer_types": ["conv", "full_attention", "conv"],
    },
    "afmoe": {
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "num_dense_layers": 1,
        "num_shared_experts": 1,
        "layer_types": ["full_attention"] * 3,
    },
    "gemma4_text": {
        "enable_moe_block": True,
        "num_experts": 8,
        "top_k_experts": 2,
        "moe_intermediate_size": 16,
        "global_head_dim": 8,
        "hidden_size_per_layer_input": 0,
        "num_kv_shared_layers": 0,
        "layer_types": ["full_attention"] * 3,
    },
}
FAMILIES = tuple(_FAMILIES)


def make_model(family: str, *, seed: int = 0, **changes: Any) -> Any:
    """A random float32 model in eval mode; routers are spread out so that choices differ."""
    config = transformers.CONFIG_MAPPING[family](**{**_COMMON, **_FAMILIES[family], **changes})
    config.architectures = [_architecture(family)]
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if name.endswith(("gate.weight", "router.weight", "router.proj.weight")):
                tensor.normal_(0.0, 0.5, generator=generator)
            elif name.endswith(("e_score_correction_bias", "expert_bias")):
                tensor.normal_(0.0, 0.3, generator=generator)
            elif tensor.ndim >= 2 and "inv_freq" not in name:
                tensor.normal_(0.0, 0.2, generator=generator)
    return model.eval()


@cache
def _architecture(family: str) -> str:
    mapping = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    return str(mapping[family])


def random_ids(*lengths: int, seed: int = 1) -> list[list[int]]:
    """Token lists of the given lengths, padding id left out."""
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randint(1, VOCAB_SIZE, (length,), generator=generator).tolist() for length in lengths
    ]
