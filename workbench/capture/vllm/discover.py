"""Finding the places to record in a live vLLM model, by contract and never by model name.

A decoder is the ModuleList with as many members as the configuration has layers, whose members hold
engine attention or a mixture of experts. A mixture of experts is whatever has
`.router.select_experts` and `.routed_experts`. Nothing is changed here; places that cannot be had
come with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.model_executor.layers.vocab_parallel_embedding import (
    ParallelLMHead,
    VocabParallelEmbedding,
)

from workbench.errors import RecordingError


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerParts:
    """The parts of one decoder layer.

    Attributes:
        index: Layer number from 0.
        module: The layer itself.
        attention: Its attention, or what stands in for it (linear attention, state space).
        block: Its MoE block or dense MLP.
        runner: The engine's MoE runner inside the block; None in a dense layer.
        outside_shared: A shared expert that runs beside the runner, not in it.
        norms: Direct children that normalise.
        missing: Short site name to the reason why this layer cannot give it.
    """

    index: int
    module: nn.Module
    attention: nn.Module | None
    block: nn.Module | None
    runner: Any
    outside_shared: nn.Module | None = None
    norms: tuple[nn.Module, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """`moe` or `dense`."""
        return "dense" if self.runner is None else "moe"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelParts:
    """A decoder's layers with what stands before and after them."""

    layers: tuple[LayerParts, ...]
    embedding: nn.Module | None
    final_norms: tuple[nn.Module, ...]

    def runners(self) -> Iterator[tuple[int, Any]]:
        """Layer number and runner of every MoE layer."""
        for layer in self.layers:
            if layer.runner is not None:
                yield layer.index, layer.runner


def find_parts(model: nn.Module, num_layers: int) -> ModelParts:
    """Finds the decoder of a live model.

    Args:
        model: As the engine holds it.
        num_layers: Number of hidden layers its configuration states.

    Raises:
        RecordingError: No list of decoder layers was found.
    """
    found = [
        (parent, child)
        for parent in model.modules()
        for child in parent.children()
        if isinstance(child, nn.ModuleList) and len(child) > 0
    ]
    exact = [item for item in found if len(item[1]) == num_layers] or found
    scored = [(sum(_is_decoder_layer(m) for m in child), parent, child) for parent, child in exact]
    best = max(scored, key=lambda item: (item[0], len(item[2])), default=None)
    if best is None:
        raise RecordingError(
            "found no list of decoder layers in the model",
            where=type(model).__name__,
            expected=f"a ModuleList of {num_layers} layers with attention or a mixture of experts",
            do="this architecture cannot be recorded yet",
        )
    _, parent, members = best
    return ModelParts(
        layers=tuple(_layer_parts(index, module) for index, module in enumerate(members)),
        embedding=_embedding(parent) or _embedding(model),
        final_norms=tuple(child for child in parent.children() if is_norm(child)),
    )


def is_runner(module: Any) -> bool:
    """Whether a module is the engine's MoE runner."""
    router = getattr(module, "router", None)
    return hasattr(router, "select_experts") and hasattr(module, "routed_experts")


def is_norm(module: nn.Module) -> bool:
    """Whether a module normalises: a class with `Norm` in its name and no parts of its own."""
    return "norm" in type(module).__name__.lower() and not any(True for _ in module.children())


def _has_parameters(module: nn.Module) -> bool:
    # Shapes say nothing here: on CPU the engine empties linear weights after packing them.
    return any(True for _ in module.parameters())


def _is_decoder_layer(module: nn.Module) -> bool:
    return any(isinstance(m, AttentionLayerBase) or is_runner(m) for m in module.modules())


def _has_attention(module: nn.Module) -> bool:
    return any(isinstance(m, AttentionLayerBase) for m in module.modules())


def _embedding(root: nn.Module) -> nn.Module | None:
    for module in root.modules():
        if isinstance(module, VocabParallelEmbedding) and not isinstance(module, ParallelLMHead):
            found: nn.Module = module
            return found
    return None


def _layer_parts(index: int, layer: nn.Module) -> LayerParts:
    children = dict(layer.named_children())
    heavy = {
        name: child
        for name, child in children.items()
        if not is_norm(child) and _has_parameters(child)
    }
    attention, why_no_attention = _attention(heavy)
    blocks = {name: m for name, m in heavy.items() if m is not attention and not _has_attention(m)}
    moe = {name: m for name, m in blocks.items() if any(is_runner(x) for x in m.modules())}
    shared = {name: m for name, m in blocks.items() if "shared" in name and name not in moe}
    dense = {name: m for name, m in blocks.items() if name not in moe and name not in shared}
    missing: dict[str, str] = {}
    if attention is None:
        missing["attn_in"] = missing["attn_out"] = why_no_attention
    block = next(iter((moe or dense).values()), None)
    if block is None:
        missing["mlp_in"] = missing["mlp_out"] = "no feed-forward block was found in this layer"
    elif len(moe) > 1 or (not moe and len(dense) > 1) or (moe and (dense or shared)):
        missing["mlp_out"] = f"the layer adds several branches: {', '.join(blocks)}"
    runner = next((m for m in block.modules() if is_runner(m)), None) if block and moe else None
    return LayerParts(
        index=index,
        module=layer,
        attention=attention,
        block=block,
        runner=runner,
        outside_shared=next(iter(shared.values()), None) or _outside_shared(block, runner),
        norms=tuple(child for child in children.values() if is_norm(child)),
        missing=missing,
    )


def _attention(heavy: dict[str, nn.Module]) -> tuple[nn.Module | None, str]:
    holders = [m for m in heavy.values() if _has_attention(m)]
    # The engine's transformers backend keeps its attention objects outside of the layers.
    named = [m for name, m in heavy.items() if "attn" in name or "attention" in name]
    found = holders or named
    if len(found) > 1:
        return None, "several attention branches run side by side in this layer"
    return (found[0], "") if found else (None, "no attention was found in this layer")


def _outside_shared(block: nn.Module | None, runner: Any) -> nn.Module | None:
    """A shared expert that is a child of the block and that the runner does not call."""
    if block is None or runner is None or getattr(runner, "shared_experts", None) is not None:
        return None
    for name, child in block.named_children():
        if "shared" in name and "gate" not in name and _has_parameters(child):
            return child
    return None
