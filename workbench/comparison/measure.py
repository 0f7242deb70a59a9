"""Measuring aligned captures, layer by layer: fills the two tables of a comparison.

Owns the streaming: one layer at a time, its sites on two threads, each site in blocks of A's file
order. Memory beyond the maps of both captures: about 40 bytes per row and measured site of one
layer, and the row table; it grows neither with layers nor with the size of a row's vectors.

Axis legend: T row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from workbench.comparison import columns
from workbench.comparison.arrow import Column, LayerTableWriter, Values
from workbench.comparison.contracts import Contracts
from workbench.comparison.excuses import previous_row
from workbench.comparison.metrics import Accumulator
from workbench.comparison.router import RouterMeasurement
from workbench.comparison.rowmap import RowMap
from workbench.comparison.siterows import SiteRows, site_values
from workbench.comparison.vocabulary import Distributions, compare_distributions
from workbench.names import MODEL_SITES, layer_site
from workbench.store import Capture

NUM_THREADS: Final = 2

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What measuring found beside the two tables.

    Attributes:
        coverage: Rows compared per full site name.
        flip_reasons: How often each reason of `flips.REASONS` decided about a flip.
        num_flip_layers: Layers with a flip per row, uint32 (T,).
        model: Metrics of `embed`, `final_norm`, `logits`, with the rows that have them.
        distributions: From the logits, by the row that they score, with the rows that have them.
    """

    coverage: dict[str, int]
    flip_reasons: dict[str, int]
    num_flip_layers: np.ndarray
    model: dict[str, SiteRows]
    distributions: tuple[Distributions, np.ndarray] | None = None


@dataclass(slots=True)
class _Counts:
    coverage: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)


class Measurement:
    """Two aligned captures, ready to be measured.

    Args:
        rows: The aligned rows.
        row_map: Their places in both captures.
        num_layers: L, at least 1.
    """

    def __init__(
        self,
        a: Capture,
        b: Capture,
        rows: pl.DataFrame,
        row_map: RowMap,
        contracts: Contracts,
        *,
        num_layers: int,
    ) -> None:
        self.a, self.b = a, b
        self.rows, self.row_map, self.contracts = rows, row_map, contracts
        self.num_layers, self.num_rows = num_layers, rows.height
        self._shared = set(a.sites) & set(b.sites)
        self._counts = _Counts()

    def layer_columns(self) -> list[Column]:
        """Columns of the layer table: those of sites that both sides have in some layer."""
        measured = [s for s in columns.MEASURED_LAYER_SITES if self._in_some_layer(s)]
        return columns.layer_columns(measured, routing=self._in_some_layer("topk_ids"))

    def _in_some_layer(self, site: str) -> bool:
        return any(layer_site(i, site) in self._shared for i in range(self.num_layers))

    def run(self, layers_path: Path, progress: Progress, tick: Callable[[float], None]) -> Measured:
        """Measures everything and writes the layer table.

        What `progress` or `tick` raises stops it between two layers. `tick` is told the share that
        is done.
        """
        writer = LayerTableWriter(
            layers_path,
            self.layer_columns(),
            num_layers=self.num_layers,
            num_rows=self.num_rows,
        )
        num_flip_layers = np.zeros(self.num_rows, np.uint32)
        with writer, ThreadPoolExecutor(NUM_THREADS) as pool:
            for layer in range(self.num_layers):
                if layer % max(1, self.num_layers // 4) == 0:
                    progress(f"measuring layer {layer + 1} of {self.num_layers}")
                values = self._layer(layer, pool)
                if "topk.num_flips" in values:
                    num_flip_layers += values["topk.num_flips"].values > 0
                writer.append(values)
                tick((layer + 1) / (self.num_layers + 1))
            progress("measuring embeddings, final norm and logits")
            model = {
                site: found
                for site in MODEL_SITES
                if site in self._shared and (found := self._site(site)) is not None
            }
            distributions = self._distributions()
            writer.close()
        return Measured(
            coverage=self._counts.coverage,
            flip_reasons=self._counts.reasons,
            num_flip_layers=num_flip_layers,
            model=model,
            distributions=distributions,
        )

    def _layer(self, layer: int, pool: ThreadPoolExecutor) -> dict[str, Values]:
        sites = [s for s in columns.MEASURED_LAYER_SITES if s != "topk_weights"]
        # The router needs what `mlp_in` finds: that goes first, so that it never waits for a start.
        sites.sort(key=lambda site: site != "mlp_in")
        running = {
            site: pool.submit(self._site, name)
            for site in sites
            if (name := layer_site(layer, site)) in self._shared
        }
        router = pool.submit(self._router, layer, running.get("mlp_in"))
        found = {site: future.result() for site, future in running.items()}
        values: dict[str, Values] = {
            "layer": Values(np.full(self.num_rows, layer, np.uint32)),
            "row": Values(np.arange(self.num_rows, dtype=np.uint32)),
        }
        for site, measured in found.items():
            if measured is not None:
                values.update(site_values(site, measured))
        values.update(router.result())
        return values

    def _router(self, layer: int, future: Future[SiteRows | None] | None) -> dict[str, Values]:
        mlp_in = None if future is None else future.result()
        moved_T = np.full(self.num_rows, np.nan)
        if mlp_in is not None:
            moved_T[mlp_in.there] = mlp_in.metrics.l2[mlp_in.there]
        found = RouterMeasurement(self.row_map, layer, self.num_rows, self.contracts).run(moved_T)
        for site, count in found.coverage.items():
            self._counts.coverage[layer_site(layer, site)] = count
        for reason, count in found.reasons.items():
            self._counts.reasons[reason] = self._counts.reasons.get(reason, 0) + count
        return found.values

    def _site(self, name: str) -> SiteRows | None:
        """Metrics of one site over all rows; None where no row could be compared."""
        whole = Accumulator(self.num_rows)
        width = self._common_width(name)
        # A signalling NaN warns when it is widened, and is as good as any other.
        with np.errstate(invalid="ignore"):
            for block in self.row_map.blocks([name]):
                whole.add(block.rows, block.a[0][:, :width], block.b[0][:, :width])
        self._counts.coverage[name] = int(whole.there.sum())
        return SiteRows(whole.finish(), whole.there) if whole.there.any() else None

    def _common_width(self, name: str) -> int:
        widths = [math.prod(c.manifest.sites[name].shape) for c in (self.a, self.b)]
        if name == "logits":
            widths += [n for n in (self.a.manifest.model.vocab_size,) if n]
        return min(widths)

    def _distributions(self) -> tuple[Distributions, np.ndarray] | None:
        if "logits" not in self._shared:
            return None
        next_T = _next_row(self.rows)
        empty = np.full(self.num_rows, np.nan)
        whole = Distributions(
            kl=empty.copy(),
            kl_reverse=empty.copy(),
            tv=empty.copy(),
            entropy_a=empty.copy(),
            entropy_b=empty.copy(),
            argmax_equal=np.zeros(self.num_rows, np.bool_),
        )
        there = np.zeros(self.num_rows, np.bool_)
        width = self._common_width("logits")
        for block in self.row_map.blocks(["logits"]):
            target = next_T[block.rows]
            scored = target >= 0
            if not scored.any():
                continue
            part = compare_distributions(block.a[0][scored, :width], block.b[0][scored, :width])
            for total, values in zip(whole, part, strict=True):
                total[target[scored]] = values
            there[target[scored]] = True
        return whole, there


def _next_row(rows: pl.DataFrame) -> np.ndarray:
    previous_T = previous_row(rows)
    next_T = np.full(len(previous_T), -1, np.int64)
    has = previous_T >= 0
    next_T[previous_T[has]] = np.flatnonzero(has)
    return next_T
