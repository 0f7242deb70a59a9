"""Aggregates behind the charts of experts: gate weights and load, A against B.

Both stream the captures layer by layer; memory does not grow with the rows.
Experts are matched by id; an expert that one side alone selected has no weight on the other, and
is counted apart instead of as zero.

Axis legend: T row, K slot, E expert.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import polars as pl

from workbench.comparison.contracts import relate
from workbench.comparison.result import Comparison
from workbench.comparison.routing import match_slots
from workbench.comparison.rowmap import RowMap
from workbench.errors import UsageError
from workbench.names import layer_site
from workbench.store import Capture
from workbench.store.dtypes import to_float32
from workbench.widgets.frames import MAX_LINES, NUM_BINS, Aggregate, one_sided


class _Weights(NamedTuple):
    """Gate weights of some rows: of experts that both selected, pairwise; of one side alone."""

    a: np.ndarray
    b: np.ndarray
    only_a: np.ndarray
    only_b: np.ndarray


def gate_weights(comparison: Comparison, *, num_bins: int = NUM_BINS) -> Aggregate:
    """Gate weight of an expert on A against that on B, counted in square bins of one width.

    Columns: `where` (`both`, `only A`, `only B`), `a_from`, `a_to`, `b_from`, `b_to` (null on the
    side that did not select the expert), `pairs`. From 0 to 1, or to the largest weight where that
    is above 1. Weights are brought to one convention of routed scaling, as the comparison did.
    Weights that are not finite are expected and not compared.

    Raises:
        UsageError: The bins would be more than 5,000, or a side recorded no gate weights.
        CaptureError: A capture was moved.
    """
    if num_bins < 1 or num_bins**2 + 2 * num_bins > MAX_LINES:
        raise UsageError("a chart draws aggregates", expected="1..69 bins a side", got=num_bins)
    seen, top = 0, 1.0
    for part in _weights(comparison):
        seen += 1
        top = max([top, *(float(w[np.isfinite(w)].max(initial=0.0)) for w in part)])
    if not seen:
        raise _not_recorded("topk_weights", comparison)
    edges = np.linspace(0.0, top, num_bins + 1)
    both = np.zeros((num_bins, num_bins), np.int64)
    alone = {"only A": np.zeros(num_bins, np.int64), "only B": np.zeros(num_bins, np.int64)}
    expected = 0
    for part in _weights(comparison):
        known = np.isfinite(part.a) & np.isfinite(part.b)
        both += np.histogram2d(part.a[known], part.b[known], (edges, edges))[0].astype(np.int64)
        for where, values in (("only A", part.only_a), ("only B", part.only_b)):
            alone[where] += np.histogram(values[np.isfinite(values)], edges)[0]
        expected += sum(map(len, part[1:]))
    frame = _weight_lines(both, alone, edges)
    return Aggregate(
        frame=frame,
        compared=int(frame["pairs"].sum()),
        expected=expected,
        unit="(row, layer, expert)",
        over="experts that a side selected",
    )


def _weight_lines(
    both: np.ndarray, alone: dict[str, np.ndarray], edges: np.ndarray
) -> pl.DataFrame:
    at_a, at_b = np.nonzero(both)
    parts = [("both", at_a, at_b, both[at_a, at_b])]
    for where, counts in alone.items():
        at = np.flatnonzero(counts)
        nowhere = np.full(len(at), -1)
        places = (at, nowhere) if where == "only A" else (nowhere, at)
        parts.append((where, *places, counts[at]))
    return pl.concat(
        pl.DataFrame(
            {
                "where": pl.Series([where] * len(counts), dtype=pl.String),
                "a_from": _edge(edges, at_a, 0),
                "a_to": _edge(edges, at_a, 1),
                "b_from": _edge(edges, at_b, 0),
                "b_to": _edge(edges, at_b, 1),
                "pairs": pl.Series(counts, dtype=pl.Int64),
            }
        )
        for where, at_a, at_b, counts in parts
    )


def _edge(edges: np.ndarray, at: np.ndarray, step: int) -> pl.Series:
    return pl.Series(edges[at + step], dtype=pl.Float64).set(pl.Series(at < 0), None)


def _weights(comparison: Comparison) -> Iterator[_Weights]:
    a, b = comparison.capture("a"), comparison.capture("b")
    factors = relate(a.manifest, b.manifest)
    row_map = _row_map(comparison, a, b)
    for layer in range(comparison.num_layers):
        sites = [layer_site(layer, "topk_ids"), layer_site(layer, "topk_weights")]
        if not _shared(a, b, sites):
            continue
        for block in row_map.blocks(sites):
            ids_a_TK, ids_b_TK = block.a[0].astype(np.int64), block.b[0].astype(np.int64)
            w_a_TK = to_float32(block.a[1]).astype(np.float64) * factors.gate_factor_a
            w_b_TK = to_float32(block.b[1]).astype(np.float64) * factors.gate_factor_b
            slots_TK = match_slots(ids_a_TK, ids_b_TK)
            on_both_TK = slots_TK >= 0
            matched_TK = np.take_along_axis(w_b_TK, np.maximum(slots_TK, 0), axis=1)
            missed_TK = (match_slots(ids_b_TK, ids_a_TK) < 0) & (ids_b_TK >= 0)
            yield _Weights(
                a=w_a_TK[on_both_TK],
                b=matched_TK[on_both_TK],
                only_a=w_a_TK[~on_both_TK & (ids_a_TK >= 0)],
                only_b=w_b_TK[missed_TK],
            )


class Load(NamedTuple):
    """One layer's load.

    Attributes:
        rows: Rows counted.
        a_E, b_E: How often each expert was selected, int64 (E,).
    """

    rows: int
    a_E: np.ndarray
    b_E: np.ndarray

    @property
    def moved(self) -> float:
        """Total variation between both sides' shares: 0 the same load, 1 disjoint."""
        share_a_E, share_b_E = (n / max(1, n.sum()) for n in (self.a_E, self.b_E))
        return float(np.abs(share_a_E - share_b_E).sum() / 2)


class _Counter:
    """Selections per expert on both sides; ids beyond the declared number widen the count."""

    def __init__(self, num_experts: int) -> None:
        self.rows = 0
        self.selected = [np.zeros(num_experts, np.int64), np.zeros(num_experts, np.int64)]

    def add(self, ids_a_TK: np.ndarray, ids_b_TK: np.ndarray) -> None:
        self.rows += len(ids_a_TK)
        widest = max(map(len, self.selected))
        widest = max([widest, *(int(ids.max(initial=-1)) + 1 for ids in (ids_a_TK, ids_b_TK))])
        for side, ids_TK in enumerate((ids_a_TK, ids_b_TK)):
            counts_E = np.bincount(ids_TK[ids_TK >= 0].astype(np.int64), minlength=widest)
            before_E = self.selected[side]
            self.selected[side] = counts_E + np.pad(before_E, (0, widest - len(before_E)))


def loads(comparison: Comparison) -> dict[int, Load]:
    """How often each expert was selected, by layer, over rows that both sides computed.

    Raises:
        CaptureError: A capture was moved.
    """
    a, b = comparison.capture("a"), comparison.capture("b")
    row_map = _row_map(comparison, a, b)
    found = {}
    for layer in range(comparison.num_layers):
        site = layer_site(layer, "topk_ids")
        if not _shared(a, b, [site]):
            continue
        counted = _Counter(max(a.manifest.model.num_experts, b.manifest.model.num_experts))
        for block in row_map.blocks([site]):
            counted.add(block.a[0], block.b[0])
        found[layer] = Load(counted.rows, *counted.selected)
    return found


def expert_load(comparison: Comparison, layer: int | None = None) -> Aggregate:
    """How often each expert of a layer was selected on A and on B.

    The layer whose load moved most between the sides when none is named (the first of these).
    Columns: `layer`, `expert`, `load_a`, `load_b`: selections, over rows that both sides computed.

    Raises:
        UsageError: No router was recorded on both sides, or none in this layer.
        CaptureError: A capture was moved.
    """
    found = loads(comparison)
    if not found:
        raise _not_recorded("topk_ids", comparison)
    if layer is None:
        layer = max(found, key=lambda at: found[at].moved)
    if layer not in found:
        raise UsageError(
            f"no router of layer {layer} on both sides", expected=f"one of {sorted(found)}"
        )
    load = found[layer]
    frame = pl.DataFrame(
        {
            "layer": np.full(len(load.a_E), layer, np.int32),
            "expert": np.arange(len(load.a_E), dtype=np.int32),
            "load_a": load.a_E,
            "load_b": load.b_E,
        }
    )
    return Aggregate(
        frame=frame.head(MAX_LINES),
        compared=load.rows,
        expected=comparison.num_rows + one_sided(comparison),
        unit="rows",
        over="rows that both sides computed",
    )


def _row_map(comparison: Comparison, a: Capture, b: Capture) -> RowMap:
    rows = comparison.rows
    places = {}
    for side, capture in (("a", a), ("b", b)):
        chunks = {chunk.index: place for place, chunk in enumerate(capture.chunks)}
        known = rows[f"chunk_{side}"].replace_strict(chunks, default=-1, return_dtype=pl.Int32)
        places[f"chunk_{side}"] = known.fill_null(-1).to_numpy()
        gone = pl.Series(places[f"chunk_{side}"] < 0)
        offset = rows[f"offset_{side}"].fill_null(-1).set(gone, -1)
        places[f"offset_{side}"] = offset.to_numpy()
    return RowMap(
        a,
        b,
        chunk_a=places["chunk_a"],
        offset_a=places["offset_a"],
        chunk_b=places["chunk_b"],
        offset_b=places["offset_b"],
    )


def _shared(a: Capture, b: Capture, sites: list[str]) -> bool:
    return all(site in a.manifest.sites and site in b.manifest.sites for site in sites)


def _not_recorded(site: str, comparison: Comparison) -> UsageError:
    return UsageError(
        f"{site} was not recorded on both sides",
        where=comparison.directory,
        do="record both captures with the router's sites",
    )
