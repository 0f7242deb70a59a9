"""What stands round one row: its text, and both sides' experts at one layer. Pure reading."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from workbench.comparison.result import Comparison
from workbench.store.dtypes import to_float32


class Stretch(NamedTuple):
    """Text on one side of a row; `elided` when more of the request lies beyond."""

    text: str
    elided: bool


class ExpertSide(NamedTuple):
    """One side's view of an expert: slot by descending score from 1 or None, logit, gate weight."""

    rank: int | None
    logit: float | None
    gate: float | None


class ExpertLine(NamedTuple):
    """An expert that at least one side selected."""

    expert: int
    a: ExpertSide
    b: ExpertSide


class SideBySide(NamedTuple):
    """Selected experts of one row and layer on both sides, matched by expert id."""

    layer: int
    top_k: int
    lines: list[ExpertLine]
    margin_a: float | None
    margin_b: float | None


def neighbourhood(
    rows: pl.DataFrame, row: int, *, before: int = 48, after: int = 24
) -> tuple[Stretch, str, Stretch]:
    """Text before, at and after a row, within its request."""
    here = rows.row(row, named=True)
    request = rows.filter(pl.col("request") == here["request"])
    texts, positions = request["text"].to_list(), request["position"].to_list()
    at = positions.index(here["position"])
    left, right = max(0, at - before), min(len(texts), at + 1 + after)
    return (
        Stretch("".join(texts[left:at]), left > 0),
        texts[at],
        Stretch("".join(texts[at + 1 : right]), right < len(texts)),
    )


def side_by_side(comparison: Comparison, row: int, layer: int | None) -> SideBySide | None:
    """Both sides' experts at a row and layer; None where routing was not captured on both.

    With `layer` None the first layer of the row whose expert sets differ is taken, else the last
    layer with a router.
    """
    place = _layer_to_show(comparison, row) if layer is None else layer
    if place is None:
        return None
    ids = comparison.cell(place, row, "topk_ids")
    if ids.a is None or ids.b is None:
        return None
    gates = comparison.cell(place, row, "topk_weights")
    logits = comparison.cell(place, row, "router_logits")
    a = _side(ids.a, gates.a, logits.a)
    b = _side(ids.b, gates.b, logits.b)
    order = [*a.selected, *(expert for expert in b.selected if expert not in a.selected)]
    lines = [ExpertLine(expert, a.of(expert), b.of(expert)) for expert in order]
    return SideBySide(place, len(ids.a), lines, a.margin, b.margin)


def _layer_to_show(comparison: Comparison, row: int) -> int | None:
    if not comparison.has_column("topk.set_equal"):
        return None
    equal = comparison.column("topk.set_equal")[:, row]
    captured = ~comparison.missing("topk.set_equal")[:, row]
    flipped = np.flatnonzero(captured & ~equal.astype(bool))
    if len(flipped):
        return int(flipped[0])
    routed = np.flatnonzero(captured)
    return int(routed[-1]) if len(routed) else None


class _Side(NamedTuple):
    selected: list[int]
    gates: dict[int, float]
    logits: np.ndarray | None
    margin: float | None

    def of(self, expert: int) -> ExpertSide:
        rank = self.selected.index(expert) + 1 if expert in self.selected else None
        logit = None if self.logits is None else float(self.logits[expert])
        return ExpertSide(rank, logit, self.gates.get(expert))


def _side(ids_K: np.ndarray, gates_K: np.ndarray | None, logits_E: np.ndarray | None) -> _Side:
    logits = None if logits_E is None else to_float32(np.ascontiguousarray(logits_E))
    ids = [int(expert) for expert in ids_K]
    gates: dict[int, float] = {}
    if gates_K is not None:
        weights = to_float32(np.ascontiguousarray(gates_K))
        gates = {expert: float(w) for expert, w in zip(ids, weights, strict=True)}
    margin = None
    if logits is not None:
        ids.sort(key=lambda expert: -logits[expert])
        ordered = np.sort(logits)[::-1]
        if len(ordered) > len(ids):
            margin = float(ordered[len(ids) - 1] - ordered[len(ids)])
    return _Side(ids, gates, logits, margin)
