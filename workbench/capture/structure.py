"""Finding the places to record in a transformers model, by contract and never by model name.

transformers 5 gives every mixture of experts one shape: decoder layers in a ModuleList, in each a token
mixer and a feed-forward block, in a sparse block an `*Experts` module called with (hidden states,
choices, gate weights) and a router. Nothing is changed here; a place that cannot be had comes with the
reason. Imports torch, not transformers.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from torch import nn

from workbench.capture.model_facts import text_config
from workbench.errors import RecordingError

_ATTENTION: Final = re.compile(r"attn|attention", re.IGNORECASE)
_OTHER_MIXER: Final = re.compile(
    r"mamba|conv|deltanet|delta_net|recurrent|ssm|mixer", re.IGNORECASE
)
_FEED_FORWARD: Final = re.compile(r"mlp|feed_forward|feedforward|ffn|moe", re.IGNORECASE)
_ROUTER: Final = re.compile(r"(router|gate|gating)$", re.IGNORECASE)
_EXPERTS: Final = re.compile(r"Experts$")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerParts:
    """The parts of one decoder layer.

    Attributes:
        index: Layer number from 0.
        module: The layer itself.
        attention: Its attention, or what stands in for it (linear attention, state space).
        block: Its MoE block or dense MLP, when one module is all of it.
        experts: The routed experts; None in a dense layer.
        router: What scores the experts.
        scores_index: Where the model says raw scores stand among the router's results.
        shared: The shared expert.
        shared_gate: What scales the shared expert's output.
        shared_inside: Whether the block adds the shared expert, not the layer.
        missing: Short site name to the reason why this layer cannot give it.
    """

    index: int
    module: nn.Module
    attention: nn.Module | None
    block: nn.Module | None
    experts: nn.Module | None = None
    router: nn.Module | None = None
    scores_index: int | None = None
    shared: nn.Module | None = None
    shared_gate: nn.Module | None = None
    shared_inside: bool = True
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """`moe` or `dense`."""
        return "dense" if self.experts is None else "moe"


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
        layers=tuple(_layer_parts(index, layer, declared) for index, layer in enumerate(layers)),
        embedding=getter() if callable(getter) else None,
        config=config,
        hidden_size=int(config.hidden_size),
    )


def router_weight(router: nn.Module, hidden_size: int) -> nn.Parameter | None:
    """The router's matrix, one row per expert, or None."""
    return next((p for p in router.parameters() if p.ndim == 2 and p.shape[1] == hidden_size), None)


def score_projection(router: nn.Module, hidden_size: int) -> nn.Linear | None:
    """The linear layer inside a router that gives the raw scores, where there is one."""
    for module in router.modules():
        is_linear = isinstance(module, nn.Linear) and module is not router
        if is_linear and module.in_features == hidden_size:
            return module
    return None


def takes_choices(experts: nn.Module) -> bool:
    """Whether experts are called with (hidden states, choices, gate weights)."""
    return len(inspect.signature(experts.forward).parameters) >= 3


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
        if hasattr(module, "config") and hasattr(module, "get_output_embeddings"):
            # An adapter wrapper answers for its model; the model itself is the one that is called.
            if not hasattr(module, "peft_config") or type(module).__module__.startswith(
                "transformers"
            ):
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
            sum(_experts_in(layer) is not None for layer in child),
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


def _experts_in(module: nn.Module) -> nn.Module | None:
    for name, child in module.named_modules():
        if "shared" in name.lower() or "Shared" in type(child).__name__:
            continue
        if _EXPERTS.search(type(child).__name__) and has_stack(child):
            return child
    return None


def has_stack(module: nn.Module) -> bool:
    """Whether a module holds all experts' weights stacked, one 3-D parameter per projection."""
    return any(p.ndim == 3 for p in module.parameters())


def _is_heavy(module: nn.Module) -> bool:
    return any(p.ndim >= 2 for p in module.parameters())


def _layer_parts(
    index: int, layer: nn.Module, declared: dict[str, tuple[type[nn.Module], int]]
) -> LayerParts:
    heavy = {name: child for name, child in layer.named_children() if _is_heavy(child)}
    experts = _experts_in(layer)
    missing: dict[str, str] = {}
    sparse = {n: m for n, m in heavy.items() if experts is not None and _holds(m, experts)}
    rest = {n: m for n, m in heavy.items() if n not in sparse}
    attention, reason = _token_mixer(rest, declared.get("attentions", (None, 0))[0])
    if attention is None:
        missing["attn_in"] = missing["attn_out"] = reason
    rest = {n: m for n, m in rest.items() if m is not attention}
    block = _block(layer, sparse, rest, experts, missing)
    if experts is None:
        for site in ("router_logits", "topk_ids", "topk_weights", "routed_out", "shared_out"):
            missing[site] = "dense layer"
        return LayerParts(
            index=index, module=layer, attention=attention, block=block, missing=missing
        )
    home = block if block is not None else layer
    router = _router(home, experts)
    if router is None:
        missing["router_logits"] = "no router was found beside the experts"
    scores_class, scores_index = declared.get("router_logits", (None, 0))
    shared, shared_gate = _shared(home)
    shared_inside = shared is not None
    if shared is None and home is not layer:
        shared, shared_gate = _shared(layer)
    if shared is None:
        missing["shared_out"] = "no shared expert"
    return LayerParts(
        index=index,
        module=layer,
        attention=attention,
        block=block,
        experts=experts,
        router=router,
        scores_index=(scores_index if scores_class and isinstance(router, scores_class) else None),
        shared=shared,
        shared_gate=shared_gate,
        shared_inside=shared_inside,
        missing=missing,
    )


def _holds(module: nn.Module, part: nn.Module) -> bool:
    return any(m is part for m in module.modules())


def _token_mixer(
    candidates: dict[str, nn.Module], attention_class: type[nn.Module] | None
) -> tuple[nn.Module | None, str]:
    rules = (
        lambda _name, m: attention_class is not None and isinstance(m, attention_class),
        lambda name, m: bool(_ATTENTION.search(name) or _ATTENTION.search(type(m).__name__)),
        lambda name, m: bool(_OTHER_MIXER.search(name) or _OTHER_MIXER.search(type(m).__name__)),
    )
    for rule in rules:
        found = [m for name, m in candidates.items() if rule(name, m)]
        if len(found) > 1 or (found and isinstance(found[0], nn.ModuleList)):
            return None, "several attention modules in this layer"
        if found:
            return found[0], ""
    return None, "no attention in this layer"


def _block(
    layer: nn.Module,
    sparse: dict[str, nn.Module],
    rest: dict[str, nn.Module],
    experts: nn.Module | None,
    missing: dict[str, str],
) -> nn.Module | None:
    """The layer's feed-forward block; what cannot be said of one module goes to `missing`."""
    if experts is None:
        dense = [m for n, m in rest.items() if _FEED_FORWARD.search(n + type(m).__name__)]
        if len(dense) == 1 and not isinstance(dense[0], nn.ModuleList):
            return dense[0]
        missing["mlp_in"] = missing["mlp_out"] = "no single feed-forward block in this layer"
        return None
    if any(child is experts for child in layer.children()):
        missing["mlp_in"] = missing["mlp_out"] = "router and experts stand in the layer itself"
        return None
    return next(iter(sparse.values()))


def _router(home: nn.Module, experts: nn.Module) -> nn.Module | None:
    inside = set(experts.modules())
    for name, child in _candidates(home):
        named = _ROUTER.search(name) or _ROUTER.search(type(child).__name__)
        if named and child not in inside and _is_heavy(child):
            return child
    return None


def _candidates(home: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for name, child in home.named_children():
        if "shared" not in name:
            yield name, child


def _shared(home: nn.Module) -> tuple[nn.Module | None, nn.Module | None]:
    children = {n: m for n, m in home.named_children() if n.startswith("shared") and _is_heavy(m)}
    expert = next((m for n, m in children.items() if "gate" not in n), None)
    gate = next((m for n, m in children.items() if "gate" in n), None)
    return expert, gate
