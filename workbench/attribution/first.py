"""The first local error of a comparison, with the two values that differ most there."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from workbench.address import Address
from workbench.attribution.intercept import intercept
from workbench.attribution.judge import Finding
from workbench.attribution.kinds import MODULE_BY_NAME
from workbench.attribution.local import LocalPass, ModulePlace, Seen
from workbench.attribution.mapping import Mapper
from workbench.attribution.rollout_rows import Batch, Sequences
from workbench.attribution.substitute import replay
from workbench.comparison.result import Comparison

Entry = dict[str, Any]


def first_local_error(
    comparison: Comparison, mapper: Mapper, findings: list[Finding], sequences: Sequences
) -> Entry | None:
    """The first row beyond, and in it the first module in execution order; None without one."""
    beyond = [finding for finding in findings if finding.first_row is not None]
    if not beyond:
        return None
    # `findings` stand in execution order, and min keeps the first of equal rows.
    finding = min(beyond, key=lambda f: f.first_row or 0)
    row = int(finding.first_row or 0)
    layer, name = finding.place
    module = MODULE_BY_NAME[name]
    at = comparison.rows.row(row, named=True)
    size = mapper.found.scratch.values(name, "local", layer)[row]
    pair = _values(mapper, sequences, str(at["request"]), finding.place, row)
    return {
        "layer": layer,
        "site": module.site,
        "module": name,
        "request": at["request"],
        "position": at["position"],
        "token": at["text"],
        "token_id": at["token_id"],
        "row": row,
        "address": str(Address(layer=layer, row=row, site=module.site)),
        "a": None if pair is None else pair[0],
        "b": None if pair is None else pair[1],
        "size": float(size) if np.isfinite(size) else None,
        "budget": finding.budget,
        "who": finding.who,
        "nonfinite": not np.isfinite(size),
    }


class _Catch:
    """Keeps one module's two vectors at one row."""

    def __init__(self, place: ModulePlace, batch: Batch, row: int) -> None:
        self._place = place
        self._at = int(np.flatnonzero(batch.rows_N == row)[0])
        self.pair: tuple[torch.Tensor, torch.Tensor] | None = None

    def seen(self, seen: Seen) -> None:
        if seen.place == self._place:
            self.pair = (seen.a_NX[self._at].cpu(), seen.own_NX[self._at].cpu())


def _values(
    mapper: Mapper, sequences: Sequences, request: str, place: ModulePlace, row: int
) -> tuple[Any, Any] | None:
    """A's value and B's local one: the elements that differ most, or the chosen experts."""
    batch = next(iter(sequences.batches(only=frozenset({request}))), None)
    if batch is None:
        return None
    catch = _Catch(place, batch, row)
    mapper.side_a.use(batch)
    with intercept(mapper.parts, LocalPass(mapper.side_a, batch, mapper.shape, catch)):
        replay(mapper.parts, batch)
    if catch.pair is None:
        return None
    a, own = catch.pair
    if not own.is_floating_point():
        return sorted(a.tolist()), sorted(own.tolist())
    gap = (a.double() - own.double()).abs().nan_to_num(torch.inf)
    at = int(gap.argmax())
    return tuple(  # type: ignore[return-value]
        value if np.isfinite(value) else None for value in (float(a[at]), float(own[at]))
    )
