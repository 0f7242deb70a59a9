"""What an explained flip excuses: differences that lie downstream of it.

A router flip sends a token to other experts, so everything after it differs legitimately: the rest
of the row, and, through attention, later rows of the request in later layers. A flip excuses what
lies downstream when it is explained and its own router input is within budget or itself excused.
What
attention carries over excuses a later row only from the layer on where it shows there: where that
row's `attn_out` differs by more than half its budget.

Axis legend: L layer, T row.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import polars as pl

from workbench.comparison.arrow import Values
from workbench.comparison.columns import AFTER_ROUTING
from workbench.comparison.tolerance import Budgets


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
    return ~(tables.column("mlp_in.rel_l2") > bound(budgets, "mlp_in"))


def _attention_shows(tables: Tables, budgets: Budgets) -> np.ndarray:
    """Where attention visibly carries a difference, (L, T); everywhere when it was not recorded."""
    if not tables.has_column("attn_out.rel_l2"):
        return np.ones((tables.num_layers, tables.num_rows), np.bool_)
    shows: np.ndarray = ~(tables.column("attn_out.rel_l2") <= 0.5 * bound(budgets, "attn_out"))
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


def bound(budgets: Budgets, site: str) -> np.ndarray:
    """Budgets of a site as (L, 1) float32; 0 for all when the site has none."""
    return budgets.layer[site].astype(np.float32)[:, None]
