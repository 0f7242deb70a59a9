"""The arbiter's model: a copy of the trainer's that computes in float64 throughout.

A model cast to float64 still computes norms, softmax and rotary angles in float32 where its code
says so; a function mode turns every such request into float64. The copy runs eager code only and
loses its hooks, so what was hung onto the live model does not come along.
"""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from workbench.capture.structure import ModelParts, find_parts

MEMORY_SHARE: Final = 0.5
"""Of the memory that is free, for the copy."""

_NARROW: Final = frozenset({torch.float32, torch.bfloat16, torch.float16})
_CASTS: Final = frozenset({"float", "half", "bfloat16"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A wider copy of a model.

    Attributes:
        parts: The copy, taken apart.
        dtype: What it computes in.
        note: Why it is not float64; "" when it is.
    """

    parts: ModelParts
    dtype: torch.dtype
    note: str

    def mode(self) -> Widened:
        """The function mode to run it under."""
        return Widened(self.dtype)


class Widened(TorchFunctionMode):
    """Every request for a narrower float type becomes one for `dtype`."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self._dtype = dtype
        self._narrow = _NARROW - {dtype}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in _CASTS and isinstance(args[0], torch.Tensor):
            return args[0].to(self._dtype)
        if name == "type_as" and args[1].dtype in self._narrow:
            return args[0].to(self._dtype)
        args = tuple(self._wide(value) for value in args)
        return func(*args, **{key: self._wide(value) for key, value in kwargs.items()})

    def _wide(self, value: Any) -> Any:
        return self._dtype if isinstance(value, torch.dtype) and value in self._narrow else value


def make_reference(parts: ModelParts) -> Reference | None:
    """A copy in float64, in float32 where memory or a module forbids it, None where neither fits.

    None also for a float32 model that cannot be had in float64: an arbiter must be finer.
    """
    finest = max(
        (p.dtype for p in parts.model.parameters() if p.is_floating_point()),
        key=lambda dtype: torch.finfo(dtype).bits,
        default=torch.float32,
    )
    reasons: list[str] = []
    for dtype in (torch.float64, torch.float32):
        if torch.finfo(dtype).bits <= torch.finfo(finest).bits:
            continue
        if _bytes(parts.model, dtype) > MEMORY_SHARE * free_memory():
            reasons.append(f"a copy in {str(dtype)[6:]} does not fit in memory")
            continue
        copied = _copy(parts.model, dtype)
        return Reference(parts=find_parts(copied), dtype=dtype, note="; ".join(reasons))
    return None


def _bytes(model: nn.Module, dtype: torch.dtype) -> int:
    return sum(p.numel() for p in model.parameters()) * torch.finfo(dtype).bits // 8


def free_memory() -> int:
    """Bytes of memory that the machine can give now."""
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return 1 << 33


def _copy(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    copied: Any = copy.deepcopy(model).to(dtype).eval()
    for module in copied.modules():
        for hooks in (module._forward_hooks, module._forward_pre_hooks):  # noqa: SLF001
            hooks.clear()
    if hasattr(copied, "set_experts_implementation") and _uses_experts(copied):
        copied.set_experts_implementation("eager")
    attention = getattr(copied.config, "_attn_implementation", "eager")
    if attention not in ("eager", "sdpa") and hasattr(copied, "set_attn_implementation"):
        copied.set_attn_implementation("eager")
    found: nn.Module = copied
    return found


def _uses_experts(model: nn.Module) -> bool:
    return any(hasattr(module, "_is_expert_parallel") for module in model.modules())
