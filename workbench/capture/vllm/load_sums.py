"""Weight fingerprints inside vLLM, taken where the weights still exist.

On CPU the engine empties linear weights once a kernel has packed them, so sums are taken between
loading and packing, and per layer again when weights are reloaded. Importing this module changes
nothing; `watch_loading()` patches the engine's loader in this process and must run before the model
loads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from vllm.model_executor.model_loader import base_loader
from vllm.model_executor.model_loader.reload import layerwise

from workbench.capture.fingerprint import canonical_parameter, fingerprint
from workbench.capture.model_facts import router_pair_norm
from workbench.store import ParameterSum

_ROUTER = re.compile(r"layers\.(\d+)\.router")
_MODULUS = 1 << 64


class LoadedSums:
    """Sums of one live model's parameters, as loaded, kept up to date over weight updates.

    Attributes:
        router_pair_norm: Largest L2 norm of the difference of two router weight rows, by layer.
        router_row_norm: Largest L2 norm of a router weight row, by layer.
        stale: Parameters that changed in a way that their sum cannot follow.
    """

    def __init__(self, model: nn.Module) -> None:
        self.router_pair_norm: dict[int, float] = {}
        self.router_row_norm: dict[int, float] = {}
        self.stale: set[str] = set()
        self._loaded: dict[str, ParameterSum] = {}
        self._packed: dict[str, ParameterSum] = {}
        for name, tensor in _weights(model):
            self.take(name, tensor)

    def take(self, name: str, tensor: torch.Tensor) -> None:
        """Sums one parameter as loaded."""
        self.stale.discard(name)
        self._loaded[name] = _sum(name, tensor)
        match = _ROUTER.fullmatch(canonical_parameter(name))
        if match is not None and tensor.ndim == 2:
            layer = int(match[1])
            self.router_pair_norm[layer] = router_pair_norm(tensor)
            self.router_row_norm[layer] = float(tensor.detach().double().norm(dim=1).max())

    def mark_packed(self, model: nn.Module) -> None:
        """Sums what is left of the parameters after the engine packed them for its kernels."""
        self._packed = {name: _sum(name, t) for name, t in _weights(model) if t.numel()}

    def refresh(self, model: nn.Module) -> None:
        """Follows updates that went past the loader: parameters written in place."""
        for name, tensor in _weights(model):
            before = self._packed.get(name)
            now = _sum(name, tensor) if before is not None and tensor.numel() else before
            if now is None or now == before:
                continue
            if self._loaded.get(name) == before:
                self.take(name, tensor)
            else:
                self.stale.add(name)
            self._packed[name] = now

    def canonical(self) -> dict[str, ParameterSum]:
        """Sums by canonical name, fused parts added up; parameters gone stale are left out."""
        groups: dict[str, list[ParameterSum]] = {}
        for name, part in self._loaded.items():
            groups.setdefault(canonical_parameter(name), []).append(part)
        for name in self.stale:
            groups.pop(canonical_parameter(name), None)
        sums = {
            name: ParameterSum(
                sum=sum(p.sum for p in parts) % _MODULUS,
                numel=sum(p.numel for p in parts),
                dtype="+".join(sorted({p.dtype for p in parts})),
            )
            for name, parts in groups.items()
        }
        head, embed = sums.get("head"), sums.get("embed")
        if head and embed and (head.sum, head.numel) == (embed.sum, embed.numel):
            # A tied head is the embedding; some engines list it and some do not.
            del sums["head"]
        return sums


_owners: WeakKeyDictionary[nn.Module, tuple[LoadedSums, str]] = WeakKeyDictionary()
_models: WeakKeyDictionary[nn.Module, LoadedSums] = WeakKeyDictionary()


def sums_of(model: nn.Module) -> LoadedSums | None:
    """Sums of a live model; None when it was loaded before `watch_loading()` ran."""
    return _models.get(model)


def watch_loading() -> None:
    """Patches the engine's loader in this process, once."""
    if getattr(base_loader.process_weights_after_loading, "_kldive", False):
        return
    pack = base_loader.process_weights_after_loading
    pack_layer = layerwise._layerwise_process

    @wraps(pack)
    def process_weights_after_loading(model: nn.Module, *args: Any, **kwargs: Any) -> Any:
        sums = LoadedSums(model)
        result = pack(model, *args, **kwargs)
        sums.mark_packed(model)
        _models[model] = sums
        for name, module in model.named_modules():
            _owners[module] = (sums, name)
        return result

    @wraps(pack_layer)
    def _layerwise_process(layer: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return _sum_layer_reload(layer, lambda: pack_layer(layer, *args, **kwargs))

    process_weights_after_loading._kldive = True  # type: ignore[attr-defined]
    base_loader.process_weights_after_loading = process_weights_after_loading
    layerwise._layerwise_process = _layerwise_process


def _sum_layer_reload(layer: nn.Module, reload: Any) -> Any:
    owner = _owners.get(layer)
    if owner is None:
        return reload()
    sums, prefix = owner

    def take() -> None:
        for name, tensor in layer.named_parameters(recurse=False):
            if tensor.numel():
                sums.take(f"{prefix}.{name}", tensor)

    method: Any = getattr(layer, "quant_method", None)
    packs = hasattr(method, "process_weights_after_loading")
    if packs:
        # The layer is loaded and packed in one call; the packing method sees it in between.
        original = method.process_weights_after_loading

        def process_weights_after_loading(*args: Any, **kwargs: Any) -> Any:
            take()
            return original(*args, **kwargs)

        method.process_weights_after_loading = process_weights_after_loading
    try:
        result = reload()
    finally:
        if packs:
            del method.process_weights_after_loading
    if not packs:
        take()
    for name, tensor in layer.named_parameters(recurse=False):
        if tensor.numel():
            sums._packed[f"{prefix}.{name}"] = _sum(f"{prefix}.{name}", tensor)
    return result


def _weights(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters()
    for name, buffer in model.named_buffers():
        if canonical_parameter(name).endswith("selection_bias"):
            yield name, buffer


def _sum(name: str, tensor: torch.Tensor) -> ParameterSum:
    (part,) = fingerprint([(name, tensor)]).values()
    return part
