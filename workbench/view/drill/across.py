"""One layer across all tokens: lines made when they are looked at, in row order or by size.

Holds columns of one layer and an order, no object per row: it opens as fast for 32,768 rows as for
ten. Missing is NaN here and never equal; a NaN or Inf of a side is the largest size there is.

Axes: T row.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from workbench.view.drill.flips import Flip, flip_of
from workbench.view.drill.trace import in_budgets
from workbench.view.palette import HIDDEN
from workbench.view.state import Cell

if TYPE_CHECKING:
    from workbench.view.model import ViewModel

SortBy = Literal["row", "size"]


class RowLine(NamedTuple):
    """One token at the layer.

    Attributes:
        row: Its row.
        code: What the lens shows there.
        request, position, text: Who it is.
        absent: `cached`, `sampled` or empty.
        flip: Which experts changed.
        size: Relative L2 at the site that rows are ranked by; NaN where a side holds NaN or Inf.
        of_budget: That size in budgets.
        dlogp: A minus B; None where a side did not score it.
    """

    row: int
    code: int
    request: str
    position: int
    text: str
    absent: str
    flip: Flip | None
    size: float | None
    of_budget: float | None
    dlogp: float | None


class Across:
    """The tokens of one layer.

    Args:
        model: The view-model.
        layer: Which layer.
        site: The site in focus; rows are ranked by it, or by the combined output where it has no
            size.

    Attributes:
        asked: The site in focus.
        site: The site that rows are ranked by.
    """

    def __init__(self, model: ViewModel, layer: int, site: str) -> None:
        self._model = model
        self.layer, self.asked = layer, site
        self.site = site if model.source.has_column(f"{site}.rel_l2") else "mlp_out"
        self._order_T: np.ndarray | None = None
        self.sort: SortBy = "row"

    def __len__(self) -> int:
        return self._model.num_rows

    def sort_by(self, sort: SortBy) -> None:
        """Orders the rows; equal sizes keep the order of rows, missing ones come last."""
        self.sort = sort
        self._order_T = None if sort == "row" else order_by_size(*self._sizes())

    def row_at(self, place: int) -> int:
        """The row at a place of the list."""
        return place if self._order_T is None else int(self._order_T[place])

    def place_of(self, row: int) -> int:
        """Where a row stands in the list."""
        return row if self._order_T is None else int(np.flatnonzero(self._order_T == row)[0])

    def line(self, place: int) -> RowLine:
        """What is at a place of the list."""
        model, row = self._model, self.row_at(place)
        line = model.source.metrics(self.layer, row)
        size = line.get(f"{self.site}.rel_l2")
        if line.get(f"{self.site}.nonfinite_a") or line.get(f"{self.site}.nonfinite_b"):
            size = math.nan
        at = model.source.rows.row(row, named=True)
        states = [s for s in (at["state_a"], at["state_b"]) if s in ("cached", "sampled")]
        return RowLine(
            row=row,
            code=int(model.codes()[self.layer, row]),
            request=str(at["request"]),
            position=int(at["position"]),
            text=at["text"] or "",
            absent=states[0] if states else "",
            flip=flip_of(model.source, Cell(self.layer, row), line),
            size=size,
            of_budget=self._in_budgets(size),
            dlogp=at["dlogp"],
        )

    @property
    def num_hidden(self) -> int:
        """Rows that the filter hides in the grid; they are listed all the same."""
        return int((self._model.codes()[self.layer] == HIDDEN).sum())

    def _in_budgets(self, size: float | None) -> float | None:
        site = "router_logits" if self.site == "topk_weights" else self.site
        budgets = self._model.source.budgets(self._model.state.tolerance or None).layer
        return in_budgets(size, float(budgets[site][self.layer])) if site in budgets else None

    def _sizes(self) -> tuple[np.ndarray, np.ndarray]:
        """Sizes with Inf for NaN of a side, and where there is none, (T,) each."""
        source, name = self._model.source, f"{self.site}.rel_l2"
        if not source.has_column(name):
            nothing = np.ones(self._model.num_rows, np.bool_)
            return np.zeros(self._model.num_rows, np.float32), nothing
        bad_T = source.column(f"{self.site}.nonfinite_a")[self.layer] > 0
        bad_T = bad_T | (source.column(f"{self.site}.nonfinite_b")[self.layer] > 0)
        size_T = np.where(bad_T, np.inf, source.column(name)[self.layer])
        missing_T = source.missing(name)[self.layer] & ~bad_T
        return size_T, missing_T


def order_by_size(size_T: np.ndarray, missing_T: np.ndarray) -> np.ndarray:
    """Rows from the largest size down; those without one last. Ties keep their order.

    >>> order_by_size(np.array([1.0, 3.0, 3.0, 9.0]), np.array([False, False, False, True]))
    array([1, 2, 0, 3])
    """
    key_T = np.where(missing_T, -np.inf, np.nan_to_num(size_T, nan=0.0, posinf=np.inf))
    order_T: np.ndarray = np.argsort(-key_T, kind="stable")
    return order_T
