"""Classes of divergence as masks over (layer, row), and what is excused. Vectorised.

Owns the predicates; never reads captures, only the two tables of a comparison. A cell of the mask
also
stands for what has no layer: `embed` counts to layer 0; `final_norm`, `logits` and the
log-probability count to the last layer.

A router flip sends a token to other experts, so everything after it differs legitimately: the rest
of the row, and, through attention, later rows of the request in later layers. A flip excuses what
lies downstream when it is explained and its own router input is within budget or itself excused.
What
attention carries over excuses a later row only from the layer on where it shows there: where that
row's `attn_out` differs by more than half its budget.

Axis legend: L layer, T row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import polars as pl

from workbench.comparison.arrow import Values
from workbench.comparison.columns import (
    AFTER_ROUTING,
    LOCAL_ERROR,
    LOCAL_SITES,
    MEASURED_LAYER_SITES,
    NUMERIC_SITES,
)
from workbench.comparison.tolerance import Budgets
from workbench.names import DivergenceClass

FIRST_MODEL_SITE = "embed"
LAST_MODEL_SITES = ("final_norm", "logits")


class Tables(Protocol):
    """What a predicate may read."""

    @property
    def num_layers(self) -> int:
        """L."""

    @property
    def num_rows(self) -> int:
        """T."""

    @property
    def rows(self) -> pl.DataFrame:
        """The row table."""

    def has_column(self, name: str) -> bool:
        """Whether the layer table has a column."""

    def column(self, name: str) -> np.ndarray:
        """A column of the layer table, (L, T)."""

    def missing(self, name: str) -> np.ndarray:
        """Where it is null, bool (L, T)."""


@runtime_checkable
class Single(Protocol):
    """Tables that can read one cell without the rest of its column."""

    def one(self, name: str, layer: int, row: int) -> Values:
        """One value of a column and whether it is null, (1, 1) each."""


class Excuses(NamedTuple):
    """Where a difference is downstream of an excusing flip.

    Attributes:
        before: For sites up to the router and `shared_out`, bool (L, T).
        after: For `AFTER_ROUTING`, bool (L, T).
        logprob: For the row's own log-probability, bool (T,).
        flips: The excusing flips, bool (L, T).
    """

    before: np.ndarray
    after: np.ndarray
    logprob: np.ndarray
    flips: np.ndarray

    def of(self, site: str) -> np.ndarray:
        """Excuses at a layer site, (L, T)."""
        return self.after if site in AFTER_ROUTING else self.before


def request_index(rows: pl.DataFrame) -> np.ndarray:
    """Index of each row's request, int32 (T,), ascending: rows lie request by request."""
    requests = rows["request"]
    if len(requests) == 0:
        return np.zeros(0, np.int32)
    return (requests.rle_id()).to_numpy().astype(np.int32)


def previous_row(rows: pl.DataFrame) -> np.ndarray:
    """Row of the same request one position earlier, int64 (T,), -1 where there is none."""
    position_T = rows["position"].to_numpy()
    request_T = request_index(rows)
    previous_T = np.arange(len(position_T)) - 1
    follows = np.zeros(len(position_T), np.bool_)
    follows[1:] = (request_T[1:] == request_T[:-1]) & (position_T[1:] == position_T[:-1] + 1)
    previous_T[~follows] = -1
    return previous_T


def excuses(tables: Tables, budgets: Budgets) -> Excuses:
    """What flips excuse, by one pass over the layers."""
    shape = (tables.num_layers, tables.num_rows)
    before, after = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
    flips = np.zeros(shape, np.bool_)
    if tables.has_column("topk.explained"):
        explained = tables.column("topk.explained").astype(np.bool_, copy=False)
        explained = explained & ~tables.missing("topk.explained")
        within = _router_input_within(tables, budgets)
        request_T = request_index(tables.rows)
        shows = _attention_shows(tables, budgets)
        reached_T = np.zeros(tables.num_rows, np.bool_)
        carried_T = np.zeros(tables.num_rows, np.bool_)
        for layer in range(tables.num_layers):
            if carried_T.any():
                reached_T = reached_T | (carried_T & shows[layer])
            before[layer] = reached_T
            flips[layer] = explained[layer] & (within[layer] | reached_T)
            reached_T = reached_T | flips[layer]
            after[layer] = reached_T
            if flips[layer].any():
                carried_T = _onwards(reached_T, request_T)
    return Excuses(before, after, _logprob_excuses(tables, after), flips)


def _router_input_within(tables: Tables, budgets: Budgets) -> np.ndarray:
    if not tables.has_column("mlp_in.rel_l2"):
        return np.ones((tables.num_layers, tables.num_rows), np.bool_)
    return ~(tables.column("mlp_in.rel_l2") > _bound(budgets, "mlp_in"))


def _attention_shows(tables: Tables, budgets: Budgets) -> np.ndarray:
    """Where attention visibly carries a difference, (L, T); everywhere when it was not recorded."""
    if not tables.has_column("attn_out.rel_l2"):
        return np.ones((tables.num_layers, tables.num_rows), np.bool_)
    shows: np.ndarray = ~(tables.column("attn_out.rel_l2") <= 0.5 * _bound(budgets, "attn_out"))
    return shows


def _onwards(reached_T: np.ndarray, request_T: np.ndarray) -> np.ndarray:
    """Rows at or after a reached row of the same request."""
    # Request indexes ascend, so a running maximum of the reached ones never leaks into a later one.
    marks_T = np.where(reached_T, request_T + 1, 0)
    onwards_T: np.ndarray = np.maximum.accumulate(marks_T) == request_T + 1
    return onwards_T


def _logprob_excuses(tables: Tables, after: np.ndarray) -> np.ndarray:
    """A token is scored by the row before it."""
    excused_T = np.zeros(tables.num_rows, np.bool_)
    previous_T = previous_row(tables.rows)
    has = previous_T >= 0
    excused_T[has] = after[-1][previous_T[has]]
    return excused_T


def _bound(budgets: Budgets, site: str) -> np.ndarray:
    """Budgets of a site as (L, 1) float32; 0 for all when the site has none."""
    return budgets.layer[site].astype(np.float32)[:, None]


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
        beyond = tables.column(f"{site}.rel_l2") > _bound(budgets, site)
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


def class_mask(
    tables: Tables, klass: DivergenceClass, budgets: Budgets, excused: Excuses
) -> np.ndarray:
    """Which cells belong to a class, bool (L, T)."""
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
            mask[-1] |= beyond_T & ~excused.after[-1] if klass == "rounding" else beyond_T
    return mask


def sites_of_cell(
    tables: Tables,
    klass: DivergenceClass,
    budgets: Budgets,
    excused: Excuses,
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
        return _beyond_locally(tables, layer, row)
    one = _OneCell(tables, layer, row)
    narrow = _narrowed(excused, layer, row)
    budget = _narrowed_budgets(budgets, layer)
    masks: Mapping[str, np.ndarray] = dict(
        differing_sites(one) if klass == "bit" else beyond_sites(one, budget, narrow)
    )
    found = [site for site, mask in masks.items() if mask[0, 0]]
    if layer == 0 and model_site_mask(one, FIRST_MODEL_SITE, klass, budgets)[0]:
        found.insert(0, FIRST_MODEL_SITE)
    if layer == last and not (klass == "rounding" and narrow.after[0, 0]):
        found += [s for s in LAST_MODEL_SITES if model_site_mask(one, s, klass, budgets)[0]]
    return found


def _beyond_locally(tables: Tables, layer: int, row: int) -> list[str]:
    """Sites whose module is beyond its own budget at a cell."""
    return [
        site
        for module, site in LOCAL_SITES.items()
        if tables.has_column(f"{module}.over") and tables.column(f"{module}.over")[layer, row]
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
