"""The parts of one decoder layer, found by contract and never by model name.

A sparse layer is one that holds an `*Experts` module with stacked weights; beside it stand a router
and perhaps a shared expert. A part that cannot be had comes with the reason. Imports torch alone.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from torch import nn

_ATTENTION: Final = re.compile(r"attn|attention", re.IGNORECASE)
_OTHER_MIXER: Final = re.compile(
    r"mamba|conv|deltanet|delta_net|recurrent|ssm|mixer", re.IGNORECASE
)
_FEED_FORWARD: Final = re.compile(r"mlp|feed_forward|feedforward|ffn|moe", re.IGNORECASE)
_ROUTER: Final = re.compile(r"(router|gate|gating)$", re.IGNORECASE)
_EXPERTS: Final = re.compile(r"Experts$")


Declared = Mapping[str, tuple[type[nn.Module], int]]
"""What a model itself names for recording: class and index among its results, by kind."""


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


def find_layer_parts(index: int, layer: nn.Module, declared: Declared) -> LayerParts:
    """Takes one decoder layer apart."""
    heavy = {name: child for name, child in layer.named_children() if _is_heavy(child)}
    experts = find_experts(layer)
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


def router_weight(layer: LayerParts, hidden_size: int) -> nn.Parameter | None:
    """The router's matrix, one row per expert; None when the layer's router has none."""
    if layer.router is None or layer.experts is None:
        return None
    num_experts = next(p.shape[0] for p in layer.experts.parameters() if p.ndim == 3)
    # Some routers score more than the experts: the surplus means "no expert".
    return next(
        (
            p
            for p in layer.router.parameters()
            if p.ndim == 2 and p.shape[0] >= num_experts and p.shape[1] == hidden_size
        ),
        None,
    )


def score_projection(layer: LayerParts, hidden_size: int) -> nn.Module | None:
    """The linear layer inside a router that gives the raw scores, where there is one."""
    weight = router_weight(layer, hidden_size)
    for module in () if layer.router is None else layer.router.modules():
        is_inner_linear = isinstance(module, nn.Linear) and module is not layer.router
        if is_inner_linear and module.weight is weight:
            return module
    return None


def takes_choices(experts: nn.Module) -> bool:
    """Whether experts are called with (hidden states, choices, gate weights)."""
    return len(inspect.signature(experts.forward).parameters) >= 3


def find_experts(module: nn.Module) -> nn.Module | None:
    """The routed experts inside a module, or None."""
    children: list[tuple[str, nn.Module]] = list(module.named_modules())
    for name, child in children:
        if "shared" in name.lower() or "Shared" in type(child).__name__:
            continue
        if _EXPERTS.search(type(child).__name__) and _has_stack(child):
            return child
    return None


def _has_stack(module: nn.Module) -> bool:
    return any(p.ndim == 3 for p in module.parameters())


def _is_heavy(module: nn.Module) -> bool:
    return any(p.ndim >= 2 for p in module.parameters())


def _holds(module: nn.Module, part: nn.Module) -> bool:
    return any(m is part for m in module.modules())


def _token_mixer(
    candidates: dict[str, nn.Module], attention_class: type[nn.Module] | None
) -> tuple[nn.Module | None, str]:
    rules: tuple[Callable[[str, nn.Module], bool], ...] = (
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
    for name, child in home.named_children():
        named = _ROUTER.search(name) or _ROUTER.search(type(child).__name__)
        if named and "shared" not in name and child not in inside and _is_heavy(child):
            return child
    return None


def _shared(home: nn.Module) -> tuple[nn.Module | None, nn.Module | None]:
    children = {n: m for n, m in home.named_children() if n.startswith("shared") and _is_heavy(m)}
    expert = next((m for n, m in children.items() if "gate" not in n), None)
    gate = next((m for n, m in children.items() if "gate" in n), None)
    return expert, gate
