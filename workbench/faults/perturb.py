"""Making values a little wrong, the same way every time. Imports torch alone.

Axis legend: D the last axis of any tensor.
"""

from __future__ import annotations

from functools import lru_cache

import torch

from workbench.capture.arrays import dtype_name
from workbench.faults.kinds import Size, relative_size


def perturb(tensor: torch.Tensor, size: Size | float) -> torch.Tensor:
    """Every value off by the given relative size, its sign fixed per column.

    Signs, not a factor: the norm that follows would divide a factor out. Computed in float64, one
    rounding back.
    """
    relative = relative_size(size, dtype_name(tensor.dtype))
    signs_D = _signs(tensor.shape[-1]).to(tensor.device)
    return (tensor.double() * (1 + relative * signs_D)).to(tensor.dtype)


@lru_cache(maxsize=64)
def _signs(width: int) -> torch.Tensor:
    """Half +1, half -1, in an order that is random and always the same."""
    generator = torch.Generator().manual_seed(width)
    signs_D = torch.ones(width, dtype=torch.float64)
    signs_D[torch.randperm(width, generator=generator)[: width // 2]] = -1
    return signs_D
