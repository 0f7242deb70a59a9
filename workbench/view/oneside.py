"""One capture as a source of the view: that side's own facts, everything of the other missing.

Nothing is compared here: metrics of differences have no value, no cell belongs to a class. Axes: L
layer, T row, K slot.
"""

from __future__ import annotations

import math
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import polars as pl

from workbench.comparison.columns import ROW_SCHEMA, known_columns
from workbench.comparison.excuses import Excuses
from workbench.comparison.newer import newer_side
from workbench.comparison.result import CellNumbers, CellPair
from workbench.comparison.tolerance import Budgets, Precision, budgets
from workbench.names import LAYER_SITES, MODEL_SITES, DivergenceClass, layer_site
from workbench.store import Chunk, Manifest
from workbench.store.dtypes import decoded
from workbench.view.growing import Grown, Recorded

Side = Literal["a", "b"]

SIDE_OF_PATH: Final[dict[str, Side]] = {"rollout": "a", "trainer": "b"}
_SIDE_COLUMNS: Final = ("state", "chunk", "offset", "logprob", "entropy", "rank")
_NUMPY_KIND: Final = {"f4": np.float32, "u4": np.uint32, "b1": np.bool_}


class OneSide:
    """A recording as it was at one moment.

    Args:
        recorded: What was read.
        status: One word for the state of the recording.
        words: What to say of it, in a few words.

    Attributes:
        side: `a` for a rollout, `b` for a trainer.
        directory: Of the capture.
        num_layers, num_rows: L and T.
        summary: As much of a comparison's summary as one side has; `alone` says which.
    """

    def __init__(self, recorded: Recorded, *, status: str, words: str) -> None:
        self.recorded = recorded
        self.side: Side = SIDE_OF_PATH[recorded.manifest.path]
        self.directory: Path = recorded.directory
        self.num_layers = recorded.num_layers
        self.num_rows = recorded.tokens.height
        self._precision = _precision(recorded.manifest, self.num_layers)
        self.summary = self._summary(status, words)

    def _summary(self, status: str, words: str) -> dict[str, Any]:
        manifest = self.recorded.manifest
        model = {"id": manifest.model.id, "layer_kinds": list(manifest.model.layer_kinds)}
        there = {
            "engine": manifest.engine,
            "version": manifest.versions.get(manifest.engine, ""),
            "dtype": manifest.dtype,
            "model": model,
            **newer_side(manifest),
        }
        absent = {"engine": "not opened", "version": "", "dtype": "", "model": model}
        found = self.budgets()
        return {
            "status": status,
            "verdict": words,
            "reason": "",
            "a": there if self.side == "a" else absent,
            "b": there if self.side == "b" else absent,
            "alone": self.side.upper(),
            "weights": "unknown",
            "rows": {"compared": self.num_rows, "expected": self.num_rows},
            "first": {},
            "jump": None,
            "kl": {"exact_mean": None, "k3": None},
            "max_abs_dlogp": None,
            "tolerance": {"profile": found.profile, "reason": found.reason},
            "coverage": {},
        }

    @cached_property
    def rows(self) -> pl.DataFrame:
        """One line per row; what belongs to the other side is null."""
        tokens = self.recorded.tokens.with_row_index("row")
        tokens = tokens.rename({name: f"{name}_{self.side}" for name in _SIDE_COLUMNS})
        return tokens.select(
            pl.col(name).cast(dtype) if name in tokens.columns else pl.lit(None, dtype).alias(name)
            for name, dtype in ROW_SCHEMA.items()
        )

    def has_column(self, name: str) -> bool:
        """Whether this side has a number of the column's site; differences are all missing."""
        site = name.partition(".")[0]
        if site == "topk":
            return "topk.margin" in self.recorded.columns
        return site in self._sites and name in known_columns()

    @cached_property
    def _sites(self) -> frozenset[str]:
        names = self.recorded.manifest.sites
        layers = range(self.num_layers)
        return frozenset(s for s in LAYER_SITES if any(layer_site(i, s) in names for i in layers))

    def column(self, name: str) -> np.ndarray:
        """A metric per cell, shape (L, T); NaN, 0 or False where missing."""
        kept = self._own(name)
        if kept is not None:
            return kept.values
        kind = _NUMPY_KIND[known_columns().get(name, "f4")]
        return np.full((self.num_layers, self.num_rows), np.nan if kind is np.float32 else 0, kind)

    def at_row(self, name: str, row: int) -> np.ndarray:
        """A metric at one row, shape (L,)."""
        return self.column(name)[:, row]

    def forget(self) -> None:
        """Nothing is mapped: columns grow in memory."""

    def missing(self, name: str) -> np.ndarray:
        """Where a metric has no value, bool (L, T)."""
        kept = self._own(name)
        if kept is None:
            return np.ones((self.num_layers, self.num_rows), np.bool_)
        return ~kept.known

    def _own(self, name: str) -> Grown | None:
        own, _, side = name.rpartition("_")
        return self.recorded.columns.get(own) if side == self.side else None

    def metrics(self, layer: int, row: int) -> dict[str, float | int | bool | None]:
        """What this side knows of one cell: the margin, and NaN and Inf of every recorded site."""
        line: dict[str, float | int | bool | None] = {}
        for name, kept in self.recorded.columns.items():
            known = bool(kept.known[layer, row])
            line[f"{name}_{self.side}"] = kept.values[layer, row].item() if known else None
        for site in self._sites - {"topk_ids"}:
            name = f"{site}.nonfinite_{self.side}"
            if name not in line:
                found = self._vector(layer, row, site)
                line[name] = None if found is None else int((~np.isfinite(found)).sum())
        return line

    def local(self, _layer: int, _row: int) -> dict[str, float | int | bool | None]:
        """Nothing: one capture is not attributed."""
        return {}

    def cell(self, layer: int | None, row: int, site: str) -> CellPair:
        """This side's stored vector of one cell."""
        at = self._place(layer, row, site)
        stored = None if at is None else at[0].array(at[1])[at[2]]
        return CellPair(stored, None) if self.side == "a" else CellPair(None, stored)

    def numbers(self, layer: int | None, row: int, site: str) -> CellNumbers:
        """This side's numbers of one cell, for showing."""
        at, found = self._place(layer, row, site), self._vector(layer, row, site)
        dtype = "" if at is None else at[0].dtype(at[1])
        if self.side == "a":
            return CellNumbers(found, None, dtype, "")
        return CellNumbers(None, found, "", dtype)

    def _vector(self, layer: int | None, row: int, site: str) -> np.ndarray | None:
        at = self._place(layer, row, site)
        if at is None:
            return None
        chunk, name, place = at
        return decoded(chunk.bits(name)[place], chunk.dtype(name))

    def _place(self, layer: int | None, row: int, site: str) -> tuple[Chunk, str, int] | None:
        """Chunk, full name and array row of a cell's vector."""
        name = site if site in MODEL_SITES else layer_site(int(layer or 0), site)
        line = self.recorded.tokens.row(row, named=True)
        chunk, offset = self.recorded.chunks[line["chunk"]], line["offset"]
        if offset is None or name not in chunk:
            return None
        cover = chunk.covered(name)
        if cover is None:
            return chunk, name, offset
        at = int(np.searchsorted(cover, offset))
        return (chunk, name, at) if at < len(cover) and cover[at] == offset else None

    def selects(self, expert: int) -> np.ndarray:
        """Where this side selected an expert, bool (L, T); reads all ids."""
        found_LT = np.zeros((self.num_layers, self.num_rows), np.bool_)
        chunk_T = self.recorded.tokens["chunk"].to_numpy()
        offset_T = self.recorded.tokens["offset"].fill_null(-1).to_numpy()
        for place, chunk in enumerate(self.recorded.chunks):
            rows = np.flatnonzero((chunk_T == place) & (offset_T >= 0))
            for layer in range(self.num_layers):
                name = layer_site(layer, "topk_ids")
                if name in chunk and chunk.covered(name) is None:
                    hit = (chunk.array(name) == expert).any(axis=1)
                    found_LT[layer, rows] = hit[offset_T[rows]]
        return found_LT

    def budgets(self, profile: str | None = None) -> Budgets:
        """Rounding budgets for a model of this size and type."""
        return budgets(self._precision, profile or "auto")

    def excuses(self, profile: str | None = None) -> Excuses:
        """Nothing is downstream of a flip where there is no flip."""
        del profile
        no_LT = np.zeros((self.num_layers, self.num_rows), np.bool_)
        return Excuses(no_LT, no_LT, np.zeros(self.num_rows, np.bool_), no_LT)

    def class_mask(self, klass: DivergenceClass, profile: str | None = None) -> np.ndarray:
        """No cell: a class is about a difference."""
        del klass, profile
        return np.zeros((self.num_layers, self.num_rows), np.bool_)

    def sites_at(
        self, klass: DivergenceClass, layer: int, row: int, profile: str | None = None
    ) -> list[str]:
        """No site."""
        del klass, layer, row, profile
        return []


def _precision(manifest: Manifest, num_layers: int) -> Precision:
    """What budgets are worked out from; a fact that the capture lacks takes its smallest value."""
    model = manifest.model
    scores = (info.dtype for name, info in manifest.sites.items() if name.endswith("router_logits"))
    return Precision(
        num_layers=num_layers,
        hidden_size=max(model.hidden_size, 1),
        top_k=model.top_k,
        dtype=manifest.dtype,
        router_dtype=next(scores, manifest.dtype),
        log_vocab=math.log(model.vocab_size) if model.vocab_size > 1 else 1.0,
    )
