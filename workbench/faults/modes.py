"""Changing one operation inside a module's forward: a linear map, a top-k selection.

For places that no hook reaches. Imports torch alone; the mode is on only while the module runs.

Axis legend: T row, E expert, K top-k slot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from workbench.capture.arrays import dtype_name
from workbench.faults.kinds import Size, relative_size
from workbench.faults.perturb import perturb

_LINEAR: Final = (functional.linear, torch.matmul, torch.Tensor.matmul)
_TOP_K: Final = (torch.topk, torch.Tensor.topk)


class PerturbScores(TorchFunctionMode):
    """Makes the router's scores wrong where its matrix gives them; what follows uses them."""

    def __init__(self, num_scores: int, size: Size | float) -> None:
        super().__init__()
        self._num_scores, self._size = num_scores, size

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        output = func(*args, **(kwargs or {}))
        is_scores = func in _LINEAR
        if is_scores and output.shape[-1] == self._num_scores:
            return perturb(output, self._size)
        return output


class NextExpert(TorchFunctionMode):
    """Takes the (k+1)-th expert instead of the k-th where the scores of both are near."""

    def __init__(self, num_experts: int, top_k: int, size: Size | float) -> None:
        super().__init__()
        self._num_experts, self._top_k, self._size = num_experts, top_k, size

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func not in _TOP_K or not self._selects_experts(*args, **kwargs):
            return func(*args, **kwargs)
        scores_TE = args[0] if args else kwargs["input"]
        values_TJ, ids_TJ = torch.sort(scores_TE, dim=-1, descending=True, stable=True)
        last, after = values_TJ[:, self._top_k - 1], values_TJ[:, self._top_k]
        relative = relative_size(self._size, dtype_name(scores_TE.dtype))
        near_T = (last - after) <= relative * last.abs()
        if self._size == "gross":
            near_T = torch.ones_like(near_T)
        place_T = torch.where(near_T, self._top_k, self._top_k - 1).unsqueeze(-1)
        keep = self._top_k - 1
        values_TK = torch.cat([values_TJ[:, :keep], values_TJ.gather(-1, place_T)], dim=-1)
        ids_TK = torch.cat([ids_TJ[:, :keep], ids_TJ.gather(-1, place_T)], dim=-1)
        plain_TK = func(*args, **kwargs)
        # Rows that keep their experts keep their order too, whatever the selection's own is.
        changed_T1 = near_T.unsqueeze(-1)
        return torch.return_types.topk(
            (
                torch.where(changed_T1, values_TK, plain_TK[0]),
                torch.where(changed_T1, ids_TK, plain_TK[1]),
            )
        )

    def _selects_experts(self, scores: Any, k: int = 0, *_: Any, **__: Any) -> bool:
        # Groups of experts are selected with another shape first.
        return bool(
            scores.dim() == 2 and scores.shape[-1] == self._num_experts and k == self._top_k
        )


class SplitProducts(TorchFunctionMode):
    """Every linear map as the sum of two halves of its inner dimension, each in the path's type.

    Kernels split so when a batch has few rows, and torch lets them add in the 16-bit type unless
    `allow_bf16_reduced_precision_reduction` is off.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is not functional.linear:
            return func(*args, **kwargs)
        bound = dict(zip(("input", "weight", "bias"), args, strict=False)) | kwargs
        values, weight, bias = bound["input"], bound["weight"], bound.get("bias")
        half = values.shape[-1] // 2
        first = func(values[..., :half], weight[..., :half])
        return first + func(values[..., half:], weight[..., half:], bias)


@contextmanager
def running_under(module: nn.Module, make_mode: Callable[[], TorchFunctionMode]) -> Iterator[None]:
    """Every forward of `module` runs under a fresh mode until the block ends."""
    original = module.forward
    had_own = "forward" in vars(module)

    @wraps(original)
    def forward(*args: Any, **kwargs: Any) -> Any:
        with make_mode():
            return original(*args, **kwargs)

    module.forward = forward
    try:
        yield
    finally:
        if had_own:
            module.forward = original
        else:
            del module.forward
