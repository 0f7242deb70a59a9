"""What a live transformers model is: versions, knobs, weights and facts for the manifest.

Knobs are read from the live model, not from what was asked for: an implementation that was
requested and is not available may be replaced silently.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

import torch
from torch import nn

from workbench import names
from workbench.capture.arrays import dtype_name
from workbench.capture.fingerprint import fingerprint
from workbench.capture.layers import router_weight
from workbench.capture.model_facts import model_facts, router_pair_norm
from workbench.capture.structure import ModelParts
from workbench.errors import RecordingError
from workbench.names import LAYER_SITES, execution_order, layer_site
from workbench.store import Manifest, ParameterSum

_PACKAGES: Final = (
    "torch",
    "transformers",
    "peft",
    "accelerate",
    "flash-attn",
    "triton",
    "kernels",
)


def draft_manifest(
    parts: ModelParts, *, path: names.Path, model_id: str | None, knobs: Mapping[str, Any]
) -> Manifest:
    """Everything that is known before the first forward.

    Raises:
        RecordingError: Weights without data.
    """
    config = parts.model.config
    name = model_id or str(getattr(config, "_name_or_path", "") or type(parts.model).__name__)
    return Manifest(
        path=path,
        engine="transformers",
        versions=package_versions(),
        device=device_name(parts.model),
        dtype=model_dtype(parts.model),
        model=model_facts(config, name, layer_kinds=[p.kind for p in parts.layers]),
        knobs={**live_knobs(parts), **knobs},
        missing=known_missing(parts),
        weights=weights_fingerprint(parts.model),
        router_pair_norm=router_norms(parts),
    )


def package_versions() -> dict[str, str]:
    """Versions of the packages that matter, of those that are installed."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def device_name(model: nn.Module) -> str:
    """`cpu`, or the accelerator's name."""
    device = next(model.parameters()).device
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def model_dtype(model: nn.Module) -> str:
    """The type that most of the weights are held in."""
    counts: dict[torch.dtype, int] = {}
    for parameter in model.parameters():
        counts[parameter.dtype] = counts.get(parameter.dtype, 0) + parameter.numel()
    return dtype_name(max(counts, key=lambda dtype: counts[dtype]))


def live_knobs(parts: ModelParts) -> dict[str, Any]:
    """Settings that affect numerics, flat, as the live model and torch hold them now."""
    experts = sorted({experts_implementation(p.experts) for p in parts.layers if p.experts})
    return {
        "attn_implementation": "+".join(attention_implementations(parts)) or "none",
        "experts_implementation": "+".join(experts) or "none",
        "model_class": type(parts.model).__name__,
        "training": parts.model.training,
        "autocast": _autocast(next(parts.model.parameters()).device.type),
        "gradient_checkpointing": bool(getattr(parts.model, "is_gradient_checkpointing", False)),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "num_threads": torch.get_num_threads(),
    }


def _autocast(device_type: str) -> str:
    if not torch.is_autocast_enabled(device_type):
        return "off"
    return dtype_name(torch.get_autocast_dtype(device_type))


def attention_implementations(parts: ModelParts) -> list[str]:
    """The attention functions that the layers will really look up when they run."""
    found = set()
    for layer in parts.layers:
        if layer.attention is not None:
            config = getattr(layer.attention, "config", parts.config)
            found.add(str(getattr(config, "_attn_implementation", None) or "eager"))
    return sorted(found)


def experts_implementation(experts: nn.Module) -> str:
    """The experts function that a module will really look up when it runs."""
    # Set by transformers on classes that can switch; others have their own forward alone.
    if not hasattr(experts, "_is_expert_parallel"):
        return "own"
    return str(getattr(experts.config, "_experts_implementation", None) or "eager")


def weight_tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters, and the buffers that are saved with a model: selection biases are weights too."""
    yield from model.named_parameters()
    for prefix, module in model.named_modules():
        fleeting = vars(module).get("_non_persistent_buffers_set", ())
        for name, buffer in module.named_buffers(recurse=False):
            if name not in fleeting and buffer.is_floating_point():
                yield (f"{prefix}.{name}" if prefix else name), buffer


def weights_fingerprint(model: nn.Module) -> dict[str, ParameterSum]:
    """The fingerprint of a live model.

    Raises:
        RecordingError: A weight has no data here (offloaded or never loaded).
    """
    return fingerprint(weight_tensors(model))


def weights_version(model: nn.Module) -> int:
    """A number that grows whenever a weight is written in place, for weights that count writes."""
    total = 0
    for _, tensor in weight_tensors(model):
        if not tensor.is_inference():
            total += tensor._version  # noqa: SLF001 - torch's own counter, public in name only
    return total


def router_norms(parts: ModelParts) -> dict[int, float]:
    """`router_pair_norm` per layer that has a router."""
    norms = {}
    for layer in parts.layers:
        weight = router_weight(layer, parts.hidden_size)
        if weight is not None:
            norms[layer.index] = router_pair_norm(weight)
    return norms


def known_missing(parts: ModelParts) -> dict[str, str]:
    """Sites that cannot be had, by full name, with the reason."""
    return {
        layer_site(layer.index, site): layer.missing[site]
        for layer in parts.layers
        for site in LAYER_SITES
        if site in layer.missing
    }


def silent_sites(parts: ModelParts, seen: set[str]) -> dict[str, str]:
    """Sites that neither were seen nor are known to be missing.

    Raises:
        RecordingError: No layer was seen at all.
    """
    if not any(site.startswith("layers.") for site in seen):
        raise RecordingError(
            "the model ran and no hook fired",
            where=type(parts.model).__name__,
            expected="a forward in eager mode through the model's own layers",
            do="record without torch.compile or captured graphs",
        )
    known = known_missing(parts)
    return {
        site: "its module did not run, or gave no tensor, in the first forward"
        for site in execution_order(len(parts.layers))
        if site not in seen and site not in known and site != "logits"
    }
