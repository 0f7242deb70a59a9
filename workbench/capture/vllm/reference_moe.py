"""The trainer's MoE module inside the live engine: everything else stays the engine's.

What is left of a divergence when both sides run the same MoE module does not come from the MoE.
In-process engines only: the module must live where the model lives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from workbench.capture.layers import LayerParts as ReferenceLayer
from workbench.capture.vllm.discover import LayerParts, find_parts
from workbench.capture.vllm.patches import Patches
from workbench.errors import RecordingError, UsageError

if TYPE_CHECKING:
    from vllm import LLM


@contextmanager
def reference_moe(
    llm: LLM, reference: Sequence[ReferenceLayer], *, layers: Sequence[int] | None = None
) -> Iterator[list[int]]:
    """While the block runs, the engine's MoE blocks compute with the reference's modules.

    Args:
        llm: An engine in this process, eager, on one device.
        reference: The trainer's layers, weights loaded, on the engine's device.
        layers: Which to replace; every MoE layer when left out.

    Yields:
        The layers that were replaced.

    Raises:
        RecordingError: The engine runs in a process of its own, or is compiled or split.
        UsageError: A layer is no MoE layer that one module makes, on either side.
    """
    runner = _model_runner(llm)
    text = runner.vllm_config.model_config.hf_text_config
    found = find_parts(runner.model, text.num_hidden_layers).layers
    wanted = [p.index for p in found if p.runner is not None] if layers is None else list(layers)
    patches = Patches()
    try:
        for index in wanted:
            patches.wrap(_block(found, index), "forward", _runs(_module(reference, index)))
        yield wanted
    finally:
        patches.remove()


def _model_runner(llm: LLM) -> Any:
    executor = getattr(llm.llm_engine, "model_executor", None)
    worker = getattr(getattr(executor, "driver_worker", None), "worker", None)
    if worker is None:
        raise RecordingError(
            "the reference module can only be put into an engine of this process",
            expected="VLLM_ENABLE_V1_MULTIPROCESSING=0",
            got="an engine in a process of its own",
            do="open the engine with multiprocess=False",
        )
    config = worker.vllm_config
    parallel = config.parallel_config
    if parallel.tensor_parallel_size > 1 or not config.model_config.enforce_eager:
        raise RecordingError(
            "the reference module can only be put into an eager engine on one device",
            expected="enforce_eager=True, tensor_parallel_size=1",
            got=f"enforce_eager={config.model_config.enforce_eager}, "
            f"tensor_parallel_size={parallel.tensor_parallel_size}",
            do="open the engine that way",
        )
    return worker.model_runner


def _block(layers: Sequence[LayerParts], index: int) -> nn.Module:
    layer = layers[index] if 0 <= index < len(layers) else None
    if layer is None or layer.runner is None or layer.block is None:
        raise UsageError(f"layer {index} of the engine has no MoE block to replace")
    if "mlp_out" in layer.missing:
        raise UsageError(
            f"layer {index} of the engine cannot take a reference module",
            got=layer.missing["mlp_out"],
        )
    return layer.block


def _module(layers: Sequence[ReferenceLayer], index: int) -> nn.Module:
    layer = layers[index] if 0 <= index < len(layers) else None
    if layer is None or layer.experts is None or layer.block is None:
        reason = "no such layer" if layer is None else layer.missing.get("mlp_out", "dense layer")
        raise UsageError(f"layer {index} of the trainer gives no reference module", got=reason)
    return layer.block


def _runs(module: nn.Module) -> Callable[[Any], Callable[..., torch.Tensor]]:
    """The engine calls a block with rows, (T, D); the trainer's takes sequences, (B, S, D)."""

    def make(_original: Any) -> Callable[..., torch.Tensor]:
        def forward(hidden_states: torch.Tensor, *_args: Any, **_kwargs: Any) -> torch.Tensor:
            rows_TD = hidden_states.reshape(-1, hidden_states.shape[-1])
            with torch.no_grad():
                output = module(rows_TD.unsqueeze(0))
            whole = output[0] if isinstance(output, tuple) else output
            made: torch.Tensor = whole.reshape(hidden_states.shape)
            return made

        return forward

    return make
