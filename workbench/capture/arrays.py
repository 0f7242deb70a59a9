"""Between torch and numpy, bit for bit. Owns element types on their way to and from disk.

bfloat16 and float8 travel as integers of their width and are named again by ml_dtypes; no value is
ever converted.
"""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np
import torch

from workbench.errors import UsageError, did_you_mean

_AS_BITS: Final[dict[torch.dtype, tuple[torch.dtype, Any]]] = {
    torch.bfloat16: (torch.int16, ml_dtypes.bfloat16),
    torch.float8_e4m3fn: (torch.uint8, ml_dtypes.float8_e4m3fn),
    torch.float8_e5m2: (torch.uint8, ml_dtypes.float8_e5m2),
}

DTYPE_BY_NAME: Final[dict[str, torch.dtype]] = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
    "float64": torch.float64,
}
"""Element types a model can be loaded in."""


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """The tensor's bits as a numpy array; shares memory with a contiguous tensor on the CPU."""
    host = tensor.detach().cpu().contiguous()
    bits = _AS_BITS.get(host.dtype)
    if bits is None:
        return host.numpy()
    return host.view(bits[0]).numpy().view(bits[1])


def dtype_name(dtype: torch.dtype) -> str:
    """The type's name as numpy and ml_dtypes spell it.

    >>> dtype_name(torch.bfloat16)
    'bfloat16'
    """
    return str(dtype).removeprefix("torch.")


def dtype_by_name(name: str) -> torch.dtype:
    """The element type a model is to be loaded in.

    Raises:
        UsageError: No such type, or one that models are not loaded in.
    """
    found = DTYPE_BY_NAME.get(name.removeprefix("torch."))
    if found is None:
        raise UsageError(f"cannot load a model as {name!r}", do=did_you_mean(name, DTYPE_BY_NAME))
    return found
