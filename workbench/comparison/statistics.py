"""Statistics of the two tables for `comparison.json`: per site, and of routing.

Axis legend: L layer, T row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from workbench.comparison.publish import finite
from workbench.comparison.result import Comparison
from workbench.names import SITES


def routing_statistics(draft: Comparison) -> dict[str, Any]:
    """Flips, how they were judged and why, in all and by layer."""
    nothing = {"compared": 0, "flips": 0, "explained": 0, "unexplained": 0, "unjudged": 0}
    if not draft.has_column("topk.set_equal"):
        return {**nothing, "flip_share": None, "rows_with_flip": 0, "by_layer": []}
    there = ~draft.missing("topk.set_equal")
    flips = there & ~draft.column("topk.set_equal")
    judged_LT = ~draft.missing("topk.explained")
    explained = draft.column("topk.explained")
    compared = int(there.sum())
    by_layer = [
        {
            "layer": layer,
            "compared": int(there[layer].sum()),
            "flips": int(flips[layer].sum()),
            "explained": int((flips[layer] & explained[layer]).sum()),
            "unexplained": int((flips[layer] & judged_LT[layer] & ~explained[layer]).sum()),
        }
        for layer in range(draft.num_layers)
        if there[layer].any()
    ]
    num_flips = int(flips.sum())
    num_judged = int((flips & judged_LT).sum())
    num_explained = int((flips & explained).sum())
    order = there & ~draft.column("topk.order_equal") & draft.column("topk.set_equal")
    return {
        "compared": compared,
        "flips": num_flips,
        "flip_share": num_flips / compared if compared else None,
        "rows_with_flip": int(flips.any(axis=0).sum()),
        "order_only": int(order.sum()),
        "explained": num_explained,
        "unexplained": num_judged - num_explained,
        "unjudged": num_flips - num_judged,
        "reasons": draft.summary["flip_reasons"],
        "by_layer": by_layer,
    }


def site_statistics(draft: Comparison) -> dict[str, Any]:
    """Relative error, bit equality and non-finite counts per site, with coverage."""
    found: dict[str, Any] = {}
    for site in SITES:
        if site.per_layer and draft.has_column(f"{site.name}.rel_l2"):
            numbers = {
                name: draft.column(f"{site.name}.{name}")
                for name in ("rel_l2", "bit_equal", "nonfinite_a", "nonfinite_b")
            }
            there = ~draft.missing(f"{site.name}.bit_equal")
            medians = [_median(row) for row in numbers["rel_l2"]]
            found[site.name] = {**_site(numbers, there), "median_by_layer": medians}
        elif f"{site.name}.rel_l2" in draft.rows.columns:
            rows = draft.rows
            there = rows[f"{site.name}.bit_equal"].is_not_null().to_numpy()
            numbers = {
                "rel_l2": rows[f"{site.name}.rel_l2"].to_numpy(),
                **{
                    name: rows[f"{site.name}.{name}"].fill_null(0).to_numpy()
                    for name in ("nonfinite_a", "nonfinite_b")
                },
                "bit_equal": rows[f"{site.name}.bit_equal"].fill_null(value=False).to_numpy(),
            }
            found[site.name] = _site(numbers, there)
    return found


def _site(numbers: Mapping[str, np.ndarray], there: np.ndarray) -> dict[str, Any]:
    error = numbers["rel_l2"][there]
    usable = error[np.isfinite(error)]
    compared = int(there.sum())
    return {
        "compared": compared,
        "mean": float(usable.mean(dtype=np.float64)) if len(usable) else None,
        "median": _median(usable),
        "max": float(usable.max()) if len(usable) else None,
        "not_a_number": compared - len(usable),
        "bit_equal": int(numbers["bit_equal"].sum()) / compared if compared else None,
        "nonfinite_a": int(numbers["nonfinite_a"].sum(dtype=np.int64)),
        "nonfinite_b": int(numbers["nonfinite_b"].sum(dtype=np.int64)),
    }


def _median(values: np.ndarray) -> float | None:
    values = values[~np.isnan(values)]
    return finite(float(np.median(values))) if len(values) else None
