"""A's arithmetic inside B's forward, module by module.

A's captured output of a module carries two things: what A's module does otherwise than B's, and
what it was given. To put the captured value into B's forward swaps both, and everything upstream
with it; then no experiment could tell a cause from what it causes. What is transplanted here is the
first thing alone: B's module runs on its own input x, and its output is moved by A's local error,

    y = B(x) + (A_out - B(A_in)),

where A_in is what A's module was given and A_out what it made of it. Where B's module makes of x
exactly what it makes of A_in, y is exactly A_out. With every module transplanted the forward is
A's, bit for bit; with one, everything else is B's. Between, it is exact to first order in x - A_in.

Choices move where B's selection, given A's scores, chooses otherwise than A did. Gate weights are
matched by expert; where B's type cannot hold A's weights they pass in A's wider type, so that
their rounding shows at the gates and not at the experts.

Axis legend: N flat place of a batch, X element of a vector, K slot of B, J slot of A.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch

from workbench.attribution.intercept import Spot, intercept
from workbench.attribution.rollout_rows import Batch, Held
from workbench.attribution.substitute import (
    Place,
    Source,
    merge,
    merge_choices,
    merge_gates,
    replay,
    rounds,
)
from workbench.capture.structure import ModelParts


class LocalValues(NamedTuple):
    """What B's modules make of A's inputs, for one batch.

    Attributes:
        values: By place, flat (N, X), only where some row is not what A made.
        differing: Rows whose value is not A's, by place, for every place that A has.
        logits: B's head on A's last hidden states, [B, S, V]; None when A has the logits.
    """

    values: dict[Place, torch.Tensor]
    differing: dict[Place, int]
    logits: torch.Tensor | None

    @property
    def num_bytes(self) -> int:
        """Memory held."""
        tensors = [*self.values.values(), *([] if self.logits is None else [self.logits])]
        return sum(t.numel() * t.element_size() for t in tensors)


def local_values(parts: ModelParts, batch: Batch, source: Source) -> LocalValues:
    """One forward in which every module is given A's inputs; `source` stands at the batch."""
    visitor = _Local(source)
    with intercept(parts, visitor):
        logits_BSV = replay(parts, batch)
    has_logits = (None, "logits") in visitor.differing
    return LocalValues(visitor.values, visitor.differing, None if has_logits else logits_BSV)


class Transplant:
    """A visitor that gives some places A's arithmetic."""

    def __init__(self, places: Iterable[Place], local: LocalValues, source: Source) -> None:
        self._source = source
        self._local = {place: local.values[place] for place in places if place in local.values}

    def visit(self, spot: Spot) -> torch.Tensor | None:
        """The value moved by A's local error, None where there is none."""
        place = (spot.layer, spot.site)
        local_NX = self._local.get(place)
        held = None if local_NX is None else self._source.values(*place)
        if local_NX is None or held is None:
            return None
        if spot.site == "topk_ids":
            return _moved_choices(spot.tensor, local_NX, held)
        if spot.site == "topk_weights":
            ids = self._source.values(spot.layer, "topk_ids")
            assert ids is not None
            assert spot.beside is not None
            return _moved_gates(spot.tensor, spot.beside, local_NX, ids, held)
        return _moved(spot.tensor, local_NX, held)


def take_gates(spot: Spot, source: Source, held: Held) -> torch.Tensor | None:
    """A's gate weights matched by expert, in B's type where that holds them, else in A's."""
    ids = source.values(spot.layer, "topk_ids")
    if ids is None or spot.beside is None:
        return None
    return merge_gates(spot.tensor.to(_gate_type(spot.tensor, held)), spot.beside, ids, held)


def _gate_type(own: torch.Tensor, held: Held) -> torch.dtype:
    if not rounds(held.values_NX, own.dtype):
        return own.dtype
    return torch.promote_types(own.dtype, held.values_NX.dtype)


class _Local:
    """Gives every module A's inputs and keeps what it makes of them."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.values: dict[Place, torch.Tensor] = {}
        self.differing: dict[Place, int] = {}

    def visit(self, spot: Spot) -> torch.Tensor | None:
        place = (spot.layer, spot.site)
        held = self._source.values(*place)
        if held is None:
            return None
        taken = self._taken(spot, held)
        if taken is None:
            return None
        own_NX = spot.tensor.reshape(-1, spot.tensor.shape[-1])
        differs_N = ~_same_rows(own_NX, taken.reshape(own_NX.shape))
        count = int(differs_N.sum())
        self.differing[place] = self.differing.get(place, 0) + count
        if count and spot.site != "input":
            self.values[place] = own_NX.clone()
        return taken

    def _taken(self, spot: Spot, held: Held) -> torch.Tensor | None:
        if spot.site == "topk_ids":
            return merge_choices(spot.tensor, held)
        if spot.site == "topk_weights":
            return take_gates(spot, self._source, held)
        return merge(spot.tensor, held)


def _same_rows(a_NX: torch.Tensor, b_NX: torch.Tensor) -> torch.Tensor:
    """Rows equal in value, NaN equal to NaN, bool (N,)."""
    if a_NX.dtype != b_NX.dtype:
        wide = torch.promote_types(a_NX.dtype, b_NX.dtype)
        a_NX, b_NX = a_NX.to(wide), b_NX.to(wide)
    equal_N = (a_NX == b_NX).all(-1)
    if a_NX.is_floating_point() and not bool(equal_N.all()):
        equal_N |= ((a_NX == b_NX) | (a_NX.isnan() & b_NX.isnan())).all(-1)
    return equal_N


def _moved(own: torch.Tensor, local_NX: torch.Tensor, held: Held) -> torch.Tensor:
    own_NX = own.reshape(-1, own.shape[-1])
    result_NX = merge(own, held).reshape(own_NX.shape)
    rows = torch.nonzero(~_same_rows(own_NX, local_NX) & held.mask_N.to(own.device))[:, 0]
    if len(rows):
        error_RX = result_NX[rows].double() - local_NX[rows].double()
        result_NX[rows] = (own_NX[rows].double() + error_RX).to(own.dtype)
    return result_NX.reshape(own.shape)


def _moved_choices(own: torch.Tensor, local_NJ: torch.Tensor, held: Held) -> torch.Tensor:
    own_NK = own.reshape(-1, own.shape[-1])
    a_NK = merge(own, held).reshape(own_NK.shape)
    same_N1 = (own_NK == local_NJ).all(-1, keepdim=True)
    return torch.where(same_N1, a_NK, own_NK).reshape(own.shape)


def _moved_gates(
    own: torch.Tensor,
    ids: torch.Tensor,
    local_NJ: torch.Tensor,
    held_ids: Held,
    held: Held,
) -> torch.Tensor:
    """B's gate weights, each moved by A's local error at the same expert."""
    wide = _gate_type(own, held)
    own_NK = own.reshape(-1, own.shape[-1]).to(wide)
    ids_NK = ids.reshape(own_NK.shape)
    a_ids_NJ = held_ids.values_NX.to(ids.device, ids.dtype)
    mask_N = (held_ids.mask_N & held.mask_N).to(own.device)
    same_NKJ = (ids_NK[:, :, None] == a_ids_NJ[:, None, :]) & mask_N[:, None, None]
    slot_NK = same_NKJ.to(torch.int8).argmax(-1)
    a_NK = torch.take_along_dim(held.values_NX.to(own.device, wide), slot_NK, dim=1)
    local_NK = torch.take_along_dim(local_NJ.to(wide), slot_NK, dim=1)
    moved_NK = (own_NK.double() + (a_NK.double() - local_NK.double())).to(wide)
    exact_NK = torch.where(own_NK == local_NK, a_NK, moved_NK)
    return torch.where(same_NKJ.any(-1), exact_NK, own_NK).reshape(own.shape)
