"""A comparison made of plain arrays, as small or as large as a test wants.

Metrics are invented, not measured; classes, excuses and budgets are the real ones. Every random
number comes from a seed.

Axes: L layer, T row, E expert, K slot, D hidden.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from workbench.comparison import classes, excuses
from workbench.comparison.columns import ROW_SCHEMA, SITE_METRICS, known_columns
from workbench.comparison.result import CellNumbers, CellPair
from workbench.comparison.tolerance import Budgets, Precision, budgets
from workbench.names import DEFAULT_CLASS_ORDER, DivergenceClass

SITES = (
    "input",
    "attn_in",
    "attn_out",
    "mlp_in",
    "router_logits",
    "topk_weights",
    "mlp_out",
    "output",
)
NUM_EXPERTS, TOP_K, HIDDEN = 8, 2, 16


class ArraySource:
    """Stands in for a comparison: the same interface over arrays in memory."""

    directory = Path("run/comparison")

    def __init__(
        self,
        *,
        columns: Mapping[str, np.ndarray],
        absent: Mapping[str, np.ndarray],
        rows: pl.DataFrame,
        num_layers: int,
        ids: tuple[np.ndarray, np.ndarray],
        logits: tuple[np.ndarray, np.ndarray],
    ) -> None:
        self._columns, self._absent = dict(columns), dict(absent)
        self.local_names: set[str] = set()
        self.rows = rows
        self.num_layers, self.num_rows = num_layers, len(rows)
        self._ids, self._logits = ids, logits
        self._precision = Precision(
            num_layers=num_layers,
            hidden_size=HIDDEN,
            top_k=TOP_K,
            dtype="bfloat16",
            router_dtype="bfloat16",
            log_vocab=3.0,
        )
        self._excuses: dict[str, excuses.Excuses] = {}
        self._masks: dict[tuple[str, str], np.ndarray] = {}
        self.summary: dict[str, Any] = self._summary()

    def has_column(self, name: str) -> bool:
        return name in self._columns

    def column(self, name: str) -> np.ndarray:
        if name in self._columns:
            return self._columns[name]
        shape = (self.num_layers, self.num_rows)
        kind = known_columns()[name]
        return np.full(shape, np.nan, np.float32) if kind == "f4" else np.zeros(shape, np.uint32)

    def at_row(self, name: str, row: int) -> np.ndarray:
        return self.column(name)[:, row]

    def forget(self) -> None:
        """Nothing is mapped."""

    def missing(self, name: str) -> np.ndarray:
        shape = (self.num_layers, self.num_rows)
        if name not in self._columns:
            return np.ones(shape, np.bool_)
        return self._absent.get(name, np.zeros(shape, np.bool_))

    def metrics(self, layer: int, row: int) -> dict[str, float | int | bool | None]:
        return self._line(layer, row, local=False)

    def local(self, layer: int, row: int) -> dict[str, float | int | bool | None]:
        return self._line(layer, row, local=True)

    def _line(self, layer: int, row: int, *, local: bool) -> dict[str, float | int | bool | None]:
        return {
            name: None
            if name in self._absent and self._absent[name][layer, row]
            else values[layer, row].item()
            for name, values in self._columns.items()
            if (name in self.local_names) == local
        }

    def cell(self, layer: int | None, row: int, site: str) -> CellPair:
        if self.rows["state_a"][row] != "computed":
            return CellPair(None, None)
        pairs = []
        for ids, logits in zip(self._ids, self._logits, strict=True):
            scores_E = logits[layer, row]
            chosen_K = ids[layer, row]
            odds_K = np.exp(scores_E[chosen_K] - scores_E.max())
            weights_K = (odds_K / odds_K.sum()).astype(np.float32)
            pairs.append(
                {"topk_ids": chosen_K, "router_logits": scores_E, "topk_weights": weights_K}.get(
                    site
                )
            )
        return CellPair(*pairs)

    def numbers(self, layer: int | None, row: int, site: str) -> CellNumbers:
        pair = self.cell(layer, row, site)
        return CellNumbers(*pair, *("" if side is None else side.dtype.name for side in pair))

    def selects(self, expert: int) -> np.ndarray:
        ids_a, ids_b = self._ids
        found_LT: np.ndarray = (ids_a == expert).any(-1) | (ids_b == expert).any(-1)
        found_LT &= (self.rows["state_a"] == "computed").to_numpy()
        return found_LT

    def budgets(self, profile: str | None = None) -> Budgets:
        return budgets(self._precision, profile or "auto")

    def class_mask(self, klass: DivergenceClass, profile: str | None = None) -> np.ndarray:
        found = self.budgets(profile)
        key = (klass, found.profile)
        if key not in self._masks:
            self._masks[key] = classes.class_mask(self, klass, found, self.excuses(profile))
        return self._masks[key]

    def sites_at(
        self, klass: DivergenceClass, layer: int, row: int, profile: str | None = None
    ) -> list[str]:
        return classes.sites_of_cell(
            self, klass, self.budgets(profile), self.excuses(profile), layer=layer, row=row
        )

    def excuses(self, profile: str | None = None) -> excuses.Excuses:
        found = self.budgets(profile)
        if found.profile not in self._excuses:
            self._excuses[found.profile] = excuses.excuses(self, found)
        return self._excuses[found.profile]

    def _summary(self) -> dict[str, Any]:
        first: dict[str, Any] = {}
        for klass in DEFAULT_CLASS_ORDER:
            mask_TL = self.class_mask(klass).T
            place = int(np.argmax(mask_TL)) if mask_TL.any() else None
            first[klass] = None
            if place is not None:
                row, layer = divmod(place, self.num_layers)
                at = self.rows.row(row, named=True)
                first[klass] = {
                    "layer": layer,
                    "request": at["request"],
                    "position": at["position"],
                    "row": row,
                }
        side = {"engine": "vllm", "version": "0.32.0", "dtype": "bfloat16"}
        model = {"id": "sample_data/countdown-moe", "layer_kinds": ["moe"] * self.num_layers}
        return {
            "status": "diverged" if any(first.values()) else "equal",
            "verdict": "rounding" if any(first.values()) else "identical",
            "reason": "",
            "a": {**side, "model": model},
            "b": {**side, "engine": "transformers", "version": "5.19.0", "model": model},
            "weights": "equal",
            "rows": {"compared": self.num_rows, "expected": self.num_rows},
            "first": first,
            "jump": None,
            "kl": {"exact_mean": 1.2e-4, "k3": 1.3e-4},
            "max_abs_dlogp": 0.9,
        }


def countdown_texts(num_rows: int, seed: int = 0) -> tuple[list[str], list[int]]:
    """Characters of invented countdown puzzles, and the first row of each puzzle."""
    rng = np.random.default_rng(seed)
    characters: list[str] = []
    starts: list[int] = []
    while len(characters) < num_rows:
        starts.append(len(characters))
        a, b, c = rng.integers(1, 10, 3).tolist()
        characters += f"<{a},{b},{c}={a + b + c}|{a}+{b}={a + b},{a + b}+{c}={a + b + c}>"
    return characters[:num_rows], [start for start in starts if start < num_rows]


def row_table(texts: list[str], starts: list[int], dlogp: np.ndarray) -> pl.DataFrame:
    """Rows of puzzles; the last row of each was sampled and never fed back."""
    num_rows = len(texts)
    request = np.searchsorted(starts, np.arange(num_rows), side="right") - 1
    position = np.arange(num_rows) - np.asarray([*starts, 0])[request]
    last = np.append(request[1:] != request[:-1], True) if num_rows else np.zeros(0, np.bool_)
    state = ["sampled" if end else "computed" for end in last]
    logp = -np.abs(np.random.default_rng(1).normal(0.4, 0.3, num_rows)).astype(np.float32)
    scored = position > 0
    columns: dict[str, Any] = {
        "row": np.arange(num_rows),
        "request": [f"c{index:02d}" for index in request],
        "position": position,
        "token_id": [sum(map(ord, text)) % 500 for text in texts],
        "text": texts,
        "phase": ["prompt" if p < 10 else "generated" for p in position],
        "modality": ["text"] * num_rows,
        "state_a": state,
        "state_b": state,
        "logprob_a": np.where(scored, logp + dlogp, np.nan),
        "logprob_b": np.where(scored, logp, np.nan),
        "dlogp": np.where(scored, dlogp, np.nan),
    }
    series = [
        pl.Series(name, columns.get(name, [None] * num_rows), dtype=dtype, strict=False)
        for name, dtype in ROW_SCHEMA.items()
    ]
    nullable = [pl.col(n).fill_nan(None) for n in ("logprob_a", "logprob_b", "dlogp")]
    return pl.DataFrame(series).with_columns(nullable)


def make_source(
    *,
    num_layers: int = 4,
    num_rows: int = 60,
    noise: float = 0.0,
    flips: tuple[tuple[int, int], ...] = (),
    unexplained: tuple[tuple[int, int], ...] = (),
    nans: tuple[tuple[int, int], ...] = (),
    jumps: Mapping[tuple[int, int], float] | None = None,
    dlogp: Mapping[int, float] | None = None,
    texts: list[str] | None = None,
    seed: int = 0,
) -> ArraySource:
    """A comparison with the given events.

    Args:
        num_layers, num_rows: L and T.
        noise: Typical relative error where nothing else happens; 0 is bit-equal.
        flips: (layer, row) of explained flips; `unexplained` of the others.
        nans: (layer, row) where A's `mlp_out` holds a NaN.
        jumps: (layer, row) to relative error of `mlp_out` and `output`.
        dlogp: Row to difference of log-probability.
        texts: Token texts; characters of puzzles when not given.
        seed: Of every random number.
    """
    rng = np.random.default_rng(seed)
    shape = (num_layers, num_rows)
    puzzle, starts = countdown_texts(num_rows, seed)
    dlogp_T = (rng.normal(0, noise, num_rows) * 0.5).astype(np.float32)
    for row, value in (dlogp or {}).items():
        dlogp_T[row] = value
    rows = row_table(texts or puzzle, starts, dlogp_T)
    columns = _site_columns(rng, shape, noise)
    logits_b = rng.normal(0, 1.5, (*shape, NUM_EXPERTS)).astype(np.float32)
    logits_a = logits_b + rng.normal(0, noise, logits_b.shape).astype(np.float32)
    order_b = np.argsort(-logits_b, axis=-1)
    ids_b, ids_a = order_b[..., :TOP_K].copy(), order_b[..., :TOP_K].copy()
    columns |= _router_columns(logits_b, shape)
    for layer, row in (*flips, *unexplained):
        ids_a[layer, row, -1] = order_b[layer, row, TOP_K]
        columns["topk.set_equal"][layer, row] = False
        columns["topk.order_equal"][layer, row] = False
        columns["topk.num_flips"][layer, row] = 1
        columns["topk.explained"][layer, row] = (layer, row) in flips
        columns["topk.margin_a"][layer, row] = columns["topk.margin_b"][layer, row] = 0.0012
        columns["topk.needed"][layer, row] = 0.0012 if (layer, row) in flips else 0.31
        columns["topk.bound"][layer, row] = 0.03
        for name in ("topk_weights", "mlp_out", "output"):
            _set(columns, name, layer, row, 0.2)
    for (layer, row), size in (jumps or {}).items():
        for name in ("mlp_out", "output"):
            _set(columns, name, layer, row, size)
    for layer, row in nans:
        for name in ("mlp_out", "output"):
            _set(columns, name, layer, row, np.inf)
            columns[f"{name}.nonfinite_a"][layer, row] = 3
    absent = {name: np.zeros(shape, np.bool_) for name in columns}
    idle_T = (rows["state_a"] != "computed").to_numpy()
    for name, values in columns.items():
        absent[name][:, idle_T] = True
        values[:, idle_T] = np.nan if values.dtype == np.float32 else 0
        if name in ("topk.explained", "topk.needed", "topk.bound"):
            absent[name] |= columns["topk.set_equal"]
    return ArraySource(
        columns=columns,
        absent=absent,
        rows=rows,
        num_layers=num_layers,
        ids=(ids_a, ids_b),
        logits=(logits_a, logits_b),
    )


def _site_columns(
    rng: np.random.Generator, shape: tuple[int, int], noise: float
) -> dict[str, np.ndarray]:
    columns: dict[str, np.ndarray] = {}
    for place, site in enumerate(SITES):
        depth = np.sqrt(np.arange(shape[0])[:, None] + 1 + place / 8)
        error = np.abs(rng.normal(1, 0.4, shape) * noise * depth).astype(np.float32)
        values = {
            "max_abs": error * 2,
            "rel_l2": error,
            "cosine": 1 - error**2 / 2,
            "scale": np.ones(shape),
            "max_ulp": error * 512,
        }
        for metric, kind in SITE_METRICS:
            dtype = {"f4": np.float32, "u4": np.uint32, "b1": np.bool_}[kind]
            columns[f"{site}.{metric}"] = np.asarray(values.get(metric, np.zeros(shape)), dtype)
        columns[f"{site}.bit_equal"] = error == 0
    return columns


def _router_columns(logits_b: np.ndarray, shape: tuple[int, int]) -> dict[str, np.ndarray]:
    ordered = -np.sort(-logits_b, axis=-1)
    gap = (ordered[..., TOP_K - 1] - ordered[..., TOP_K]).astype(np.float32)
    return {
        "topk.set_equal": np.ones(shape, np.bool_),
        "topk.order_equal": np.ones(shape, np.bool_),
        "topk.num_flips": np.zeros(shape, np.uint32),
        "topk.margin_a": gap.copy(),
        "topk.margin_b": gap.copy(),
        "topk.explained": np.ones(shape, np.bool_),
        "topk.needed": np.zeros(shape, np.float32),
        "topk.bound": np.zeros(shape, np.float32),
        "gates.max_abs": np.zeros(shape, np.float32),
    }


def _set(columns: dict[str, np.ndarray], site: str, layer: int, row: int, size: float) -> None:
    columns[f"{site}.rel_l2"][layer, row] = size
    columns[f"{site}.max_abs"][layer, row] = size * 2
    columns[f"{site}.cosine"][layer, row] = 1 - size**2 / 2 if np.isfinite(size) else np.nan
    columns[f"{site}.max_ulp"][layer, row] = int(size * 512) if np.isfinite(size) else 0
    columns[f"{site}.bit_equal"][layer, row] = False
