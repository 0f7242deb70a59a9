"""How far two tensors of one batch are apart, row by row, in float64.

NaN and Inf: elements that hold the same non-finite value on both sides differ by 0, any other
non-finite element makes the row's error Inf. 0/0 is 0, x/0 is Inf. Rows outside the mask are NaN,
which means missing.

Axis legend: N flat place, X element of the vector, K slot.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

_UNITS = {
    torch.bfloat16: 2.0**-8,
    torch.float16: 2.0**-11,
    torch.float32: 2.0**-24,
    torch.float64: 2.0**-53,
    torch.float8_e4m3fn: 2.0**-4,
    torch.float8_e5m2: 2.0**-3,
}


_BLOCK = 1 << 22
"""Elements that are widened to float64 at once."""


class Projection(NamedTuple):
    """Sums for a best-fit scale of x on y over many rows: sum(xy), sum(yy)."""

    xy: float
    yy: float


def relative(x_NX: torch.Tensor, y_NX: torch.Tensor, mask_N: torch.Tensor) -> torch.Tensor:
    """‖x - y‖ / ‖y‖ per row, float64 (N,), NaN outside the mask."""
    step = max(1, _BLOCK // max(1, x_NX.shape[1]))
    if len(x_NX) <= step:
        return _relative(x_NX, y_NX, mask_N)
    blocks = [slice(start, start + step) for start in range(0, len(x_NX), step)]
    return torch.cat([_relative(x_NX[at], y_NX[at], mask_N[at]) for at in blocks])


def _relative(x_NX: torch.Tensor, y_NX: torch.Tensor, mask_N: torch.Tensor) -> torch.Tensor:
    x, y = x_NX.double(), y_NX.double()
    finite = x.isfinite() & y.isfinite()
    if not bool(finite.all()):
        same = (x == y) | (x.isnan() & y.isnan())
        broken_N = (~finite & ~same).any(-1)
        x, y = torch.where(finite, x, 0.0), torch.where(finite, y, 0.0)
    else:
        broken_N = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    d_N, y_N = (x - y).norm(dim=-1), y.norm(dim=-1)
    error_N = torch.where(d_N == 0, 0.0, d_N / y_N)
    error_N = error_N.masked_fill(broken_N, torch.inf)
    return error_N.masked_fill(~mask_N, torch.nan)


def projection(x_NX: torch.Tensor, y_NX: torch.Tensor, mask_N: torch.Tensor) -> Projection:
    """What a best-fit scale needs, over the rows of the mask that are finite on both sides."""
    xy = yy = 0.0
    rows = torch.nonzero(mask_N)[:, 0]
    step = max(1, _BLOCK // max(1, x_NX.shape[1]))
    for start in range(0, len(rows), step):
        block = rows[start : start + step]
        x, y = x_NX[block].double(), y_NX[block].double()
        fine = (x.isfinite() & y.isfinite()).all(-1)
        x, y = x[fine], y[fine]
        xy += float((x * y).sum())
        yy += float((y * y).sum())
    return Projection(xy, yy)


def set_distance(
    a_ids_NK: torch.Tensor, b_ids_NK: torch.Tensor, mask_N: torch.Tensor
) -> torch.Tensor:
    """Share of A's choices that B did not make, float64 (N,), NaN outside the mask."""
    known_NK = (a_ids_NK[:, :, None] == b_ids_NK[:, None, :]).any(-1)
    share_N = (~known_NK).double().mean(-1)
    return share_N.masked_fill(~mask_N, torch.nan)


def choice_gap(
    scores_NE: torch.Tensor, a_ids_NK: torch.Tensor, b_ids_NK: torch.Tensor, mask_N: torch.Tensor
) -> torch.Tensor:
    """How much better B's choices score than A's by B's own scores, relative to their size.

    The largest score that B chose and A did not, minus the smallest that A chose and B did not,
    over the larger magnitude of the two; 0 where the sets agree or the scores tie. Float64 (N,),
    Inf where a score is not finite, NaN outside the mask.
    """
    scores = scores_NE.double()
    b_only = ~(b_ids_NK[:, :, None] == a_ids_NK[:, None, :]).any(-1)
    a_only = ~(a_ids_NK[:, :, None] == b_ids_NK[:, None, :]).any(-1)
    best_N = scores.gather(1, b_ids_NK).masked_fill(~b_only, -torch.inf).amax(-1)
    worst_N = scores.gather(1, a_ids_NK).masked_fill(~a_only, torch.inf).amin(-1)
    gap_N = (best_N - worst_N) / torch.maximum(best_N.abs(), worst_N.abs())
    gap_N = torch.where(best_N == worst_N, 0.0, gap_N).nan_to_num(torch.inf, torch.inf, torch.inf)
    gap_N = torch.where(a_only.any(-1), gap_N, 0.0)
    return gap_N.masked_fill(~mask_N, torch.nan)


def effective_unit(values: torch.Tensor, path_dtype: torch.dtype) -> float:
    """Unit roundoff of the type that values really have.

    A wider tensor whose every value is one of the path's type was rounded to that type.
    """
    own = _UNITS[values.dtype]
    path = _UNITS.get(path_dtype, own)
    if path <= own:
        return own
    wide = values.double()
    fits = bool(((wide.to(path_dtype).double() == wide) | ~wide.isfinite()).all())
    return path if fits else own


def unit_of(dtype: torch.dtype) -> float:
    """Unit roundoff of a float type."""
    return _UNITS[dtype]
