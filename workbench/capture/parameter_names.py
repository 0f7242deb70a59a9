"""One name for a weight, whatever engine holds it. Stdlib only.

The invariant: parameters that some engine fuses or splits (q, k and v; gate and up; experts one by
one or stacked) get one canonical name, so that their bit sums can be added and compared. A name
that no rule knows keeps its path, so that it still compares with the same path elsewhere.
"""

from __future__ import annotations

import re
from typing import Final

_WRAPPERS: Final = frozenset(
    {
        "_orig_mod",
        "_fsdp_wrapped_module",
        "_checkpoint_wrapped_module",
        "base_layer",
        "module",
        "modules_to_save",
    }
)
_PREFIXES: Final = frozenset(
    {"model", "language_model", "text_model", "transformer", "base_model", "backbone", "decoder"}
)
_ATTENTION: Final = frozenset(
    {"self_attn", "attn", "attention", "self_attention", "linear_attn", "linear_attention"}
)
_FEED_FORWARD: Final = frozenset(
    {"mlp", "feed_forward", "block_sparse_moe", "ffn", "moe", "sparse_moe"}
)
_LAYER_LISTS: Final = frozenset({"layers", "h"})

_ROLES: Final[dict[str, str]] = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj", "kv_proj", "qkv_proj", "qkv"), "qkv"),
    "query_key_value": "qkv",
    **dict.fromkeys(("q_a_proj", "kv_a_proj_with_mqa", "fused_qkv_a_proj"), "qkv_a"),
    **dict.fromkeys(("o_proj", "out_proj", "dense", "wo"), "out"),
}
_IN_PROJECTION: Final = re.compile(r"in_proj(_[a-z]+)?")
_GATE_UP: Final = frozenset(
    {"gate_proj", "up_proj", "gate_up_proj", "gate_and_up_proj", "input_linear"}
    | {"w1", "w3", "w13", "w13_weight", "w1_weight", "w3_weight"}
)
_DOWN: Final = frozenset({"down_proj", "output_linear", "w2", "w2_weight"})
_ROUTER: Final = frozenset({"gate", "router"})
_SELECTION_BIAS: Final = frozenset({"e_score_correction_bias", "expert_bias"})
_MODEL_LEVEL: Final[dict[str, str]] = {
    **dict.fromkeys(
        ("embed_tokens", "embedding", "wte", "word_embeddings", "tok_embeddings"), "embed"
    ),
    **dict.fromkeys(
        ("norm", "final_layernorm", "final_norm", "ln_f", "embedding_norm"), "final_norm"
    ),
    **dict.fromkeys(("lm_head", "output", "embed_out"), "head"),
}


def canonical_parameter(name: str) -> str:
    """The name under which a parameter's bits are summed, the same for every engine.

    Biases stay apart from their weights, with `.bias` added. A layer's norm keeps its own name.

    >>> canonical_parameter("model.layers.3.self_attn.k_proj.weight")
    'layers.3.attn.qkv'
    >>> canonical_parameter("model.layers.3.mlp.experts.routed_experts.w13_weight")
    'layers.3.experts.gate_up'
    >>> canonical_parameter("model.layers.3.block_sparse_moe.experts.7.w2.weight")
    'layers.3.experts.down'
    """
    parts = [part for part in name.split(".") if part not in _WRAPPERS]
    if any(part.startswith("lora_") for part in parts):
        return ".".join(_without_prefix(parts))
    parts, kind = _split_kind(_without_prefix(parts))
    if len(parts) == 1:
        return _MODEL_LEVEL.get(parts[0], parts[0]) + kind
    if len(parts) >= 2 and parts[0] in _LAYER_LISTS and parts[1].isdecimal():
        return f"layers.{int(parts[1])}.{_in_layer(parts[2:])}{kind}"
    return ".".join(parts) + kind


def _without_prefix(parts: list[str]) -> list[str]:
    start = 0
    while start < len(parts) - 1 and parts[start] in _PREFIXES:
        start += 1
    return parts[start:]


def _split_kind(parts: list[str]) -> tuple[list[str], str]:
    """Takes `weight` and `bias` off the end; a bias comes back as a suffix."""
    leaf = parts[-1]
    if leaf == "weight" and len(parts) > 1:
        return parts[:-1], ""
    if leaf == "bias" and len(parts) > 1:
        return parts[:-1], ".bias"
    for ending in ("_proj_bias", "w13_bias", "w2_bias", "w1_bias", "w3_bias"):
        if leaf.endswith(ending):
            return [*parts[:-1], leaf.removesuffix("_bias")], ".bias"
    return parts, ""


def _in_layer(parts: list[str]) -> str:
    if not parts:
        return ""
    leaf = parts[-1]
    if leaf in _SELECTION_BIAS:
        return "router.selection_bias"
    if any(part.startswith("shared_") or part == "expert_gate" for part in parts):
        return _feed_forward("shared", parts)
    if parts[0] in _ATTENTION:
        return _attention(parts[1:])
    if leaf in _ROUTER or (len(parts) > 1 and parts[-2] in _ROUTER and leaf in ("layer", "proj")):
        return "router"
    if "experts" in parts or "routed_experts" in parts:
        return _feed_forward("experts", parts)
    if parts[0] in _FEED_FORWARD:
        return _feed_forward("mlp", parts)
    return ".".join(parts)


def _attention(parts: list[str]) -> str:
    if not parts:
        return "attn"
    leaf = parts[-1]
    if _IN_PROJECTION.fullmatch(leaf):
        return "attn.in_proj"
    role = _ROLES.get(leaf)
    return f"attn.{role}" if role else f"attn.{'.'.join(parts)}"


def _feed_forward(block: str, parts: list[str]) -> str:
    leaf = parts[-1]
    if block == "shared" and leaf in ("shared_expert_gate", "expert_gate"):
        return "shared.gate"
    if leaf in _GATE_UP:
        return f"{block}.gate_up"
    if leaf in _DOWN:
        return f"{block}.down"
    inner = [p for p in parts[1:] if p not in ("experts", "routed_experts") and not p.isdecimal()]
    return ".".join([block, *inner])
