"""Building the local error map: batches through the trainer, and through the arbiter beside it.

Owns the passes and what they leave behind: columns by (layer, row), and per module the sums for a
best-fit scale. Memory: one batch of values, whatever the number of sequences.

Axis legend: N flat place, X element, T row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
import torch

from workbench.attribution import rowerrors
from workbench.attribution.columns import Scratch
from workbench.attribution.intercept import intercept
from workbench.attribution.kinds import MODULE_BY_NAME
from workbench.attribution.local import (
    LocalPass,
    ModulePlace,
    Seen,
    Shape,
    dense_gates,
    rows_of,
)
from workbench.attribution.reference import Reference
from workbench.attribution.rollout_rows import Batch, Sequences, SideRows
from workbench.attribution.substitute import replay, token_logprobs
from workbench.capture.arrays import DTYPE_BY_NAME
from workbench.capture.structure import ModelParts

ARBITER_ROWS: Final = 16384
"""Rows that the arbiter sees; then only requests with a module's worst row."""


@dataclass(slots=True)
class Scale:
    """Sums for best-fit scales: x is about (xy / yy) * y."""

    xy: float = 0.0
    yy: float = 0.0

    def add(self, found: rowerrors.Projection) -> None:
        """Takes some rows."""
        self.xy += found.xy
        self.yy += found.yy

    @property
    def value(self) -> float | None:
        """The scale, None where the reference is all zeros."""
        return self.xy / self.yy if self.yy > 0 else None


@dataclass(slots=True)
class Tally:
    """What is kept of a module over all rows.

    Attributes:
        unit: Unit roundoff of the coarser of both sides' types at its site.
        alike: Whether both sides hold it in the same type, so that each measures the other.
        local: A on B's module.
        a, b: Both sides on the arbiter.
    """

    unit: float
    alike: bool = True
    local: Scale = field(default_factory=Scale)
    a: Scale = field(default_factory=Scale)
    b: Scale = field(default_factory=Scale)


class Watcher(Protocol):
    """Looks at the forward of a batch beside the map."""

    def begin(self, batch: Batch, *, sampled: bool) -> None:
        """Before a batch; `sampled` when the arbiter sees it too."""
        ...

    def seen(self, seen: Seen) -> None:
        """A module, measured."""
        ...


@dataclass(slots=True)
class Map:
    """The local error map while it is built.

    Attributes:
        scratch: Its columns.
        tallies: By module and layer, in execution order.
        rows_judged: Rows that the arbiter saw.
    """

    scratch: Scratch
    tallies: dict[ModulePlace, Tally] = field(default_factory=dict)
    rows_judged: int = 0


class Mapper:
    """Runs the passes.

    Args:
        parts: The trainer.
        reference: The arbiter, or None.
        side_a: A's values, in B's contracts.
        side_b: B's values.
        shape: Of the model.
        dtypes: Names of the types both paths run in.
        found: Filled as batches go by.
        watchers: See every module too.
    """

    def __init__(
        self,
        parts: ModelParts,
        reference: Reference | None,
        side_a: SideRows,
        side_b: SideRows,
        shape: Shape,
        dtypes: tuple[str, str],
        found: Map,
        watchers: tuple[Watcher, ...] = (),
    ) -> None:
        self.parts, self.reference, self.shape = parts, reference, shape
        self.side_a, self.side_b = side_a, side_b
        self.dtype_a, self.dtype_b = (_path_dtype(name) for name in dtypes)
        self.found, self.watchers = found, watchers
        self._batch: Batch | None = None
        self._own: dict[ModulePlace, torch.Tensor] = {}
        self._keep = False
        self._again = False

    def run(
        self,
        sequences: Sequences,
        *,
        max_tokens: int,
    ) -> None:
        """Maps every sequence."""
        for batch in sequences.batches(max_tokens=max_tokens):
            sampled = self.reference is not None and self.found.rows_judged < ARBITER_ROWS
            self._map(batch, sampled=sampled)

    def judge(self, sequences: Sequences, requests: frozenset[str], *, max_tokens: int) -> None:
        """Shows further requests to the arbiter."""
        if self.reference is None or not requests:
            return
        for batch in sequences.batches(max_tokens=max_tokens, only=requests):
            self._map(batch, sampled=True, again=True)

    def _map(self, batch: Batch, *, sampled: bool, again: bool = False) -> None:
        self._batch, self._keep, self._again = batch, sampled, again
        self._own.clear()
        self.side_a.use(batch)
        self.side_b.use(batch)
        for watcher in () if again else self.watchers:
            watcher.begin(batch, sampled=sampled)
        with intercept(self.parts, LocalPass(self.side_a, batch, self.shape, self)):
            logits_BSV = replay(self.parts, batch)
        own_logp_BS = self._head(logits_BSV, batch) if self._scores_head() else None
        if sampled and self.reference is not None:
            self.found.rows_judged += int((batch.rows_N >= 0).sum())
            judge = _Arbiter(self)
            with (
                self.reference.mode(),
                intercept(self.reference.parts, LocalPass(self.side_a, batch, self.shape, judge)),
            ):
                exact_BSV = replay(self.reference.parts, batch)
            if own_logp_BS is not None:
                self._judge_head(exact_BSV, own_logp_BS, batch)
        self._own.clear()

    def own_of(self, place: ModulePlace) -> torch.Tensor | None:
        """What the trainer's module made in this batch."""
        return self._own.get(place)

    def _scores_head(self) -> bool:
        """Without logits the head is judged by the log-probabilities that every capture has."""
        return self.side_a.has(None, "final_norm") and not self.side_a.has(None, "logits")

    def _head(self, logits_BSV: torch.Tensor, batch: Batch) -> torch.Tensor:
        """The head's local error from one token's log-probability, noted at the row before it.

        |logp_A - logp| over the larger of |logp| and ln V, as the comparison's tolerance counts.
        """
        own_BS = token_logprobs(logits_BSV, batch).double()
        place: ModulePlace = (None, "lm_head")
        if place not in self.found.tallies:
            a, b = (rowerrors.unit_of(dtype) for dtype in (self.dtype_a, self.dtype_b))
            self.found.tallies[place] = Tally(unit=max(a, b), alike=a == b)
        error_N, mask_N = self._head_error(own_BS, None, batch, logits_BSV.shape[-1])
        if not self._again:
            self.put(place, "local", mask_N, error_N)
        return own_BS

    def _judge_head(self, exact_BSV: torch.Tensor, own_BS: torch.Tensor, batch: Batch) -> None:
        exact_BS = _logprobs64(exact_BSV, batch)
        unit = self.found.tallies[None, "lm_head"].unit
        for number, x_BS in (("units_a", None), ("units_b", own_BS)):
            error_N, mask_N = self._head_error(exact_BS, x_BS, batch, exact_BSV.shape[-1])
            self.put((None, "lm_head"), number, mask_N, error_N / unit)

    def _head_error(
        self, reference_BS: torch.Tensor, x_BS: torch.Tensor | None, batch: Batch, vocab: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Error of A (`x_BS` None) or of another score, per row that scores a token."""
        held = self.side_a.values(None, "final_norm")
        assert held is not None
        a_BS = torch.from_numpy(self.side_a.logprobs(batch.rows_BS)).to(reference_BS.device)
        given_BS = held.mask_N.reshape(batch.rows_BS.shape).to(reference_BS.device)
        x_BS = a_BS if x_BS is None else x_BS
        error_BS = torch.full_like(reference_BS, torch.nan)
        spread_BS = reference_BS.abs().clamp(min=math.log(max(2, vocab)))
        error_BS[:, :-1] = ((x_BS - reference_BS).abs() / spread_BS)[:, 1:]
        mask_BS = given_BS & ~torch.isnan(error_BS)
        mask_BS[:, :-1] &= ~torch.isnan(a_BS[:, 1:])
        return error_BS.reshape(-1), mask_BS.reshape(-1)

    def seen(self, seen: Seen) -> None:
        """Measures one module of the trainer."""
        assert self._batch is not None
        if self._keep:
            self._own[seen.place] = seen.own_NX.clone()
        if self._again:
            return
        tally = self.found.tallies.get(seen.place)
        if tally is None:
            tally = self.found.tallies[seen.place] = self._tally(seen)
        self.put(seen.place, "local", seen.mask_N, seen.error_N())
        if seen.scores_NE is None:
            tally.local.add(rowerrors.projection(seen.a_NX, seen.own_NX, seen.mask_N))
        self._inherited(seen)
        for watcher in self.watchers:
            watcher.seen(seen)

    def _tally(self, seen: Seen) -> Tally:
        if seen.scores_NE is not None:
            return Tally(unit=rowerrors.unit_of(seen.scores_NE.dtype))
        rows = seen.mask_N
        a = rowerrors.effective_unit(seen.a_NX[rows], self.dtype_a)
        b = rowerrors.effective_unit(seen.own_NX[rows], self.dtype_b)
        return Tally(unit=max(a, b), alike=a == b)

    def put(
        self, place: ModulePlace, number: str, mask_N: torch.Tensor, values_N: torch.Tensor
    ) -> None:
        """Writes a number of every measured row."""
        assert self._batch is not None
        places, rows = rows_of(self._batch, mask_N)
        values = values_N.cpu().numpy()[places].astype(np.float32)
        self.found.scratch.put(place[1], number, place[0], rows, values)

    def _inherited(self, seen: Seen) -> None:
        """What the difference of the inputs makes of B's module, and A against B as captured."""
        layer, name = seen.place
        site = MODULE_BY_NAME[name].site
        held = self.side_b.values(layer, site)
        if held is None:
            return
        b_NX = held.values_NX.to(seen.own_NX.device)
        mask_N = seen.mask_N & held.mask_N.to(seen.mask_N.device)
        if name == "top_k":
            b_NX = b_NX.long()
            inherited_N = rowerrors.set_distance(seen.own_NX, b_NX, mask_N)
            total_N = rowerrors.set_distance(seen.a_NX, b_NX, mask_N)
        else:
            if name == "gate_weights":
                ids = self.side_b.values(layer, "topk_ids")
                if ids is None:
                    return
                mask_N &= ids.mask_N.to(mask_N.device)
                ids_NK = ids.values_NX.to(b_NX.device).long().clamp(0, seen.own_NX.shape[1] - 1)
                b_NX = dense_gates(ids_NK, b_NX, seen.own_NX.shape[1])
            width = min(seen.own_NX.shape[1], b_NX.shape[1])
            b_NX = b_NX[:, :width]
            inherited_N = rowerrors.relative(seen.own_NX[:, :width], b_NX, mask_N)
            total_N = rowerrors.relative(seen.a_NX[:, :width], b_NX, mask_N)
        self.put(seen.place, "inherited", mask_N, inherited_N)
        self.put(seen.place, "total", mask_N, total_N)


class _Arbiter:
    """Measures both sides against the reference, in units of rounding."""

    def __init__(self, mapper: Mapper) -> None:
        self._mapper = mapper

    def seen(self, seen: Seen) -> None:
        mapper = self._mapper
        own = mapper.own_of(seen.place)
        tally = mapper.found.tallies.get(seen.place)
        if own is None or tally is None:
            return
        if seen.scores_NE is not None and seen.largest_N is not None:
            scale_N = seen.largest_N * tally.unit
            a_N, b_N = (
                rowerrors.choice_gap(seen.scores_NE, ids, seen.own_NX, seen.mask_N) / scale_N
                for ids in (seen.a_NX, own)
            )
        else:
            a_N, b_N = (
                rowerrors.relative(x, seen.own_NX, seen.mask_N) / tally.unit
                for x in (seen.a_NX, own)
            )
            tally.a.add(rowerrors.projection(seen.a_NX, seen.own_NX, seen.mask_N))
            tally.b.add(rowerrors.projection(own, seen.own_NX, seen.mask_N))
        mapper.put(seen.place, "units_a", seen.mask_N, a_N)
        mapper.put(seen.place, "units_b", seen.mask_N, b_N)


def _logprobs64(logits_BSV: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Log-probabilities of the tokens, float64 [B, S], NaN where none is scored."""
    found_BS = torch.full(batch.input_ids_BS.shape, torch.nan, dtype=torch.float64)
    ids_BS = batch.input_ids_BS[:, 1:, None].to(logits_BSV.device)
    scored_BS = torch.log_softmax(logits_BSV[:, :-1].double(), -1).gather(-1, ids_BS)[..., 0]
    found_BS = found_BS.to(logits_BSV.device)
    found_BS[:, 1:] = scored_BS
    return found_BS.masked_fill(batch.mask_BS.to(logits_BSV.device) == 0, torch.nan)


def _path_dtype(name: str) -> torch.dtype:
    return DTYPE_BY_NAME.get(name, torch.float32)
