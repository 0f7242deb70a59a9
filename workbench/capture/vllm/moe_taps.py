"""Taps on vLLM's mixture-of-experts runner: scores, choices, gate weights and outputs.

Choices are recorded as logical expert ids: load balancing maps them to physical ones afterwards.
`routed_out` is taken after the engine's own scaling of the routed output, so that it means what is
added to the stream; gate weights stay as they multiply the experts.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import torch

from workbench.capture.vllm.discover import LayerParts
from workbench.capture.vllm.patches import Patches
from workbench.names import layer_site

MONOLITHIC: str = (
    "this MoE kernel routes inside itself and never shows its choices; "
    "choose another moe_backend to record them"
)


class MoeSink(Protocol):
    """The part of a sink that these taps use."""

    def run(self, call: Callable[..., None], *args: Any, **kwargs: Any) -> None: ...

    def record(self, site: str, tensor: torch.Tensor, *, derived: bool = False) -> None: ...

    def holds(self, site: str) -> bool: ...


def tap_runner(parts: LayerParts, sink: MoeSink, patches: Patches, *, hidden_size: int) -> None:
    """Wraps the runner of one MoE layer, on this object only.

    Args:
        parts: The layer; sites that its kernel hides are added to `parts.missing`.
        sink: Takes the tensors.
        patches: Remembers the wrappers.
        hidden_size: Width of the residual stream; kernels may pad their output beyond it.
    """
    runner = parts.runner

    def site(name: str) -> str:
        return layer_site(parts.index, name)

    if is_monolithic(runner):
        parts.missing["topk_ids"] = parts.missing["topk_weights"] = MONOLITHIC
        patches.wrap(
            runner.routed_experts,
            "forward_monolithic",
            lambda original: _watch_scores(original, sink, site("router_logits")),
        )
    else:
        _tap_router(parts, sink, patches)
    _tap_outputs(runner, sink, patches, site, hidden_size)


def is_monolithic(runner: Any) -> bool:
    """Whether the runner's kernel takes router logits and routes inside itself."""
    return bool(getattr(runner.routed_experts.quant_method, "is_monolithic", False))


def routes_outside(runner: Any) -> bool:
    """Whether routing happened before the runner (the engine's transformers backend)."""
    return hasattr(runner, "_moe_state")


def _tap_router(parts: LayerParts, sink: MoeSink, patches: Patches) -> None:
    runner, router = parts.runner, parts.runner.router
    logical: list[torch.Tensor] = []
    knows_logical = hasattr(router, "capture_fn")
    if knows_logical:
        before = router.capture_fn

        def capture(topk_ids: torch.Tensor) -> None:
            if before is not None:
                before(topk_ids)
            logical.append(topk_ids)

        patches.wrap(router, "capture_fn", lambda _original: capture)
    elif router.eplb_state is not None:
        parts.missing["topk_ids"] = "only physical expert ids are seen under load balancing"

    def saw(scores: Callable[[], torch.Tensor], weights: torch.Tensor, ids: torch.Tensor) -> None:
        if not routes_outside(runner):
            sink.record(layer_site(parts.index, "router_logits"), scores())
        if "topk_ids" not in parts.missing:
            ids = logical[-1] if logical else ids
            sink.record(layer_site(parts.index, "topk_ids"), ids.to(torch.int32))
        sink.record(layer_site(parts.index, "topk_weights"), weights)

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def select_experts(*args: Any, **kwargs: Any) -> Any:
            logical.clear()
            topk_weights, topk_ids = original(*args, **kwargs)
            scores = partial(_argument, original, "router_logits", args, kwargs)
            sink.run(saw, scores, topk_weights, topk_ids)
            return topk_weights, topk_ids

        return select_experts

    patches.wrap(router, "select_experts", make)
    if routes_outside(runner):
        _tap_outside_router(parts, sink, patches)


def _tap_outside_router(parts: LayerParts, sink: MoeSink, patches: Patches) -> None:
    """Router logits of a block that routes by itself: its child with one score per expert."""
    num_experts = int(parts.runner.moe_config.num_experts)
    name = layer_site(parts.index, "router_logits")

    def saw(output: Any) -> None:
        for item in output if isinstance(output, (tuple, list)) else (output,):
            is_scores = isinstance(item, torch.Tensor) and item.is_floating_point()
            if is_scores and item.shape[-1] == num_experts and not sink.holds(name):
                sink.record(name, item)
                return

    def hook(_module: Any, _args: Any, output: Any) -> None:
        sink.run(saw, output)

    block = parts.block
    for child in block.children() if block is not None else ():
        if child is not parts.runner:
            patches.keep(child.register_forward_hook(hook))


def _watch_scores(original: Callable[..., Any], sink: MoeSink, name: str) -> Callable[..., Any]:
    def saw(args: Any, kwargs: Any) -> None:
        sink.record(name, _argument(original, "router_logits", args, kwargs))

    def forward_monolithic(*args: Any, **kwargs: Any) -> Any:
        sink.run(saw, args, kwargs)
        return original(*args, **kwargs)

    return forward_monolithic


def _tap_outputs(
    runner: Any, sink: MoeSink, patches: Patches, site: Callable[[str], str], hidden_size: int
) -> None:
    def saw(name: str, tensor: torch.Tensor) -> None:
        sink.record(site(name), _whole(runner, tensor)[..., :hidden_size])

    def make_scale(original: Callable[..., Any]) -> Callable[..., Any]:
        def scale(shared: torch.Tensor | None, fused: torch.Tensor) -> Any:
            shared, fused = original(shared, fused)
            if shared is not None:
                sink.run(saw, "shared_out", shared)
            return shared, fused

        return scale

    def make_transform(original: Callable[..., Any]) -> Callable[..., Any]:
        def transform(fused: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = original(fused)
            sink.run(saw, "routed_out", result)
            return result

        return transform

    patches.wrap(runner, "_maybe_apply_routed_scale_to_output", make_scale)
    patches.wrap(runner, "apply_routed_output_transform", make_transform)


def _whole(runner: Any, tensor: torch.Tensor) -> torch.Tensor:
    """The tensor summed over tensor-parallel ranks, where each rank holds only its part.

    Every rank takes part: the recorder hooks all of them and writes on the first.
    """
    config, transform = runner.moe_config, runner.routed_output_transform
    is_single = config.tp_size * config.ep_size == 1
    # A transform that does not commute with the sum makes the engine sum before it.
    is_summed = transform is not None and not getattr(transform, "reduce_commutative", False)
    if is_single or is_summed or runner._fused_output_is_reduced:
        return tensor
    from vllm.distributed import tensor_model_parallel_all_reduce

    whole: torch.Tensor = tensor_model_parallel_all_reduce(tensor.clone())
    return whole


def _argument(call: Callable[..., Any], name: str, args: Any, kwargs: Any) -> torch.Tensor:
    found: torch.Tensor = inspect.signature(call).bind(*args, **kwargs).arguments[name]
    return found
