"""Classes of divergence as masks over (layer, row), and what is excused. Vectorised.

Owns the predicates; never reads captures, only the two tables of a comparison. A cell of the mask
also
stands for what has no layer: `embed` counts to layer 0; `final_norm`, `logits` and the
log-probability count to the last layer.

Axis legend: L layer, T row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl

from workbench.comparison.columns import (
    LOCAL_ERROR,
    LOCAL_SITES,
    MEASURED_LAYER_SITES,
    NUMERIC_SITES,
)
from workbench.comparison.excuses import Excuses, Single, Tables, bound
from workbench.comparison.tolerance import Budgets
from workbench.names import DivergenceClass

FIRST_MODEL_SITE = "embed"
LAST_MODEL_SITES = ("final_norm", "logits")


def differing_sites(tables: Tables) -> Iterator[tuple[str, np.ndarray]]:
    """Per layer site, where stored bits differ, (L, T); `topk_ids` where the sets differ."""
    for site in _in_execution_order(tables):
        if site == "topk_ids":
            yield site, _different_sets(tables)
            continue
        name = f"{site}.bit_equal"
        yield site, ~(tables.column(name) | tables.missing(name))


def _in_execution_order(tables: Tables) -> list[str]:
    sites = [s for s in MEASURED_LAYER_SITES if tables.has_column(f"{s}.bit_equal")]
    if tables.has_column("topk.set_equal"):
        sites.insert(
            sites.index("router_logits") + 1 if "router_logits" in sites else 0, "topk_ids"
        )
    return sites


def _different_sets(tables: Tables) -> np.ndarray:
    same: np.ndarray = tables.column("topk.set_equal") | tables.missing("topk.set_equal")
    return ~same


def beyond_sites(
    tables: Tables, budgets: Budgets, excused: Excuses | None
) -> Iterator[tuple[str, np.ndarray]]:
    """Per numeric layer site, where the relative error is above budget, (L, T); Inf is above."""
    for site in NUMERIC_SITES:
        if not tables.has_column(f"{site}.rel_l2"):
            continue
        beyond = tables.column(f"{site}.rel_l2") > bound(budgets, site)
        if excused is not None:
            beyond &= ~excused.of(site)
        yield site, beyond


def model_site_mask(
    tables: Tables, site: str, klass: DivergenceClass, budgets: Budgets
) -> np.ndarray:
    """Rows of class `bit` or `rounding` at `embed`, `final_norm` or `logits`, bool (T,)."""
    name = f"{site}.rel_l2"
    if name not in tables.rows.columns:
        return np.zeros(tables.num_rows, np.bool_)
    if klass == "bit":
        return ~tables.rows[f"{site}.bit_equal"].fill_null(value=True).to_numpy()
    error_T = tables.rows[name].cast(pl.Float32).to_numpy()
    return error_T > np.float32(budgets.model[site])


def logprob_rows(tables: Tables, budgets: Budgets, excused: Excuses | None) -> np.ndarray:
    """Rows whose |dlogp| is beyond tolerance, bool (T,); NaN on one side is beyond."""
    a_T = tables.rows["logprob_a"].to_numpy()
    b_T = tables.rows["logprob_b"].to_numpy()
    both = (
        tables.rows["logprob_a"].is_not_null() & tables.rows["logprob_b"].is_not_null()
    ).to_numpy()
    with np.errstate(invalid="ignore"):
        within = np.abs(a_T - b_T) <= budgets.logprob(a_T, b_T)
    beyond_T: np.ndarray = both & ~within & (a_T != b_T)
    return beyond_T if excused is None else beyond_T & ~excused.logprob


EXCUSABLE: Final[tuple[DivergenceClass, ...]] = ("rounding", "logprob")
"""Classes that leave out what an explained flip excuses; the others need no excuses."""


def class_mask(
    tables: Tables, klass: DivergenceClass, budgets: Budgets, excused: Excuses | None
) -> np.ndarray:
    """Which cells belong to a class, bool (L, T); without excuses nothing is excused."""
    mask = np.zeros((tables.num_layers, tables.num_rows), np.bool_)
    if klass == "bit":
        for _, differs in differing_sites(tables):
            mask |= differs
    elif klass == "rounding":
        for _, beyond in beyond_sites(tables, budgets, excused):
            mask |= beyond
    elif klass == "flip" and tables.has_column("topk.set_equal"):
        mask |= _different_sets(tables)
    elif klass == "unexplained_flip" and tables.has_column("topk.explained"):
        mask |= ~(tables.column("topk.explained") | tables.missing("topk.explained"))
    elif klass == "logprob":
        mask[-1] |= logprob_rows(tables, budgets, excused)
    elif klass == "local_error" and tables.has_column(LOCAL_ERROR):
        mask |= tables.column(LOCAL_ERROR)
    if klass in ("bit", "rounding"):
        mask[0] |= model_site_mask(tables, FIRST_MODEL_SITE, klass, budgets)
        for site in LAST_MODEL_SITES:
            beyond_T = model_site_mask(tables, site, klass, budgets)
            if excused is not None and klass == "rounding":
                beyond_T &= ~excused.after[-1]
            mask[-1] |= beyond_T
    return mask


def sites_of_cell(
    tables: Tables,
    klass: DivergenceClass,
    budgets: Budgets,
    excused: Excuses | None,
    *,
    layer: int,
    row: int,
) -> list[str]:
    """Sites of one cell that belong to the class, in execution order."""
    last = tables.num_layers - 1
    if klass in ("flip", "unexplained_flip"):
        return ["topk_ids"]
    if klass == "logprob":
        return ["logprobs"] if layer == last else []
    if klass == "local_error":
        return _beyond_locally(_OneCell(tables, layer, row))
    one = _OneCell(tables, layer, row)
    narrow = None
    if excused is not None and klass == "rounding":
        narrow = _narrowed(excused, layer, row)
    budget = _narrowed_budgets(budgets, layer)
    masks: Mapping[str, np.ndarray] = dict(
        differing_sites(one) if klass == "bit" else beyond_sites(one, budget, narrow)
    )
    found = [site for site, mask in masks.items() if mask[0, 0]]
    if layer == 0 and model_site_mask(one, FIRST_MODEL_SITE, klass, budgets)[0]:
        found.insert(0, FIRST_MODEL_SITE)
    if layer == last and (narrow is None or not narrow.after[0, 0]):
        found += [s for s in LAST_MODEL_SITES if model_site_mask(one, s, klass, budgets)[0]]
    return found


def _beyond_locally(one: _OneCell) -> list[str]:
    """Sites whose module is beyond its own budget at a cell."""
    return [
        site
        for module, site in LOCAL_SITES.items()
        if one.has_column(f"{module}.over") and one.column(f"{module}.over")[0, 0]
    ]


def _narrowed(excused: Excuses, layer: int, row: int) -> Excuses:
    here = np.s_[layer : layer + 1, row : row + 1]
    return Excuses(
        excused.before[here],
        excused.after[here],
        excused.logprob[row : row + 1],
        excused.flips[here],
    )


def _narrowed_budgets(budgets: Budgets, layer: int) -> Budgets:
    return replace(
        budgets, layer={site: values[layer : layer + 1] for site, values in budgets.layer.items()}
    )


class _OneCell:
    """The tables, seen through one cell."""

    num_layers = 1
    num_rows = 1

    def __init__(self, tables: Tables, layer: int, row: int) -> None:
        self._tables, self._layer, self._row = tables, layer, row
        self._here = np.s_[layer : layer + 1, row : row + 1]
        self.rows = tables.rows[row : row + 1]

    def has_column(self, name: str) -> bool:
        return self._tables.has_column(name)

    def column(self, name: str) -> np.ndarray:
        if isinstance(self._tables, Single):
            return self._tables.one(name, self._layer, self._row).values
        return self._tables.column(name)[self._here]

    def missing(self, name: str) -> np.ndarray:
        if isinstance(self._tables, Single):
            missing = self._tables.one(name, self._layer, self._row).missing
            assert missing is not None
            return missing
        return self._tables.missing(name)[self._here]
