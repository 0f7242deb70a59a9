"""Hooks on a live vLLM model that hand over each site's tensor. Owns where and when it is taken.

vLLM layers pass (hidden, residual) pairs and their fused residual+norm kernel overwrites both, so
every tensor is copied at the moment it is seen. The residual stream is recorded as the engine
itself stored it: the second output of a layer's first norm. Hooks see nothing in compiled or graph
mode; whoever installs them must check that rows recorded equal rows scheduled.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final, Protocol

import torch
from torch import nn

from workbench.capture.vllm.discover import LayerParts, ModelParts
from workbench.capture.vllm.moe_taps import tap_runner
from workbench.capture.vllm.patches import Patches
from workbench.names import layer_site

_RESIDUAL: Final = "residual"


class Sink(Protocol):
    """Takes tensors while a real engine step is open; ignores them otherwise."""

    @property
    def is_open(self) -> bool: ...

    def run(self, call: Callable[..., None], *args: Any, **kwargs: Any) -> None: ...

    def record(self, site: str, tensor: torch.Tensor, *, derived: bool = False) -> None: ...

    def holds(self, site: str) -> bool: ...


def install_taps(
    parts: ModelParts, sink: Sink, patches: Patches, *, hidden_size: int
) -> Callable[[], None]:
    """Hooks every site of a model.

    Args:
        parts: Where the sites are.
        sink: Takes the tensors.
        patches: Remembers the hooks.
        hidden_size: Width of the residual stream.

    Returns:
        To be called when the model has run, before the step's tensors are taken away.
    """
    if parts.embedding is not None:
        patches.keep(
            parts.embedding.register_forward_hook(
                _guarded(sink, lambda _m, _a, output: _record_once(sink, "embed", output))
            )
        )
    taps = [_LayerTap(layer, sink, hidden_size) for layer in parts.layers]
    taps[-1].is_last = True
    for tap in taps:
        tap.install(patches)
    for norm in parts.final_norms:
        hook = _guarded(sink, taps[-1].after_final_norm)
        patches.keep(norm.register_forward_hook(hook, with_kwargs=True))
    return taps[-1].finish


class _LayerTap:
    """The hooks of one decoder layer."""

    def __init__(self, parts: LayerParts, sink: Sink, hidden_size: int) -> None:
        self.parts = parts
        self.sink = sink
        self.hidden_size = hidden_size
        self.pair: tuple[torch.Tensor, torch.Tensor] | None = None
        self.left: tuple[torch.Tensor, torch.Tensor] | None = None
        self.norm_gives_stream = False
        self.is_at_input = False
        self.is_last = False

    def site(self, name: str) -> str:
        return layer_site(self.parts.index, name)

    def install(self, patches: Patches) -> None:
        def before(module: nn.Module, call: Callable[..., None]) -> None:
            hook = _guarded(self.sink, call)
            patches.keep(module.register_forward_pre_hook(hook, with_kwargs=True))

        def after(module: nn.Module, call: Callable[..., None]) -> None:
            hook = _guarded(self.sink, call)
            patches.keep(module.register_forward_hook(hook, with_kwargs=True))

        parts = self.parts
        before(parts.module, self.before_layer)
        after(parts.module, self.after_layer)
        for norm in parts.norms:
            after(norm, self.after_norm)
        for module, name in ((parts.attention, "attn"), (parts.block, "mlp")):
            if module is not None:
                before(module, self._input_hook(f"{name}_in"))
                if f"{name}_out" not in parts.missing:
                    after(module, self._output_hook(f"{name}_out"))
        if parts.outside_shared is not None:
            after(parts.outside_shared, self._output_hook("shared_out"))
        if parts.runner is not None:
            tap_runner(parts, self.sink, patches, hidden_size=self.hidden_size)

    def before_layer(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        bound = _bind(module, args, kwargs)
        hidden = _hidden(bound, self.hidden_size)
        residual = bound.get(_RESIDUAL)
        self.pair = self.left = None
        self.is_at_input = True
        if hidden is None:
            return
        if not isinstance(residual, torch.Tensor):
            self._record_input(hidden)
        elif not self.norm_gives_stream:
            self.pair = (hidden.clone(), residual.clone())

    def after_norm(self, _module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        stream = _norm_stream(args, kwargs, output)
        at_input, self.is_at_input = self.is_at_input, False
        if stream is not None and at_input and not self.sink.holds(self.site("input")):
            self.norm_gives_stream = True
            self._record_input(stream)

    def _record_input(self, stream: torch.Tensor, *, derived: bool = False) -> None:
        self.sink.record(self.site("input"), stream, derived=derived)
        if self.parts.index > 0:
            before = layer_site(self.parts.index - 1, "output")
            if not self.sink.holds(before):
                self.sink.record(before, stream, derived=derived)

    def _input_hook(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
            self.is_at_input = False
            hidden = _hidden(_bind(module, args, kwargs), self.hidden_size)
            if hidden is not None:
                self.sink.record(self.site(name), hidden)

        return hook

    def _output_hook(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            tensor = _first_tensor(output)
            if tensor is None:
                # Some attentions write into a tensor that the layer hands them.
                tensor = _bind(module, args, kwargs).get("output")
            if isinstance(tensor, torch.Tensor):
                self.sink.record(self.site(name), tensor)

        return hook

    def after_layer(self, module: nn.Module, _args: Any, _kwargs: Any, output: Any) -> None:
        if self.pair is not None and not self.sink.holds(self.site("input")):
            # No norm showed the sum. One rounding of the two stored parts is what the engine adds.
            self._record_input(self.pair[0] + self.pair[1], derived=True)
        self.pair = None
        pair = _pair(output)
        takes_residual = _RESIDUAL in inspect.signature(module.forward).parameters
        if pair is None or not takes_residual:
            tensor = _first_tensor(output)
            if tensor is not None:
                self.sink.record(self.site("output"), tensor)
        elif self.is_last:
            self.left = (pair[0].clone(), pair[1].clone())

    def after_final_norm(self, _module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        """The last layer's output is what the final norm makes of the pair it is given."""
        stream = _norm_stream(args, kwargs, output)
        if stream is not None and not self.sink.holds(self.site("output")):
            self.sink.record(self.site("output"), stream)

    def finish(self) -> None:
        """Adds up the last layer's pair when no final norm showed the sum."""
        if self.left is not None and not self.sink.holds(self.site("output")):
            self.sink.record(self.site("output"), self.left[0] + self.left[1], derived=True)
        self.left = None


def _guarded(sink: Sink, call: Callable[..., None]) -> Callable[..., None]:
    """A hook that never changes what the module returns and runs only inside a real step."""

    def hook(*args: Any, **kwargs: Any) -> None:
        sink.run(call, *args, **kwargs)

    return hook


def _record_once(sink: Sink, site: str, tensor: Any) -> None:
    if isinstance(tensor, torch.Tensor) and not sink.holds(site):
        sink.record(site, tensor)


def _bind(module: nn.Module, args: Any, kwargs: Any) -> dict[str, Any]:
    try:
        bound = inspect.signature(module.forward).bind_partial(*args, **kwargs).arguments
    except TypeError:
        return {**{str(i): value for i, value in enumerate(args)}, **kwargs}
    named: dict[str, Any] = {}
    for name, value in bound.items():
        if isinstance(value, dict):
            named.update(value)
        elif isinstance(value, tuple) and name == "args":
            named.update({f"{name}{i}": item for i, item in enumerate(value)})
        else:
            named[name] = value
    return named


def _hidden(bound: dict[str, Any], hidden_size: int) -> torch.Tensor | None:
    def fits(value: Any) -> bool:
        return (
            isinstance(value, torch.Tensor)
            and value.is_floating_point()
            and value.shape[-1] == hidden_size
        )

    if fits(bound.get("hidden_states")):
        found: torch.Tensor = bound["hidden_states"]
        return found
    for name, value in bound.items():
        if name not in (_RESIDUAL, "output") and fits(value):
            return value  # type: ignore[no-any-return]
    return None


def _first_tensor(output: Any) -> torch.Tensor | None:
    if isinstance(output, (tuple, list)):
        output = next((item for item in output if isinstance(item, torch.Tensor)), None)
    return output if isinstance(output, torch.Tensor) else None


def _pair(output: Any) -> tuple[torch.Tensor, torch.Tensor] | None:
    if not isinstance(output, (tuple, list)) or len(output) < 2:
        return None
    first, second = output[0], output[1]
    if isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor):
        return (first, second) if first.shape == second.shape else None
    return None


def _norm_stream(args: Any, kwargs: Any, output: Any) -> torch.Tensor | None:
    """The new residual stream, when a norm was called with (x, residual)."""
    given = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
    pair = _pair(output)
    return pair[1] if pair is not None and len(given) >= 2 else None
