"""Putting a fault into a transformers model, found by contract and never by model name.

The invariant: outside of the named place every bit stays the same, and the model is as before when
the block ends. Weights are never touched, so fingerprints stay equal. Hooks go first in line, so
that a recording sees what the fault made, whichever was started first.

Axis legend: T row, E expert, K top-k slot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Final

import torch
from torch import nn

from workbench.attribution.combine import CANDIDATES, slot_outputs, weigh_and_add
from workbench.capture.arrays import dtype_name
from workbench.capture.layers import LayerParts, router_weight, takes_choices
from workbench.capture.structure import ModelParts, find_parts
from workbench.errors import UsageError
from workbench.faults.hooks import (
    Change,
    choices_of,
    on_input,
    on_output,
    on_weights,
    while_open,
)
from workbench.faults.kinds import CANDIDATE_OF_ORDER, Fault, Kind, relative_size
from workbench.faults.modes import NextExpert, PerturbScores, SplitProducts, running_under
from workbench.faults.perturb import perturb


@contextmanager
def inject(model: nn.Module, fault: Fault) -> Iterator[None]:
    """The model computes with the fault while the block runs.

    ```python
    with inject(model, Fault(kind="routed_experts", layer=7, size=1e-2)):
        model(input_ids=input_ids)
    ```

    Raises:
        UsageError: The model has no such layer or part.
        RecordingError: Not a model that can be taken apart.
    """
    parts = find_parts(model)
    with ExitStack() as stack:
        for change in _changes(parts, fault):
            stack.enter_context(change)
        yield


def can_inject(model: nn.Module, fault: Fault) -> str:
    """Why this fault cannot be put into this model; "" when it can."""
    try:
        _changes(find_parts(model), fault)
    except UsageError as error:
        return f"{error.what}: {error.got}"
    return ""


Changes = list[AbstractContextManager[None]]


def _changes(parts: ModelParts, fault: Fault) -> Changes:
    if fault.layer is None:
        return _MODEL_FAULTS[fault.kind](parts, fault)
    if not 0 <= fault.layer < len(parts.layers):
        raise UsageError(
            f"cannot inject {fault}",
            expected=f"a layer of 0..{len(parts.layers) - 1}",
            got=f"layer {fault.layer}",
        )
    return _LAYER_FAULTS[fault.kind](parts, parts.layers[fault.layer], fault)


def _wrong(fault: Fault) -> Change:
    return lambda tensor: perturb(tensor, fault.size)


def _input_norm(_parts: ModelParts, layer: LayerParts, fault: Fault) -> Changes:
    return [on_input(_part(layer.attention, layer, "attn_in", fault), _wrong(fault))]


def _attention(_parts: ModelParts, layer: LayerParts, fault: Fault) -> Changes:
    return [on_output(_part(layer.attention, layer, "attn_out", fault), _wrong(fault))]


def _post_attention_norm(_parts: ModelParts, layer: LayerParts, fault: Fault) -> Changes:
    return [on_input(_part(layer.block, layer, "mlp_in", fault), _wrong(fault))]


def _router_logits(parts: ModelParts, layer: LayerParts, fault: Fault) -> Changes:
    router = _part(layer.router, layer, "router_logits", fault)
    weight = router_weight(layer, parts.hidden_size)
    if weight is None:
        raise _no_part(fault, "a router without a matrix")
    return [running_under(router, lambda: PerturbScores(weight.shape[0], fault.size))]


def _top_k(parts: ModelParts, layer: LayerParts, fault: Fault) -> Changes:
    experts = _part(layer.experts, layer, "topk_ids", fault)
    num_experts = next(p.shape[0] for p in experts.parameters() if p.ndim == 3)
    top_k = _top_k_of(parts, layer)
    if not 0 < top_k < num_experts:
        raise _no_part(fault, f"{top_k} of {num_experts} experts selected: none is left out")
    home = layer.block if layer.block is not None else layer.module
    return [running_under(home, lambda: NextExpert(num_experts, top_k, fault.size))]


def _top_k_of(parts: ModelParts, layer: LayerParts) -> int:
    for home in (layer.router, layer.block, parts.config):
        for name in ("top_k", "num_experts_per_tok", "top_k_experts"):
            value = getattr(home, name, None)
            if isinstance(value, int):
                return value
    return 0


def _gate_weights(_parts: ModelParts, layer: LayerParts, fault: Fault) -> Changes:
    experts = _experts_with_choices(layer, "topk_weights", fault)

    def change(_hidden: torch.Tensor, _ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return perturb(weights, fault.size)

    return [on_weights(experts, change)]


def _routed_experts(_parts: ModelParts, layer: LayerParts, fault: Fault) -> Changes:
    return [on_output(_part(layer.experts, layer, "routed_out", fault), _wrong(fault))]


def _one_expert(_parts: ModelParts, layer: LayerParts, fault: Fault) -> Changes:
    """Computes the one expert's share again and adds its error; other rows keep their bits."""
    experts = _experts_with_choices(layer, "routed_out", fault)

    def hook(_module: nn.Module, args: Any, kwargs: Any, output: torch.Tensor) -> torch.Tensor:
        hidden, ids, weights = choices_of(args, kwargs)
        here = ids == fault.expert
        own = torch.where(here, weights, torch.zeros_like(weights)).sum(-1, keepdim=True)
        chosen = torch.full_like(own, fault.expert, dtype=ids.dtype)
        call: Any = type(experts).forward
        share = call(experts, hidden, chosen, own).reshape(output.shape)
        size = relative_size(fault.size, dtype_name(share.dtype))
        error = perturb(share.double(), size) - share.double()
        wrong = (output.double() + error).to(output.dtype)
        rows = here.any(-1).reshape(*output.shape[:-1], 1)
        return torch.where(rows, wrong, output)

    return [while_open(lambda: experts.register_forward_hook(hook, with_kwargs=True, prepend=True))]


def _shared_expert(_parts: ModelParts, layer: LayerParts, fault: Fault) -> Changes:
    return [on_output(_part(layer.shared, layer, "shared_out", fault), _wrong(fault))]


def _combine(_parts: ModelParts, layer: LayerParts, fault: Fault) -> Changes:
    return [on_output(_part(layer.block, layer, "mlp_out", fault), _wrong(fault))]


def _residual_add(_parts: ModelParts, layer: LayerParts, fault: Fault) -> Changes:
    return [on_output(layer.module, _wrong(fault))]


def _combine_order(_parts: ModelParts, layer: LayerParts, fault: Fault) -> Changes:
    experts = _experts_with_choices(layer, "routed_out", fault)
    wanted = f"{CANDIDATE_OF_ORDER[fault.order]}-slot"
    candidate = next(candidate for candidate in CANDIDATES if candidate.name == wanted)

    def hook(_module: nn.Module, args: Any, kwargs: Any, output: torch.Tensor) -> torch.Tensor:
        hidden, ids, weights = choices_of(args, kwargs)
        outputs_TKD = slot_outputs(experts, hidden.reshape(len(ids), -1), ids)
        made = weigh_and_add(outputs_TKD, weights, ids, candidate, output.dtype)
        return made.reshape(output.shape)

    return [while_open(lambda: experts.register_forward_hook(hook, with_kwargs=True, prepend=True))]


def _softmax_order(parts: ModelParts, layer: LayerParts, fault: Fault) -> Changes:
    """Equal in exact arithmetic only where the weights of the selected experts add up to 1."""
    experts = _experts_with_choices(layer, "topk_weights", fault)
    router = _part(layer.router, layer, "router_logits", fault)
    weight = router_weight(layer, parts.hidden_size)
    scored: list[torch.Tensor] = []

    def keep(_module: nn.Module, _args: Any, output: Any) -> None:
        items = output if isinstance(output, (tuple, list)) else (output,)
        width = None if weight is None else weight.shape[0]
        scored[:] = [t for t in items if isinstance(t, torch.Tensor) and t.shape[-1] == width][:1]

    def change(_hidden: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        sums_T = weights.double().sum(-1)
        if not scored or not torch.allclose(sums_T, torch.ones_like(sums_T), atol=2.0**-5):
            raise _no_part(fault, "gate weights that do not add up to 1")
        chosen_TK = scored[0].reshape(-1, scored[0].shape[-1]).gather(-1, ids)
        return torch.softmax(chosen_TK.float(), dim=-1).to(weights.dtype)

    return [while_open(lambda: router.register_forward_hook(keep)), on_weights(experts, change)]


def _final_norm(parts: ModelParts, fault: Fault) -> Changes:
    return [on_output(parts.backbone, _wrong(fault))]


def _lm_head(parts: ModelParts, fault: Fault) -> Changes:
    getter: Any = getattr(parts.model, "get_output_embeddings", None)
    head = getter() if callable(getter) else None
    if head is None:
        raise _no_part(fault, "no LM head")
    return [on_output(head, _wrong(fault))]


def _batch_floor(parts: ModelParts, _fault: Fault) -> Changes:
    return [running_under(parts.model, SplitProducts)]


_LAYER_FAULTS: Final[dict[Kind, Callable[[ModelParts, LayerParts, Fault], Changes]]] = {
    "input_norm": _input_norm,
    "attention": _attention,
    "post_attention_norm": _post_attention_norm,
    "router_logits": _router_logits,
    "top_k": _top_k,
    "gate_weights": _gate_weights,
    "routed_experts": _routed_experts,
    "one_expert": _one_expert,
    "shared_expert": _shared_expert,
    "combine": _combine,
    "residual_add": _residual_add,
    "combine-order": _combine_order,
    "softmax-order": _softmax_order,
}
_MODEL_FAULTS: Final[dict[Kind, Callable[[ModelParts, Fault], Changes]]] = {
    "final_norm": _final_norm,
    "lm_head": _lm_head,
    "batch-floor": _batch_floor,
}


def _part(module: nn.Module | None, layer: LayerParts, site: str, fault: Fault) -> nn.Module:
    if module is None:
        raise _no_part(fault, layer.missing.get(site, "no such part"))
    return module


def _experts_with_choices(layer: LayerParts, site: str, fault: Fault) -> nn.Module:
    experts = _part(layer.experts, layer, site, fault)
    if not takes_choices(experts):
        raise _no_part(fault, f"{type(experts).__name__} is not called with gate weights")
    return experts


def _no_part(fault: Fault, reason: str) -> UsageError:
    return UsageError(f"cannot inject {fault}", expected="a model with that part", got=reason)
