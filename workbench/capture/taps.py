"""Hooks on a transformers model that hand over each site's tensor.

Owns where and when a tensor is taken. The invariant: a hook only looks. It returns nothing, so no
value changes, and a sink must copy at once, because some models write into a tensor after the hook
has seen it (llama4 adds the routed output into the shared expert's).

Axis legend: T row, E expert, K top-k slot, D hidden.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from workbench.capture.layers import LayerParts, router_weight, score_projection, takes_choices
from workbench.capture.structure import ModelParts
from workbench.names import layer_site

Hook = Callable[..., None]


class Sink(Protocol):
    """Takes tensors while a recorded forward is running; hooks stay silent otherwise."""

    @property
    def is_open(self) -> bool:
        """Whether a recorded forward is running."""
        ...

    def record(self, site: str, tensor: torch.Tensor, *, derived: bool = False) -> None:
        """Takes a site's tensor; it must be copied before this returns."""
        ...

    def holds(self, site: str) -> bool:
        """Whether the site was seen in this forward."""
        ...


def install_taps(parts: ModelParts, sink: Sink) -> list[RemovableHandle]:
    """Hooks every site of a model but `logits`; the caller removes the handles."""
    taps = _Taps(sink)
    _tap_ends(parts, taps)
    for layer in parts.layers:
        _tap_layer(layer, taps)
        if layer.experts is not None:
            _tap_moe(layer, taps, parts.hidden_size)
    return taps.handles


class _Taps:
    """Registers hooks that run only while the sink is open, and remembers how to remove them."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.handles: list[RemovableHandle] = []

    def before(self, module: nn.Module, call: Hook) -> None:
        def hook(_module: nn.Module, args: Any, kwargs: Any) -> None:
            if self.sink.is_open:
                with torch.no_grad():
                    call(args, kwargs)

        self.handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))

    def after(self, module: nn.Module, call: Hook) -> None:
        def hook(_module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            if self.sink.is_open:
                with torch.no_grad():
                    call(args, kwargs, output)

        self.handles.append(module.register_forward_hook(hook, with_kwargs=True))

    def record_input(self, module: nn.Module, site: str) -> None:
        self.before(module, lambda args, kwargs: self._record(site, hidden_argument(args, kwargs)))

    def record_output(self, module: nn.Module, site: str) -> None:
        self.after(module, lambda _args, _kwargs, output: self._record(site, first_tensor(output)))

    def _record(self, site: str, tensor: torch.Tensor | None) -> None:
        if tensor is not None:
            self.sink.record(site, tensor)


def hidden_argument(args: Any, kwargs: Any) -> torch.Tensor | None:
    """The hidden states among a module's arguments: by name, else the first floating tensor."""
    named = kwargs.get("hidden_states")
    values = (named, *args, *kwargs.values())
    return next((v for v in values if isinstance(v, torch.Tensor) and v.is_floating_point()), None)


def first_tensor(output: Any) -> torch.Tensor | None:
    """A module's result, or the first part of it."""
    if isinstance(output, torch.Tensor):
        return output
    if isinstance(output, (tuple, list)):
        return next((item for item in output if isinstance(item, torch.Tensor)), None)
    state = getattr(output, "last_hidden_state", None)
    return state if isinstance(state, torch.Tensor) else None


def _tap_ends(parts: ModelParts, taps: _Taps) -> None:
    """Input embeddings as the decoder gets them, and what it gives to the head."""
    inside: list[bool] = []

    def enter(_args: Any, kwargs: Any) -> None:
        inside.append(True)
        given = kwargs.get("inputs_embeds")
        if given is not None:
            taps.sink.record("embed", given)

    def embedded(_args: Any, _kwargs: Any, output: Any) -> None:
        # A multimodal model embeds ids on the outside first, before it merges image features in.
        if inside and not taps.sink.holds("embed"):
            taps.sink.record("embed", output)

    def leave(_args: Any, _kwargs: Any, output: Any) -> None:
        inside.clear()
        tensor = first_tensor(output)
        if tensor is not None:
            taps.sink.record("final_norm", tensor)

    taps.before(parts.backbone, enter)
    taps.after(parts.backbone, leave)
    if parts.embedding is not None:
        taps.after(parts.embedding, embedded)


def _tap_layer(layer: LayerParts, taps: _Taps) -> None:
    for module, before, after in (
        (layer.module, "input", "output"),
        (layer.attention, "attn_in", "attn_out"),
        (layer.block, "mlp_in", "mlp_out"),
    ):
        if module is not None:
            taps.record_input(module, layer_site(layer.index, before))
            taps.record_output(module, layer_site(layer.index, after))


def _tap_moe(layer: LayerParts, taps: _Taps, hidden_size: int) -> None:
    assert layer.experts is not None
    if layer.router is not None:
        _tap_scores(layer, layer.router, taps, hidden_size)
    table = _EXCEPTIONS.get(type(layer.experts).__name__)
    if table is not None:
        table(layer, taps)
    elif takes_choices(layer.experts):
        _tap_choices(layer, taps)
        taps.record_output(layer.experts, layer_site(layer.index, "routed_out"))
    else:
        reason = f"{type(layer.experts).__name__} is not called with choices and gate weights"
        for site in ("topk_ids", "topk_weights", "routed_out"):
            layer.missing[site] = reason
    if layer.shared is not None:
        _tap_shared(layer, layer.shared, taps)


def _tap_scores(layer: LayerParts, router: nn.Module, taps: _Taps, hidden_size: int) -> None:
    """Raw scores in the type the projection gave; some routers return probabilities or upcasts."""
    site = layer_site(layer.index, "router_logits")
    projection = score_projection(layer, hidden_size)
    if projection is not None:
        taps.record_output(projection, site)
    weight = router_weight(layer, hidden_size)
    num_scores = None if weight is None else weight.shape[0]

    def hook(_args: Any, _kwargs: Any, output: Any) -> None:
        if not taps.sink.holds(site):
            scores = _raw_scores(output, num_scores, layer.scores_index)
            if scores is not None:
                taps.sink.record(site, scores)

    taps.after(router, hook)


def _raw_scores(output: Any, num_scores: int | None, index: int | None) -> torch.Tensor | None:
    """The raw scores among a router's results: where the model says, else by their shape."""
    items = output if isinstance(output, (tuple, list)) else (output,)

    def fits(item: Any) -> bool:
        is_float = isinstance(item, torch.Tensor) and item.is_floating_point()
        return is_float and item.dim() >= 2 and num_scores in (None, item.shape[-1])

    if index is not None and index < len(items) and fits(items[index]):
        found: torch.Tensor = items[index]
        return found
    return next((item for item in items if fits(item)), None)


def _tap_choices(layer: LayerParts, taps: _Taps) -> None:
    """Choices and gate weights as the experts get them: the one place where every family agrees."""
    assert layer.experts is not None
    ids_site = layer_site(layer.index, "topk_ids")
    weights_site = layer_site(layer.index, "topk_weights")

    def hook(args: Any, kwargs: Any) -> None:
        given = [v for v in (*args, *kwargs.values()) if isinstance(v, torch.Tensor)]
        ids = next((v for v in given if not v.is_floating_point()), None)
        if ids is None:
            return
        weights = next((v for v in given if v.is_floating_point() and v.shape == ids.shape), None)
        taps.sink.record(ids_site, ids.to(torch.int32))
        if weights is not None:
            taps.sink.record(weights_site, weights)

    taps.before(layer.experts, hook)


def _tap_shared(layer: LayerParts, shared: nn.Module, taps: _Taps) -> None:
    site = layer_site(layer.index, "shared_out")
    if layer.shared_gate is None:
        taps.record_output(shared, site)
        return
    seen: dict[str, torch.Tensor] = {}

    def keep(name: str) -> Hook:
        def hook(_args: Any, _kwargs: Any, output: Any) -> None:
            tensor = first_tensor(output)
            if tensor is None:
                return
            seen[name] = tensor.detach().clone()
            if len(seen) == 2:
                # The block's own expression on the block's own tensors: the same bits.
                gated = torch.sigmoid(seen["gate"]) * seen["expert"]
                taps.sink.record(site, gated, derived=True)
                seen.clear()

        return hook

    taps.after(shared, keep("expert"))
    taps.after(layer.shared_gate, keep("gate"))


def _tap_llama4(layer: LayerParts, taps: _Taps) -> None:
    """llama4 feeds every expert every row, times a gate weight that is 0 where it is not chosen."""
    assert layer.experts is not None
    chosen: dict[str, int] = {}

    def routed(_args: Any, _kwargs: Any, output: Any) -> None:
        scores_TE, logits_TE = output
        top_k = int(getattr(layer.router, "top_k", 1))
        ids_TK = torch.topk(logits_TE, top_k, dim=1)[1]
        chosen["num_experts"] = scores_TE.shape[1]
        taps.sink.record(layer_site(layer.index, "topk_ids"), ids_TK.to(torch.int32), derived=True)
        taps.sink.record(
            layer_site(layer.index, "topk_weights"), scores_TE.gather(1, ids_TK), derived=True
        )

    def combined(_args: Any, _kwargs: Any, output: torch.Tensor) -> None:
        stacked_ETD = output.reshape(chosen["num_experts"], -1, output.shape[-1])
        taps.sink.record(
            layer_site(layer.index, "routed_out"), stacked_ETD.sum(dim=0), derived=True
        )

    if layer.router is not None:
        taps.after(layer.router, routed)
    taps.after(layer.experts, combined)


_EXCEPTIONS: Final[dict[str, Callable[[LayerParts, _Taps], None]]] = {
    "Llama4TextExperts": _tap_llama4
}
"""Expert classes that keep to no contract, and what to do about each."""
