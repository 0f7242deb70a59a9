"""Measuring the router of one layer: sets, gate weights, scores, and judged flips.

Streams the router's sites through a `RowMap`; the formulas are in `routing` and `flips`.

Axis legend: T row, E expert, K slot.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from workbench.comparison import flips, routing
from workbench.comparison.arrow import Values
from workbench.comparison.columns import ROUTER_METRICS
from workbench.comparison.contracts import Contracts
from workbench.comparison.metrics import Accumulator
from workbench.comparison.rowmap import RowMap
from workbench.comparison.siterows import SiteRows, site_values
from workbench.names import layer_site
from workbench.store.dtypes import to_float32, unit_roundoff

BLOCK_ELEMENTS: Final = 1 << 18
_NUMPY_KIND: Final = {"f4": np.float32, "u4": np.uint32, "b1": np.bool_}


class RouterResult(NamedTuple):
    """Columns of one layer, rows compared per site, and how often each reason decided on a flip."""

    values: dict[str, Values]
    coverage: dict[str, int]
    reasons: dict[str, int]


class RouterMeasurement:
    """One layer's router.

    Args:
        row_map: The aligned rows.
        layer: Index.
        num_rows: T.
        contracts: Of both sides.
    """

    def __init__(self, row_map: RowMap, layer: int, num_rows: int, contracts: Contracts) -> None:
        self.row_map, self.layer, self.num_rows = row_map, layer, num_rows
        self.contracts = contracts
        self._values: dict[str, np.ndarray] = {
            name: np.zeros(num_rows, _NUMPY_KIND[kind]) for name, kind in ROUTER_METRICS
        }
        self._missing = {name: np.ones(num_rows, np.bool_) for name, _ in ROUTER_METRICS}
        self._coverage: dict[str, int] = {}
        self._reasons: dict[str, int] = {}

    def run(self, input_moved_T: np.ndarray) -> RouterResult:
        """Measures the layer; `input_moved_T` is ‖mlp_in_A - mlp_in_B‖, NaN where unknown."""
        # A signalling NaN warns when it is widened, and is as good as any other.
        with np.errstate(invalid="ignore"):
            found = self._measure(input_moved_T)
        for name, values in self._values.items():
            if not self._missing[name].all():
                found[name] = Values(values, self._missing[name])
        return RouterResult(found, self._coverage, self._reasons)

    def _measure(self, input_moved_T: np.ndarray) -> dict[str, Values]:
        """Fills the router's columns; gives those of `topk_weights`."""
        found: dict[str, Values] = {}
        if self._shared("topk_ids"):
            self._sets()
            if self._shared("topk_weights"):
                found = self._gates()
            if self._shared("router_logits"):
                self._flips(input_moved_T)
        if self._shared("router_logits"):
            self._scores()
        return found

    def _shared(self, site: str) -> bool:
        name = layer_site(self.layer, site)
        return name in self.row_map.a.manifest.sites and name in self.row_map.b.manifest.sites

    def _names(self, *sites: str) -> list[str]:
        return [layer_site(self.layer, site) for site in sites]

    def _put(self, name: str, rows: np.ndarray, values: np.ndarray) -> None:
        self._values[name][rows] = values
        missing = np.isnan(values) if values.dtype.kind == "f" else False
        self._missing[name][rows] = missing

    def _sets(self) -> None:
        count = 0
        for block in self.row_map.blocks(self._names("topk_ids"), block_elements=BLOCK_ELEMENTS):
            found = routing.compare_sets(block.a[0], block.b[0])
            self._put("topk.set_equal", block.rows, found.set_equal)
            self._put("topk.order_equal", block.rows, found.order_equal)
            self._put("topk.num_flips", block.rows, found.num_flips)
            count += len(block.rows)
        self._coverage["topk_ids"] = count

    def _gates(self) -> dict[str, Values]:
        whole = Accumulator(self.num_rows)
        sites = self._names("topk_ids", "topk_weights")
        for block in self.row_map.blocks(sites, block_elements=BLOCK_ELEMENTS):
            found = routing.match_gates(
                block.a[0],
                _times(block.a[1], self.contracts.gate_factor_a),
                block.b[0],
                _times(block.b[1], self.contracts.gate_factor_b),
            )
            whole.add(block.rows, found.a, found.b)
            self._put("gates.mass_moved", block.rows, found.mass_moved)
        self._coverage["topk_weights"] = int(whole.there.sum())
        if not whole.there.any():
            return {}
        metrics = whole.finish()
        self._put("gates.max_abs", np.flatnonzero(whole.there), metrics.max_abs[whole.there])
        return site_values("topk_weights", SiteRows(metrics, whole.there))

    def _scores(self) -> None:
        top_k = self._top_k()
        for block in self.row_map.blocks(
            self._names("router_logits"), block_elements=BLOCK_ELEMENTS
        ):
            found = routing.compare_scores(block.a[0], block.b[0], top_k)
            self._put("topk.margin_a", block.rows, found.margin_a)
            self._put("topk.margin_b", block.rows, found.margin_b)
            self._put("router.kl", block.rows, found.kl)

    def _top_k(self) -> int:
        manifest = self.row_map.a.manifest
        info = manifest.sites.get(layer_site(self.layer, "topk_ids"))
        return info.shape[0] if info is not None and info.shape else manifest.model.top_k

    def _flips(self, input_moved_T: np.ndarray) -> None:
        """Judges flips once the whole layer was seen: how the others select tells what selects."""
        own_a_T, own_b_T = np.zeros(self.num_rows, np.bool_), np.zeros(self.num_rows, np.bool_)
        scored_T = np.zeros(self.num_rows, np.bool_)
        flipped: list[np.ndarray] = []
        evidence: list[routing.FlipEvidence] = []
        sites = self._names("topk_ids", "router_logits")
        for block in self.row_map.blocks(sites, block_elements=BLOCK_ELEMENTS):
            a = routing.Decisions(block.a[0], block.a[1])
            b = routing.Decisions(block.b[0], block.b[1])
            scored_T[block.rows] = True
            own_a_T[block.rows] = routing.is_own_top_k(a)
            own_b_T[block.rows] = routing.is_own_top_k(b)
            here = np.flatnonzero(self._values["topk.num_flips"][block.rows])
            if len(here):
                flipped.append(block.rows[here])
                evidence.append(
                    routing.flip_evidence(a.at(here), b.at(here), self.contracts.scoring)
                )
        if not flipped:
            return
        rows = np.concatenate(flipped)
        whole = routing.FlipEvidence(*map(np.concatenate, zip(*evidence, strict=True)))
        agreed_T = scored_T & self._values["topk.set_equal"]
        by_logits = flips.follows_logits(
            agreed_T, own_a_T, own_b_T, declared_bias=self.contracts.declared_bias
        )
        self._record(rows, flips.judge(whole, input_moved_T[rows], self._facts(by_logits)))

    def _facts(self, by_logits: bool) -> flips.RouterFacts:
        a, b = self.row_map.a.manifest, self.row_map.b.manifest
        norms = [m.router_pair_norm[self.layer] for m in (a, b) if self.layer in m.router_pair_norm]
        name = layer_site(self.layer, "router_logits")
        return flips.RouterFacts(
            pair_norm=max(norms) if norms else None,
            hidden_size=max(a.model.hidden_size, b.model.hidden_size, 1),
            roundoff=max(unit_roundoff(m.sites[name].dtype) for m in (a, b)),
            scoring=self.contracts.scoring,
            by_logits=by_logits,
        )

    def _record(self, rows: np.ndarray, found: flips.Judgement) -> None:
        judged = found.explained >= 0
        self._put("topk.explained", rows[judged], found.explained[judged] == 1)
        self._put("topk.needed", rows, found.needed)
        self._put("topk.bound", rows, found.bound)
        codes, counts = np.unique(found.reason, return_counts=True)
        for code, count in zip(codes, counts, strict=True):
            self._reasons[flips.REASONS[int(code)]] = int(count)


def _times(weights_TK: np.ndarray, factor: float) -> np.ndarray:
    if factor == 1.0:
        return weights_TK
    scaled_TK: np.ndarray = to_float32(weights_TK) * np.float32(factor)
    return scaled_TK
