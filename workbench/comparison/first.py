"""The first divergence of each class, as people and scripts read it.

Order: token first (row, then layer, then site in execution order). `a` and `b` are the two values
that differ most at that place, or the selected experts for a flip, or the log-probabilities.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from workbench.address import Address
from workbench.comparison.result import CellPair, Comparison
from workbench.errors import CaptureError
from workbench.names import DIVERGENCE_CLASSES, MODEL_SITES, DivergenceClass

Entry = dict[str, Any]


def first_divergences(comparison: Comparison) -> dict[DivergenceClass, Entry | None]:
    """First entry per class; None where the class is empty."""
    return {klass: first_of(comparison, klass) for klass in DIVERGENCE_CLASSES}


def first_of(comparison: Comparison, klass: DivergenceClass) -> Entry | None:
    """The first divergence of one class."""
    mask = comparison.class_mask(klass)
    rows_T = mask.any(axis=0)
    if not rows_T.any():
        return None
    row = int(rows_T.argmax())
    layer = int(mask[:, row].argmax())
    site = comparison.sites_at(klass, layer, row)[0]
    return entry(comparison, klass, layer, row, site)


def entry(comparison: Comparison, klass: DivergenceClass, layer: int, row: int, site: str) -> Entry:
    """Describes one divergence."""
    at = comparison.rows.row(row, named=True)
    place = None if site in (*MODEL_SITES, "logprobs") else layer
    a, b, size = _values(comparison, klass, place, row, site)
    known = None if site == "logprobs" else site
    return {
        "layer": place,
        "site": site,
        "request": at["request"],
        "position": at["position"],
        "token": at["text"],
        "token_id": at["token_id"],
        "row": row,
        "address": str(Address(layer=place, row=row, site=known)),
        "a": _json(a),
        "b": _json(b),
        "size": _json(size),
        "nonfinite": any(isinstance(v, float) and not math.isfinite(v) for v in (a, b, size)),
    }


def _values(
    comparison: Comparison, klass: DivergenceClass, layer: int | None, row: int, site: str
) -> tuple[Any, Any, float]:
    if site == "logprobs":
        at = comparison.rows.row(row, named=True)
        a, b = float(at["logprob_a"]), float(at["logprob_b"])
        return a, b, a - b
    pair = _cell(comparison, layer, row, site)
    if site == "topk_ids":
        size = "topk.needed" if klass == "unexplained_flip" else "topk.num_flips"
        return *_experts(pair), _number(comparison, size, layer, row)
    furthest = _furthest(comparison, pair, layer, row, site)
    return *furthest, _number(comparison, f"{site}.rel_l2", layer, row)


def _cell(comparison: Comparison, layer: int | None, row: int, site: str) -> CellPair:
    try:
        return comparison.cell(layer, row, site)
    except CaptureError:
        # The chunk can have gone since it was measured; the place is still worth telling.
        return CellPair(None, None)


def _experts(pair: CellPair) -> tuple[list[int] | None, list[int] | None]:
    return tuple(None if ids is None else [int(i) for i in ids] for ids in pair)  # type: ignore[return-value]


def _number(comparison: Comparison, name: str, layer: int | None, row: int) -> float:
    if layer is None:
        value = comparison.rows[name][row]
        return math.nan if value is None else float(value)
    return float(comparison.column(name)[layer, row])


def _furthest(
    comparison: Comparison, pair: CellPair, layer: int | None, row: int, site: str
) -> tuple[float | None, float | None]:
    """The two values that differ most; one that is NaN or Inf on a side alone comes before all."""
    if pair.a is None or pair.b is None:
        return None, None
    with np.errstate(invalid="ignore"):
        a, b = pair.a.astype(np.float64), pair.b.astype(np.float64)
    if site == "topk_weights":
        a, b = _by_expert(_cell(comparison, layer, row, "topk_ids"), a, b)
    width = min(len(a), len(b))
    if width == 0:
        return None, None
    a, b = a[:width], b[:width]
    with np.errstate(invalid="ignore"):
        gap = np.abs(a - b)
    gap[np.isnan(gap)] = np.inf
    gap[(a == b) | (np.isnan(a) & np.isnan(b))] = 0.0
    index = int(gap.argmax())
    return float(a[index]), float(b[index])


def _by_expert(ids: CellPair, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if ids.a is None or ids.b is None or len(ids.a) != len(a) or len(ids.b) != len(b):
        return a, b
    side_a = dict(zip(ids.a.tolist(), a.tolist(), strict=True))
    side_b = dict(zip(ids.b.tolist(), b.tolist(), strict=True))
    experts = list(dict.fromkeys([*side_a, *side_b]))
    pairs = [(side_a.get(e, 0.0), side_b.get(e, 0.0)) for e in experts]
    return np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs])


def _json(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
