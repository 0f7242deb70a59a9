"""Weight fingerprints: what a model's weights are, independent of how an engine lays them out.

A parameter's sum runs over the float32 bit patterns (as uint32) of its values, modulo 2**64.
bfloat16, float16 and float8 values are exact in float32, so a trainer that keeps the same values in
float32 gets the same sums. Order, transposition, stacking and fusing do not matter, and zero
padding adds nothing. The invariant: the tensors are only read, a bounded block at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
import torch

from workbench.capture.arrays import dtype_name
from workbench.capture.parameter_names import canonical_parameter
from workbench.errors import RecordingError
from workbench.store import ParameterSum

__all__ = ["bit_sum", "canonical_parameter", "fingerprint"]

_BLOCK: Final = 1 << 22
_MODULUS: Final = 1 << 64


class _Bits(NamedTuple):
    sum: int
    num_nonzero: int


def bit_sum(tensor: torch.Tensor) -> int:
    """Sum of the float32 bit patterns of all values, modulo 2**64.

    float64 values are rounded to float32 first; integers count with their own value. -0.0, NaN and
    Inf count with their bits like every other value; +0.0 adds nothing.

    Raises:
        RecordingError: The tensor has no data (meta device) or complex values.
    """
    return _bits(tensor).sum


def fingerprint(named_parameters: Iterable[tuple[str, torch.Tensor]]) -> dict[str, ParameterSum]:
    """Sums of all parameters by canonical name; parts that share a name are added up.

    `numel` counts the values that are not +0.0, so that padding with zeros does not change it, and
    `dtype` is the type the parts are held in (joined by `+` where they differ). A head with the
    very values of the embedding is left out: engines differ in whether a tied head is a parameter
    of its own. Names must come once each, as `named_parameters()` gives them; buffers that are
    weights (selection biases of routers) belong in the iterable too.

    Raises:
        RecordingError: A tensor has no data.
    """
    sums: dict[str, _Bits] = {}
    dtypes: dict[str, set[str]] = {}
    for name, tensor in named_parameters:
        canonical = canonical_parameter(name)
        part = _bits(tensor)
        total = sums.get(canonical, _Bits(0, 0))
        sums[canonical] = _Bits(
            (total.sum + part.sum) % _MODULUS, total.num_nonzero + part.num_nonzero
        )
        dtypes.setdefault(canonical, set()).add(dtype_name(tensor.dtype))
    if "head" in sums and sums["head"] == sums.get("embed"):
        del sums["head"]
    return {
        name: ParameterSum(
            sum=bits.sum, numel=bits.num_nonzero, dtype="+".join(sorted(dtypes[name]))
        )
        for name, bits in sums.items()
    }


def _bits(tensor: torch.Tensor) -> _Bits:
    if tensor.is_meta or tensor.is_complex():
        raise RecordingError(
            "cannot take the fingerprint of a parameter",
            expected="real numbers with data",
            got=f"{dtype_name(tensor.dtype)} on device {tensor.device}",
            do="load the weights before recording",
        )
    total = num_nonzero = 0
    for block in _blocks(tensor.detach()):
        part = _block_bits(block)
        total += part.sum
        num_nonzero += part.num_nonzero
    return _Bits(total % _MODULUS, num_nonzero)


def _blocks(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """All values in flat blocks, without copying a tensor that is only transposed."""
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    flat = tensor.permute(order).reshape(-1)
    for start in range(0, flat.numel(), _BLOCK):
        yield flat[start : start + _BLOCK]


def _block_bits(block_T: torch.Tensor) -> _Bits:
    if block_T.dtype is torch.bfloat16:
        # The upper half of the float32 pattern; the lower half is zero.
        bits = _unsigned(block_T.view(torch.int16))
        return _Bits(bits.sum << 16, bits.num_nonzero)
    if block_T.is_floating_point():
        return _unsigned(block_T.to(torch.float32).view(torch.int32))
    return _unsigned(block_T.to(torch.int64))


def _unsigned(words_T: torch.Tensor) -> _Bits:
    """Sum of signed machine words read as unsigned ones."""
    if words_T.device.type != "cpu":
        return _unsigned_on_device(words_T)
    # numpy adds narrow words to a wide sum ten times faster than torch does on a CPU.
    unsigned_T = words_T.numpy().view(f"u{words_T.element_size()}")
    return _Bits(int(unsigned_T.sum(dtype=np.uint64)), int(np.count_nonzero(unsigned_T)))


def _unsigned_on_device(words_T: torch.Tensor) -> _Bits:
    width = 8 * words_T.element_size()
    signed = int(words_T.sum(dtype=torch.int64))
    num_negative = int((words_T < 0).count_nonzero())
    return _Bits((signed + (num_negative << width)) % _MODULUS, int(words_T.count_nonzero()))
