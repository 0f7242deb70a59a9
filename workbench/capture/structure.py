"""Taking a transformers model apart, by contract and never by model name.

transformers 5 gives every mixture of experts one shape: decoder layers in a ModuleList, in each a
token mixer and a feed-forward block. Nothing is changed here. Imports torch, not transformers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from workbench.capture.layers import LayerParts, find_experts, find_layer_parts
from workbench.capture.model_facts import text_config
from workbench.errors import RecordingError


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelParts:
    """A causal language model taken apart.

    Attributes:
        model: What is called with token ids and gives logits.
        backbone: The module that owns the decoder layers.
        layers: Its layers in order.
        embedding: What turns ids into vectors.
        config: The text part of its configuration.
        hidden_size: Width of the residual stream.
    """

    model: nn.Module
    backbone: nn.Module
    layers: tuple[LayerParts, ...]
    embedding: nn.Module | None
    config: Any
    hidden_size: int


def find_parts(model: nn.Module) -> ModelParts:
    """Takes a model apart; wrappers (data parallel, adapters) are looked through.

    Raises:
        RecordingError: Not a transformers model, compiled, or no list of decoder layers in it.
    """
    root = _causal_lm(model)
    config = text_config(root.config)
    num_layers = int(getattr(config, "num_hidden_layers", 0) or 0)
    backbone, layers = _decoder(root, num_layers)
    declared = _declared(backbone) or _declared(root)
    getter = getattr(backbone, "get_input_embeddings", None)
    return ModelParts(
        model=root,
        backbone=backbone,
        layers=tuple(
            find_layer_parts(index, layer, declared) for index, layer in enumerate(layers)
        ),
        embedding=getter() if callable(getter) else None,
        config=config,
        hidden_size=int(config.hidden_size),
    )


def _causal_lm(model: nn.Module) -> nn.Module:
    for module in model.modules():
        if "OptimizedModule" in type(module).__name__ or getattr(
            module, "_compiled_call_impl", None
        ):
            raise RecordingError(
                "a compiled model cannot be recorded: its hooks never fire",
                where=type(model).__name__,
                expected="a model that runs in eager mode",
                do="record the model before torch.compile",
            )
    for module in model.modules():
        # An adapter's wrapper answers for its model; the model itself is the one that is called.
        is_wrapper = type(module).__module__.startswith("peft.")
        is_model = hasattr(module, "config") and hasattr(module, "get_output_embeddings")
        if is_model and not is_wrapper:
            return module
    raise RecordingError(
        "this is not a transformers model",
        where=type(model).__name__,
        expected="a PreTrainedModel with a configuration, as AutoModelForCausalLM gives it",
        do="pass the model itself",
    )


def _decoder(root: nn.Module, num_layers: int) -> tuple[nn.Module, nn.ModuleList]:
    found = [
        (parent, child)
        for parent in root.modules()
        for child in parent.children()
        if isinstance(child, nn.ModuleList) and len(child) == num_layers > 0
    ]
    ranked = [
        (
            sum(find_experts(layer) is not None for layer in child),
            sum(p.numel() for p in child.parameters()),
            parent,
            child,
        )
        for parent, child in found
        if all(list(layer.children()) for layer in child)
    ]
    if not ranked:
        raise RecordingError(
            "found no list of decoder layers in the model",
            where=type(root).__name__,
            expected=f"a ModuleList of {num_layers} layers",
            do="this architecture cannot be recorded yet",
        )
    _, _, parent, child = max(ranked, key=lambda item: item[:2])
    return parent, child


def _declared(model: nn.Module) -> dict[str, tuple[type[nn.Module], int]]:
    """Class and index of what the model itself names for recording, by kind."""
    entries = getattr(model, "_can_record_outputs", None)
    found = {}
    for kind, entry in entries.items() if isinstance(entries, dict) else ():
        first = entry[0] if isinstance(entry, list) and entry else entry
        cls = getattr(first, "target_class", first)
        if isinstance(cls, type) and issubclass(cls, nn.Module):
            found[kind] = (cls, int(getattr(first, "index", 0)))
    return found
