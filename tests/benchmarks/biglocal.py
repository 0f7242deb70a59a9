"""Local errors for a comparison that has none, invented and written layer by layer.

Stands in for `kldive attribute` where the comparison is far larger than any model at hand: the same
files in the same layout, noise within every budget, and a few rows of one module beyond it.

Axis legend: T row.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np

from workbench.address import Address
from workbench.comparison.arrow import Column, Kind, LayerTableWriter, Values
from workbench.comparison.columns import LOCAL_ERROR, LOCAL_SITES
from workbench.comparison.publish import write_summary
from workbench.comparison.result import LOCAL_NAME, Comparison, open_comparison

MODULES: Final = (
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
NUMBERS: Final = ("local", "inherited", "total", "units_a", "units_b")
GUILTY: Final = "routed_experts"
BUDGET: Final = 0.004
OVER: Final = 0.05


def add_local_errors(comparison: Comparison) -> Comparison:
    """Writes `local.arrow` and what the summary says of it; gives the comparison opened again."""
    layer = comparison.num_layers // 2
    over_T = np.zeros(comparison.num_rows, np.bool_)
    over_T[comparison.num_rows // 3 :: 997] = True
    columns = _columns()
    _write_table(comparison.directory / LOCAL_NAME, comparison, columns, layer, over_T)
    summary = {
        **comparison.summary,
        "attribution": _summary(comparison, columns, layer, over_T),
    }
    summary["first"] = {**summary["first"], "local_error": _first(comparison, layer, over_T)}
    write_summary(comparison.directory, summary)
    return open_comparison(comparison.directory)


def _columns() -> list[Column]:
    kinds: list[tuple[str, Kind]] = [*((number, "f4") for number in NUMBERS), ("over", "b1")]
    return [
        Column("layer", "u4"),
        Column("row", "u4"),
        Column(LOCAL_ERROR, "b1"),
        *(Column(f"{module}.{name}", kind) for module in MODULES for name, kind in kinds),
    ]


def _write_table(
    path: Path, comparison: Comparison, columns: list[Column], guilty: int, over_T: np.ndarray
) -> None:
    num_rows = comparison.num_rows
    rng = np.random.default_rng(11)
    noise = rng.gamma(4.0, BUDGET / 40, 2 * num_rows).astype(np.float32)
    nowhere_T = np.zeros(num_rows, np.bool_)
    writer = LayerTableWriter(path, columns, num_layers=comparison.num_layers, num_rows=num_rows)
    for layer in range(comparison.num_layers):
        values = {
            "layer": Values(np.full(num_rows, layer, np.uint32)),
            "row": Values(np.arange(num_rows, dtype=np.uint32)),
            LOCAL_ERROR: Values(over_T if layer == guilty else nowhere_T),
        }
        for module in MODULES:
            here_T = over_T if (layer, module) == (guilty, GUILTY) else nowhere_T
            for number in NUMBERS:
                start = int(rng.integers(0, num_rows))
                numbers_T = noise[start : start + num_rows]
                values[f"{module}.{number}"] = Values(
                    np.where(here_T, np.float32(OVER), numbers_T) if here_T.any() else numbers_T
                )
            values[f"{module}.over"] = Values(here_T)
        writer.append(values)
    writer.close()


def _summary(
    comparison: Comparison, columns: list[Column], guilty: int, over_T: np.ndarray
) -> dict[str, Any]:
    modules: list[dict[str, Any]] = []
    for layer in range(comparison.num_layers):
        for module in MODULES:
            over = int(over_T.sum()) if (layer, module) == (guilty, GUILTY) else 0
            modules.append(
                {
                    "layer": layer,
                    "module": module,
                    "rows": comparison.num_rows,
                    "over": over,
                    "median": BUDGET / 10,
                    "budget": BUDGET,
                    "units_a": 0.5,
                    "units_b": 12.5 if over else 0.5,
                    "limit_units": 2.0,
                    "who": "B" if over else "neither",
                    "systematic": False,
                    "scale": None,
                    "includes": [],
                }
            )
    equal = {"status": "equal", "text": ""}
    return {
        "columns": [list(column) for column in columns],
        "model": {"weights_a": equal, "weights_b": equal, "notes": []},
        "arbiter": {
            "dtype": "float64",
            "note": "",
            "rows": comparison.num_rows,
            "who": "B",
            "kinds": [_kind(module, int(over_T.sum())) for module in MODULES],
            "biases": [],
        },
        "modules": modules,
        "combine": None,
        "flips": {"flips": 0},
        "not_attributable": {"requests": {}, "attention": []},
        "seconds": 0.0,
    }


def _kind(module: str, over: int) -> dict[str, Any]:
    guilty = module == GUILTY
    return {
        "module": module,
        "local": BUDGET / 10,
        "max_local": OVER if guilty else BUDGET / 4,
        "budget": BUDGET,
        "over": over if guilty else 0,
        "units_a": 0.5,
        "units_b": 12.5 if guilty else 0.5,
        "limit_units": 2.0,
    }


def _first(comparison: Comparison, layer: int, over_T: np.ndarray) -> dict[str, Any]:
    row = int(np.argmax(over_T))
    at = comparison.rows.row(row, named=True)
    site = LOCAL_SITES[GUILTY]
    return {
        "layer": layer,
        "site": site,
        "module": GUILTY,
        "request": at["request"],
        "position": at["position"],
        "token": at["text"],
        "token_id": at["token_id"],
        "row": row,
        "address": str(Address(layer=layer, row=row, site=site)),
        "a": 1.0,
        "b": 1.05,
        "size": OVER,
        "budget": BUDGET,
        "who": "B",
        "nonfinite": False,
    }
