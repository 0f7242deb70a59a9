"""What a model is, read from its Hugging Face configuration, in the same words on both paths.

Reads attributes only, so it works for any configuration object; imports torch for the router's norm
and nothing of transformers or vLLM. The invariant: two engines that were given the same
`config.json` get the same hash.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from workbench.store import ModelFacts

_NUM_EXPERTS: Final = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_TOP_K: Final = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "top_k_experts",
    "moe_topk",
    "moe_k",
    "moe_top_k",
)
_NUM_LAYERS: Final = ("num_hidden_layers", "n_layer", "num_layers")
_HIDDEN_SIZE: Final = ("hidden_size", "n_embd", "d_model")

_VOLATILE: Final = frozenset(
    {
        "architectures",
        "attn_implementation",
        "auto_map",
        "bos_token_id",
        "chunk_size_feed_forward",
        "dtype",
        "eos_token_id",
        "experts_implementation",
        "id2label",
        "initializer_range",
        "label2id",
        "name_or_path",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "pad_token_id",
        "problem_type",
        "return_dict",
        "router_aux_loss_coef",
        "torch_dtype",
        "transformers_version",
        "use_cache",
    }
)
"""Keys that say how a model is loaded, trained or served, not what it computes."""


def model_facts(
    config: Any, model_id: str, *, layer_kinds: Sequence[str] | None = None
) -> ModelFacts:
    """The facts both paths must agree on.

    Args:
        config: A Hugging Face configuration; a multimodal one is read through its text part.
        model_id: Name or directory the model was loaded from.
        layer_kinds: `moe` or `dense` per layer where the live model was seen; worked out from the
            configuration when left out.
    """
    text = text_config(config)
    num_layers = _number(text, _NUM_LAYERS)
    num_experts = _number(text, _NUM_EXPERTS)
    if layer_kinds is None:
        layer_kinds = _layer_kinds(text, num_layers, num_experts)
    architectures = getattr(config, "architectures", None) or [getattr(config, "model_type", "")]
    return ModelFacts(
        id=model_id,
        architecture=str(architectures[0]),
        config_hash=config_hash(config),
        num_layers=num_layers,
        num_experts=num_experts,
        top_k=_number(text, _TOP_K) if num_experts else 0,
        hidden_size=_number(text, _HIDDEN_SIZE),
        vocab_size=_number(text, ("vocab_size",)),
        layer_kinds=tuple(layer_kinds),
    )


def text_config(config: Any) -> Any:
    """The part of a configuration that describes the language model."""
    for name in ("text_config", "llm_config", "language_config", "thinker_config"):
        nested = getattr(config, name, None)
        if nested is not None and not isinstance(nested, Mapping):
            return text_config(nested)
    return config


def config_hash(config: Any) -> str:
    """sha256 of the canonical configuration, without keys that do not change the mathematics.

    Keys that are absent and keys that are null count the same.
    """
    body = config.to_dict() if hasattr(config, "to_dict") else dict(vars(config))
    text = json.dumps(_canonical(body), sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def router_pair_norm(weight_ED: torch.Tensor) -> float:
    """Largest L2 norm of the difference of two router rows, in float64.

    For inputs x and x + d, the gap of any two scores moves by at most this times the L2 norm of d
    (Cauchy-Schwarz). 0.0 for fewer than two experts; NaN when a weight is not finite.
    """
    if weight_ED.shape[0] < 2:
        return 0.0
    exact_ED = weight_ED.detach().to("cpu", torch.float64)
    distance_EE = torch.cdist(exact_ED, exact_ED, compute_mode="donot_use_mm_for_euclid_dist")
    return float(distance_EE.max())


def _number(config: Any, names: Sequence[str]) -> int:
    for name in names:
        value = getattr(config, name, None)
        if isinstance(value, (list, tuple)) and value:
            value = max(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return 0


def _canonical(value: Any) -> Any:
    if isinstance(value, Mapping):
        kept = {str(k): _canonical(v) for k, v in value.items()}
        return {
            k: v
            for k, v in kept.items()
            if v is not None and not k.startswith("_") and k not in _VOLATILE
        }
    if isinstance(value, (list, tuple)):
        return [_canonical(item) for item in value]
    # 1e6 and 1000000 are one number that JSON readers type differently.
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _layer_kinds(text: Any, num_layers: int, num_experts: int) -> list[str]:
    if not num_experts:
        return ["dense"] * num_layers
    declared = getattr(text, "mlp_layer_types", None)
    if declared and len(declared) == num_layers:
        return ["dense" if kind == "dense" else "moe" for kind in declared]
    return ["moe" if _is_sparse(text, layer) else "dense" for layer in range(num_layers)]


def _is_sparse(text: Any, layer: int) -> bool:
    """The rules by which configurations place dense layers among sparse ones."""
    moe_layers = getattr(text, "moe_layers", None)
    if isinstance(moe_layers, (list, tuple)):
        return layer in moe_layers
    if layer in (getattr(text, "mlp_only_layers", None) or ()):
        return False
    num_dense = _number(
        text, ("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index")
    )
    if layer < num_dense:
        return False
    step = getattr(text, "decoder_sparse_step", None)
    return not isinstance(step, int) or step < 1 or (layer + 1) % step == 0
