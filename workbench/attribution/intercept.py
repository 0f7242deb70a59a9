"""Standing at every site of a transformers model: see what passes there, and change it.

Owns where and how a value can be changed inside a forward; knows nothing of captures. A visitor is
shown each value as the model made it and may give another one back; the rest of the forward is the
model's own arithmetic. The invariant: a visitor that gives nothing back changes no bit.

Router logits and choices live inside a router's forward. There, the projection is the linear
product with a matrix of one row per expert, and the choice is `topk` of K among all experts; the
values that `topk` gives for other ids are gathered from the scores the router itself computed.

Axis legend: N flat place (sequence, column), E expert, K slot, D hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from workbench.capture.layers import LayerParts, router_weight, takes_choices
from workbench.capture.structure import ModelParts
from workbench.capture.taps import first_tensor, hidden_argument


class Spot(NamedTuple):
    """What passes at a site.

    Attributes:
        layer: Layer index, None for a site of the model.
        site: Short site name.
        tensor: As the model made it; [B, S, X] or [N, X].
        beside: The scores that selection looks at (`topk_ids`), the choices in use
            (`topk_weights`), else None.
    """

    layer: int | None
    site: str
    tensor: torch.Tensor
    beside: torch.Tensor | None = None


class Visitor(Protocol):
    """Sees every site of a forward."""

    def visit(self, spot: Spot) -> torch.Tensor | None:
        """Another value, in shape and type of the spot's tensor, or None to leave it."""
        ...


def unreachable(parts: ModelParts) -> dict[tuple[int, str], str]:
    """Layer sites where a value cannot be changed, with the reason."""
    found: dict[tuple[int, str], str] = {}
    for layer in parts.layers:
        found.update({(layer.index, site): reason for site, reason in layer.missing.items()})
        if layer.experts is not None and not takes_choices(layer.experts):
            name = type(layer.experts).__name__
            reason = f"{name} is not called with choices and gate weights"
            for site in ("topk_ids", "topk_weights", "routed_out"):
                found[layer.index, site] = reason
    return found


@contextmanager
def intercept(parts: ModelParts, visitor: Visitor) -> Iterator[None]:
    """Shows a visitor every site of every forward inside the block, in execution order.

    Values are shown in execution order, so a visitor that replaces a module's inputs sees, at its
    output, what the module makes of them.
    """
    stand = _Stand(_Outside(visitor))
    try:
        _stand_at_ends(parts, stand)
        for layer in parts.layers:
            _stand_in_layer(layer, stand)
            if layer.experts is not None:
                _stand_in_moe(layer, stand, parts.hidden_size)
        yield
    finally:
        stand.leave()


class _Outside:
    """Runs a visitor outside every function mode: what it computes is no part of the forward."""

    def __init__(self, visitor: Visitor) -> None:
        self._visitor = visitor

    def visit(self, spot: Spot) -> torch.Tensor | None:
        with torch._C.DisableTorchFunction():  # noqa: SLF001 - torch has no public name for it
            return self._visitor.visit(spot)


class _Stand:
    """Installs hooks and wrapped forwards, and remembers how to remove them."""

    def __init__(self, visitor: Visitor) -> None:
        self.visitor = visitor
        self._handles: list[RemovableHandle] = []
        self._wrapped: list[tuple[nn.Module, Any]] = []

    def before(self, module: nn.Module, call: Callable[[Any, Any], tuple[Any, Any] | None]) -> None:
        def hook(_module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
            return call(args, kwargs)

        self._handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))

    def after(self, module: nn.Module, call: Callable[[Any], Any]) -> None:
        def hook(_module: nn.Module, _args: Any, output: Any) -> Any:
            return call(output)

        self._handles.append(module.register_forward_hook(hook))

    def around(self, module: nn.Module, make_mode: Callable[[], TorchFunctionMode]) -> None:
        """Runs a module's forward under a function mode; removed even when the forward fails."""
        had = module.__dict__.get("forward")
        original = module.forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            with make_mode():
                return original(*args, **kwargs)

        module.forward = forward
        self._wrapped.append((module, had))

    def at_input(self, module: nn.Module, layer: int | None, site: str) -> None:
        def call(args: Any, kwargs: Any) -> tuple[Any, Any] | None:
            tensor = hidden_argument(args, kwargs)
            if tensor is None:
                return None
            other = self.visitor.visit(Spot(layer, site, tensor))
            return None if other is None else _exchange(args, kwargs, {id(tensor): other})

        self.before(module, call)

    def at_output(self, module: nn.Module, layer: int | None, site: str) -> None:
        def call(output: Any) -> Any:
            tensor = first_tensor(output)
            if tensor is None:
                return None
            other = self.visitor.visit(Spot(layer, site, tensor))
            return None if other is None else with_first_tensor(output, tensor, other)

        self.after(module, call)

    def leave(self) -> None:
        for handle in self._handles:
            handle.remove()
        for module, had in reversed(self._wrapped):
            if had is None:
                del module.__dict__["forward"]
            else:
                module.forward = had
        self._handles, self._wrapped = [], []


def with_first_tensor(output: Any, old: torch.Tensor, new: torch.Tensor) -> Any:
    """A module's result with its first tensor exchanged."""
    if isinstance(output, torch.Tensor):
        return new
    if isinstance(output, (tuple, list)):
        items = [new if item is old else item for item in output]
        return type(output)(items) if type(output) in (tuple, list) else tuple(items)
    output.last_hidden_state = new
    return output


def _exchange(args: Any, kwargs: Any, other: Mapping[int, torch.Tensor]) -> tuple[Any, Any]:
    return (
        tuple(other.get(id(value), value) for value in args),
        {name: other.get(id(value), value) for name, value in kwargs.items()},
    )


def _stand_at_ends(parts: ModelParts, stand: _Stand) -> None:
    """Embeddings as the decoder gets them, what it gives to the head, and the logits."""
    inside: list[bool] = []
    seen: list[bool] = []

    def enter(args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        inside.append(True)
        seen.clear()
        given = kwargs.get("inputs_embeds")
        if given is None:
            return None
        seen.append(True)
        other = stand.visitor.visit(Spot(None, "embed", given))
        return None if other is None else (args, {**kwargs, "inputs_embeds": other})

    def embedded(output: torch.Tensor) -> Any:
        # A multimodal model embeds ids on the outside first, before it merges image features in.
        if not inside or seen:
            return None
        seen.append(True)
        return stand.visitor.visit(Spot(None, "embed", output))

    def leave(_output: Any) -> None:
        inside.clear()

    def scored(output: Any) -> Any:
        logits = output if isinstance(output, torch.Tensor) else getattr(output, "logits", None)
        if logits is None and isinstance(output, tuple):
            logits = first_tensor(output)
        if logits is None:
            return None
        other = stand.visitor.visit(Spot(None, "logits", logits))
        if other is None:
            return None
        if hasattr(output, "logits"):
            output.logits = other
            return output
        return with_first_tensor(output, logits, other)

    stand.before(parts.backbone, enter)
    stand.after(parts.backbone, leave)
    stand.at_output(parts.backbone, None, "final_norm")
    if parts.embedding is not None:
        stand.after(parts.embedding, embedded)
    stand.after(parts.model, scored)


def _stand_in_layer(layer: LayerParts, stand: _Stand) -> None:
    for module, before, after in (
        (layer.module, "input", "output"),
        (layer.attention, "attn_in", "attn_out"),
        (layer.block, "mlp_in", "mlp_out"),
    ):
        if module is not None:
            stand.at_input(module, layer.index, before)
            stand.at_output(module, layer.index, after)


def _stand_in_moe(layer: LayerParts, stand: _Stand, hidden_size: int) -> None:
    assert layer.experts is not None
    experts = layer.experts
    if layer.router is not None:
        weight = router_weight(layer, hidden_size)
        top_k = _top_k(layer)
        # Selection from the stack of experts; a router may score more ("no expert").
        num_scores = None if weight is None else int(weight.shape[0])
        stand.around(
            layer.router,
            lambda: _InsideRouter(layer.index, stand.visitor, num_scores, hidden_size, top_k),
        )
    if takes_choices(experts):
        stand.before(experts, lambda args, kwargs: _weigh(layer.index, stand, args, kwargs))
        stand.at_output(experts, layer.index, "routed_out")
    if layer.shared is not None and layer.shared_gate is None:
        stand.at_output(layer.shared, layer.index, "shared_out")
    elif layer.shared is not None and layer.shared_gate is not None:
        home = layer.block if layer.block is not None else layer.module
        product = _SharedProduct(layer.index, stand.visitor)
        stand.after(layer.shared, product.remember)
        stand.around(home, lambda: _InsideBlock(product))


def _top_k(layer: LayerParts) -> int | None:
    for module in (layer.router, layer.block, layer.experts):
        for name in ("top_k", "num_experts_per_tok", "k"):
            value = getattr(module, name, None)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
    return None


def _weigh(layer: int, stand: _Stand, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
    """Gate weights as the experts get them, beside the choices."""
    given = [v for v in (*args, *kwargs.values()) if isinstance(v, torch.Tensor)]
    ids = next((v for v in given if not v.is_floating_point()), None)
    if ids is None:
        return None
    weights = next((v for v in given if v.is_floating_point() and v.shape == ids.shape), None)
    if weights is None:
        return None
    other = stand.visitor.visit(Spot(layer, "topk_weights", weights, ids))
    return None if other is None else _exchange(args, kwargs, {id(weights): other})


class _InsideRouter(TorchFunctionMode):
    """Shows the projection's result and the choice while a router's forward runs."""

    def __init__(
        self,
        layer: int,
        visitor: Visitor,
        num_scores: int | None,
        hidden_size: int,
        top_k: int | None,
    ) -> None:
        super().__init__()
        self._layer, self._visitor = layer, visitor
        self._num_scores, self._hidden, self._top_k = num_scores, hidden_size, top_k
        self._unmasked: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if name in ("linear", "matmul", "mm") and self._is_projection(args):
            return _or(self._visitor.visit(Spot(self._layer, "router_logits", result)), result)
        if name == "topk" and self._is_choice(args, kwargs):
            return self._choice(args[0] if args else kwargs["input"], result)
        is_masked = name == "masked_fill" and isinstance(result, torch.Tensor)
        if is_masked and result.shape[-1] == self._num_scores:
            # Kept with its source, so that the number of the object stays its own.
            self._unmasked[id(result)] = (result, args[0])
        return result

    def _is_projection(self, args: Any) -> bool:
        if len(args) < 2 or not isinstance(args[1], torch.Tensor) or args[1].ndim != 2:
            return False
        shape = tuple(args[1].shape)
        expected = (self._num_scores, self._hidden)
        return shape in (expected, expected[::-1]) and args[0].shape[-1] == self._hidden

    def _is_choice(self, args: Any, kwargs: Any) -> bool:
        scores = args[0] if args else kwargs.get("input")
        count = args[1] if len(args) > 1 else kwargs.get("k")
        fits = self._num_scores is None or scores.shape[-1] == self._num_scores
        return fits and self._top_k in (None, count)

    def _choice(self, scores: torch.Tensor, result: Any) -> Any:
        values, ids = result
        other = self._visitor.visit(Spot(self._layer, "topk_ids", ids, scores))
        if other is None:
            return result
        _, source = self._unmasked.get(id(scores), (scores, scores))
        gathered = source.gather(-1, other)
        # Rows whose choice did not change keep the very values that were computed for them.
        same = (other == ids).all(-1, keepdim=True)
        return torch.return_types.topk((torch.where(same, values, gathered), other))


class _SharedProduct:
    """The shared expert times its gate: a product that no module makes."""

    def __init__(self, layer: int, visitor: Visitor) -> None:
        self.layer, self.visitor = layer, visitor
        self.expert: torch.Tensor | None = None

    def remember(self, output: Any) -> None:
        self.expert = first_tensor(output)


class _InsideBlock(TorchFunctionMode):
    def __init__(self, product: _SharedProduct) -> None:
        super().__init__()
        self._product = product

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        expert = self._product.expert
        if expert is None or getattr(func, "__name__", "") not in ("mul", "multiply"):
            return result
        gate = next((value for value in args if value is not expert), None)
        is_gated = any(value is expert for value in args)
        if not is_gated or not isinstance(gate, torch.Tensor) or gate.shape[-1] != 1:
            return result
        self._product.expert = None
        spot = Spot(self._product.layer, "shared_out", result)
        return _or(self._product.visitor.visit(spot), result)


def _or(other: torch.Tensor | None, own: torch.Tensor) -> torch.Tensor:
    return own if other is None else other
