"""Robust locations of error and gain per (layer, site): what a jump is told from.

A median over rows that no flip has touched; where too few of those are left, over rows with equal
expert sets in this layer.

Axis legend: L layer, T row.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from workbench.comparison.columns import AFTER_ROUTING, MEASURED_LAYER_SITES, MEASURED_MODEL_SITES
from workbench.comparison.excuses import Excuses, Tables

MIN_ROWS: Final = 8
_MAD_TO_SIGMA: Final = 1.4826


class Location(NamedTuple):
    """Robust location of a site over rows.

    Attributes:
        error: Median of the relative L2 error.
        gain: Median of ‖A‖/‖B‖, minus 1. Unlike a best-fit scalar it does not shrink when both
        sides
            carry independent errors.
        spread: Robust standard deviation of the gain over rows.
        scale: Median of the best-fit scalar, A against B.
        rows: Rows it stands on.
    """

    error: float
    gain: float
    spread: float
    scale: float
    rows: int


Place = tuple[int | None, str]
"""Layer (None for sites without one) and short site name."""


def locations(tables: Tables, excused: Excuses) -> dict[Place, Location]:
    """The location of every measured site."""
    untouched = _untouched(tables, excused)
    everywhere_T = np.ones(tables.num_rows, np.bool_)
    found: dict[Place, Location | None] = {}
    for site in MEASURED_MODEL_SITES:
        if f"{site}.rel_l2" in tables.rows.columns:
            clean_T = everywhere_T if site == "embed" else untouched[-1]
            error_T = tables.rows[f"{site}.rel_l2"].to_numpy()
            scale_T = tables.rows[f"{site}.scale"].to_numpy()
            found[None, site] = _locate(error_T, scale_T, clean_T, everywhere_T)
    for site in MEASURED_LAYER_SITES:
        if not tables.has_column(f"{site}.rel_l2"):
            continue
        error, scale = tables.column(f"{site}.rel_l2"), tables.column(f"{site}.scale")
        for layer in range(tables.num_layers):
            same_T = _same_set(tables, layer, site)
            clean_T = same_T & untouched[layer - 1] if layer else same_T
            found[layer, site] = _locate(error[layer], scale[layer], clean_T, same_T)
    return {place: location for place, location in found.items() if location is not None}


def _untouched(tables: Tables, excused: Excuses) -> np.ndarray:
    """Rows that no flip up to and including a layer has touched, bool (L, T)."""
    touched = excused.after.copy()
    if tables.has_column("topk.set_equal"):
        flipped = ~(tables.column("topk.set_equal") | tables.missing("topk.set_equal"))
        touched |= np.logical_or.accumulate(flipped, axis=0)
    return ~touched


def _same_set(tables: Tables, layer: int, site: str) -> np.ndarray:
    routed = site in (*AFTER_ROUTING, "topk_weights") and tables.has_column("topk.set_equal")
    if not routed:
        return np.ones(tables.num_rows, np.bool_)
    same_T: np.ndarray = (
        tables.column("topk.set_equal")[layer] | tables.missing("topk.set_equal")[layer]
    )
    return same_T


def _locate(
    error_T: np.ndarray, scale_T: np.ndarray, clean_T: np.ndarray, otherwise_T: np.ndarray
) -> Location | None:
    known_T = ~np.isnan(error_T)
    use_T = clean_T & known_T
    if int(use_T.sum()) < MIN_ROWS:
        use_T = otherwise_T & known_T
    if not use_T.any():
        return None
    error, scale = error_T[use_T].astype(np.float64), scale_T[use_T].astype(np.float64)
    # ‖x‖²/‖y‖² = 2 * sum(xy)/sum(yy) - 1 + ‖x - y‖²/‖y‖².
    with np.errstate(invalid="ignore"):
        gains = np.sqrt(np.maximum(2 * scale - 1 + error**2, 0)) - 1
    gains = gains[np.isfinite(gains)]
    gain = float(np.median(gains)) if len(gains) else np.nan
    spread = _MAD_TO_SIGMA * float(np.median(np.abs(gains - gain))) if len(gains) else np.nan
    scales = scale[np.isfinite(scale)]
    return Location(
        error=float(np.median(error)),
        gain=gain,
        spread=spread,
        scale=float(np.median(scales)) if len(scales) else np.nan,
        rows=len(error),
    )
