"""Where a transformers model places the mathematics of its mixture of experts, as data.

Keys are the same on both paths, so that a difference of contract is told from a fault. What can be
read off recorded numbers is read there; the configuration only names what numbers do not show.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from torch import nn

from workbench.capture.gate import infer_gate
from workbench.capture.layers import LayerParts
from workbench.capture.structure import ModelParts
from workbench.names import layer_site

_SELECTION_BIAS: Final = ("e_score_correction_bias", "expert_bias")
_LOGIT_SCALE: Final = ("logits_scaling", "logit_scale", "final_logit_softcapping")


def model_contracts(parts: ModelParts, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The contracts of a model, from its first recorded forward.

    Args:
        parts: The model.
        arrays: Recorded arrays of the first forward by full site name.
    """
    contracts: dict[str, Any] = {
        "residual": "stream",
        "attention_classes": sorted(
            {type(p.attention).__name__ for p in parts.layers if p.attention is not None}
        ),
    }
    for name in _LOGIT_SCALE:
        value = getattr(parts.config, name, None)
        if isinstance(value, (int, float)) and value not in (0, 1):
            contracts[name] = value
    if "logits" in arrays:
        contracts["logits_dtype"] = arrays["logits"].dtype.name
    layer = next((p for p in parts.layers if p.kind == "moe"), None)
    if layer is not None:
        contracts.update(_moe_contracts(layer, arrays))
    return contracts


def _moe_contracts(layer: LayerParts, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "shared_expert": (
            "none" if layer.shared is None else "inside" if layer.shared_inside else "outside"
        ),
        "selection_bias": _has_selection_bias(layer),
        "gate_weights_on": "output",
    }
    sites = [layer_site(layer.index, n) for n in ("router_logits", "topk_ids", "topk_weights")]
    if not all(site in arrays for site in sites):
        return found
    logits_TE, topk_ids_TK, topk_weights_TK = (arrays[site] for site in sites)
    found["router_logits_dtype"] = logits_TE.dtype.name
    found["topk_weights_dtype"] = topk_weights_TK.dtype.name
    if type(layer.experts).__name__ == "Llama4TextExperts":
        found["gate_weights_on"] = "input"
    gate = infer_gate(logits_TE, topk_ids_TK, topk_weights_TK)
    if gate is not None:
        found["scoring"] = gate.scoring
        found["renormalise"] = gate.renormalise
        found["routed_scaling"] = _declared_scale(layer, gate.scale)
        found["routed_scaling_at"] = "none" if gate.scale == 1.0 else "gate_weights"
        found["topk_sorted"] = gate.topk_sorted
        found["selects_largest_scores"] = gate.selects_largest
    return found


def _has_selection_bias(layer: LayerParts) -> bool:
    home: nn.Module = layer.block if layer.block is not None else layer.module
    names = [name for name, _ in (*home.named_buffers(), *home.named_parameters())]
    return any(name.rpartition(".")[2] in _SELECTION_BIAS for name in names)


def _declared_scale(layer: LayerParts, measured: float) -> float:
    """The factor as the router states it, where the numbers agree with it to rounding."""
    for name in ("routed_scaling_factor", "route_scale"):
        value = getattr(layer.router, name, None)
        if isinstance(value, (int, float)) and abs(value - measured) <= 2.0**-6 * abs(measured):
            return float(value)
    return measured
