"""Attribution and swaps, invented, on a comparison made of plain arrays.

Axes: L layer, T row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.view.synthetic import ArraySource
from workbench.comparison.columns import LOCAL_ERROR, LOCAL_SITES

MODULES = (
    "input_norm",
    "attention",
    "post_attention_norm",
    "router",
    "top_k",
    "gate_weights",
    "routed_experts",
    "combine",
    "residual_add",
)
BUDGET = 0.004
NUMBERS = ("local", "inherited", "total", "units_a", "units_b")
Errors = Mapping[tuple[int, int, str], float]
SAME_ORDER = "both are within rounding of the truth, and they differ: parity needs the same order"


def attributed(
    source: ArraySource,
    errors: Errors | None = None,
    *,
    who: str = "B",
    noise: float = 0.0,
    unseen: tuple[tuple[int, int], ...] = (),
    judged: bool = True,
    combine: str | None = None,
    swaps: bool = False,
) -> ArraySource:
    """Gives a comparison local errors.

    Args:
        source: The comparison; changed in place.
        errors: (layer, row, module) to local error; above `BUDGET` it is beyond.
        who: Who is wrong where one is beyond.
        noise: Local error of everything else.
        unseen: (layer, row) of cells that were not attributable.
        judged: Whether the arbiter saw the rows.
        combine: What is said of the combine order.
        swaps: Whether swaps, ladder and proof were run too.
    """
    shape = (source.num_layers, source.num_rows)
    over_LT = np.zeros(shape, np.bool_)
    columns: dict[str, np.ndarray] = {}
    for module in MODULES:
        values = {number: np.full(shape, noise, np.float32) for number in NUMBERS}
        values["units_a"][:] = values["units_b"][:] = 0.6 if judged else np.nan
        over = np.zeros(shape, np.bool_)
        for (layer, row, name), size in (errors or {}).items():
            if name == module:
                values["local"][layer, row] = size
                over[layer, row] = size > BUDGET
                for side in who if judged and size > BUDGET else "":
                    values[f"units_{side.lower()}"][layer, row] = 12.25
        for layer, row in unseen:
            for number in NUMBERS:
                values[number][layer, row] = np.nan
        columns |= {f"{module}.{number}": column for number, column in values.items()}
        columns[f"{module}.over"] = over
        over_LT |= over
    columns[LOCAL_ERROR] = over_LT
    source._columns |= columns
    source._absent |= {name: np.isnan(c) for name, c in columns.items() if c.dtype == np.float32}
    source.local_names = set(columns)
    source._masks.clear()
    source.summary |= {"attribution": _summary(source, who, combine, judged=judged)}
    source.summary["first"]["local_error"] = _first(source, over_LT, who)
    return _with_swaps(source) if swaps else source


def _summary(source: ArraySource, who: str, combine: str | None, *, judged: bool) -> dict[str, Any]:
    modules = []
    for layer in range(source.num_layers):
        for module in MODULES:
            over = int(source._columns[f"{module}.over"][layer].sum())
            modules.append(
                {
                    "layer": layer,
                    "module": module,
                    "rows": source.num_rows,
                    "over": over,
                    "median": 0.0,
                    "budget": BUDGET,
                    "units_a": 0.5,
                    "units_b": 0.5,
                    "limit_units": 2.0 if judged else None,
                    "who": who if over else "neither",
                    "systematic": False,
                    "scale": None,
                    "includes": [],
                }
            )
    return {
        "arbiter": {"dtype": "float64" if judged else None, "who": who},
        "modules": modules,
        "combine": {"sentence": combine},
        "not_attributable": {"requests": {}, "attention": []},
    }


def _first(source: ArraySource, over_LT: np.ndarray, who: str) -> dict[str, Any] | None:
    if not over_LT.any():
        return None
    row, layer = divmod(int(np.argmax(over_LT.T)), source.num_layers)
    module = next(m for m in MODULES if source._columns[f"{m}.over"][layer, row])
    return {
        "layer": layer,
        "site": LOCAL_SITES[module],
        "module": module,
        "row": row,
        "who": who,
    }


def _with_swaps(source: ArraySource) -> ArraySource:
    """L1's routed experts are the cause: 90% of a live KL of 2e-4 goes with them."""
    live = 2e-4
    cells = [
        {
            "layer": layer,
            "module": module,
            "differing_rows": int(module in ("attention", "routed_experts")),
            "kl_removed": live * (0.9 if (layer, module) == (1, "routed_experts") else 0.001),
            "kl_without": live * (0.95 if (layer, module) == (1, "routed_experts") else 0.02),
        }
        for layer in range(source.num_layers)
        for module in MODULES
    ]
    ladder = [
        {"rung": "live", "about": "", "reason": "", "kl": live, "left": 1.0},
        {"rung": "same set", "about": "", "reason": "", "kl": live / 2, "left": 0.5},
        {"rung": "same combine order", "about": "", "reason": "no known order"},
        {"rung": "reference module", "about": "", "reason": "", "kl": 0.0, "left": 0.0},
    ]
    source.summary |= {
        "proof": {"state": "proved", "text": "L1 routed_experts is the cause: KL 0.0002 before"},
        "ladder": ladder,
        "swap_map": {"kl_before": live, "kl_everything": 0.0, "rows": 378, "cells": cells},
        "swaps": [
            {"name": "routing", "kind": "values", "kl_before": live, "kl_after": live / 2},
            {"name": "layer 1", "kind": "modules", "kl_before": live, "kl_after": 0.0},
        ],
        "experiments": {"rows": 976},
    }
    return source
