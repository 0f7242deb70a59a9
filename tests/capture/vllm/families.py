"""Tiny random models of several families, each recorded by an engine of its own in one process.

Run as `python -m tests.capture.vllm.families DIRECTORY`: leaves DIRECTORY/NAME/model and
DIRECTORY/NAME/capture. Engines cannot share a process while both live, so tests call this as a
command.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import tests.conftest  # noqa: F401 - sets the environment before torch loads
from workbench.capture.requests import Request
from workbench.capture.vllm.engine import RolloutSettings, capture_rollout

COMMON: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "qwen2_moe": (
        "Qwen2MoeConfig",
        "Qwen2MoeForCausalLM",
        {
            "intermediate_size": 64,
            "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 64,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "norm_topk_prob": False,
        },
    ),
    "glm4_moe": (
        "Glm4MoeConfig",
        "Glm4MoeForCausalLM",
        {
            "intermediate_size": 64,
            "moe_intermediate_size": 32,
            "head_dim": 32,
            "n_routed_experts": 8,
            "num_experts_per_tok": 2,
            "n_shared_experts": 1,
            "first_k_dense_replace": 1,
            "n_group": 1,
            "topk_group": 1,
            "routed_scaling_factor": 2.5,
        },
    ),
    "granitemoeshared": (
        "GraniteMoeSharedConfig",
        "GraniteMoeSharedForCausalLM",
        {
            "intermediate_size": 32,
            "shared_intermediate_size": 64,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "residual_multiplier": 0.5,
        },
    ),
    "by_transformers": (
        "Qwen3MoeConfig",
        "Qwen3MoeForCausalLM",
        {
            "intermediate_size": 64,
            "moe_intermediate_size": 32,
            "head_dim": 32,
            "num_experts": 8,
            "num_experts_per_tok": 2,
        },
    ),
}
ENGINE_OPTIONS: dict[str, dict[str, Any]] = {"by_transformers": {"model_impl": "transformers"}}
PROMPT = (5, 9, 2, 77, 31, 8)


def make_model(name: str, directory: Path) -> Any:
    """Saves a random model of a family, float32, weights of a size that makes routers decide."""
    import torch
    import transformers

    config_name, model_name, options = FAMILIES[name]
    torch.manual_seed(3)
    config = getattr(transformers, config_name)(**COMMON, **options, pad_token_id=0)
    model = getattr(transformers, model_name)(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.normal_(std=0.2)
    model.save_pretrained(directory)
    return model


def record(name: str, directory: Path) -> None:
    """Makes one family's model and records a short rollout of it."""
    make_model(name, directory / "model")
    capture_rollout(
        directory / "model",
        [Request(name="r", prompt_token_ids=PROMPT)],
        directory / "capture",
        settings=RolloutSettings(
            max_tokens=5,
            ignore_eos=True,
            logits=True,
            dtype="float32",
            max_model_len=64,
            num_kv_blocks=8,
            prompt_logprobs=True,
            engine_options={
                "skip_tokenizer_init": True,
                "block_size": 32,
                **ENGINE_OPTIONS.get(name, {}),
            },
        ),
    )


if __name__ == "__main__":
    for family in sys.argv[2:] or list(FAMILIES):
        record(family, Path(sys.argv[1]) / family)
