"""Where an error enters, told without the model: the first jump of total error in execution order.

At every site the total error has a robust location, the median over rows that no flip has touched.
A site jumps when its error exceeds both its rounding budget and what its declared inputs carry,
times `AMPLIFICATION`. A common factor is found more sharply: rounding has no preferred sign, so
the best-fit scalar between A and B scatters round 1, and its median over rows stands out long
before the error does.

Axis legend: L layer, T row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from workbench.comparison.classes import Excuses, Tables
from workbench.comparison.columns import AFTER_ROUTING, MEASURED_LAYER_SITES
from workbench.comparison.tolerance import Budgets

AMPLIFICATION: Final = 3.0
"""How much larger than its inputs' error a correct module's may be: gated products square errors,
and sums that cancel raise them."""

SCALE_ROUNDOFFS: Final = 2.0
"""A common factor within this many unit roundoffs of 1 may come from rounding one constant."""

_MIN_SCALE: Final = 2.0**-18
_MIN_ROWS: Final = 8
_STANDARD_ERRORS: Final = 6.0
_MAD_TO_SIGMA: Final = 1.4826

INPUTS: Final[Mapping[str, tuple[str, ...]]] = {
    "attn_in": ("input",),
    "attn_out": ("attn_in",),
    "mlp_in": ("input", "attn_out"),
    "router_logits": ("mlp_in",),
    "topk_weights": ("router_logits",),
    "routed_out": ("mlp_in", "topk_weights"),
    "shared_out": ("mlp_in",),
    "mlp_out": ("mlp_in", "routed_out", "shared_out"),
    "output": ("input", "attn_out", "mlp_out"),
}
"""What each site is computed from, within its layer; `input` comes from the layer before."""


class Location(NamedTuple):
    """Robust location of a site's error over rows.

    Attributes:
        error: Median of the relative L2 error.
        scale: Median of the best-fit scalar, minus 1.
        spread: Robust standard deviation of the scalar over rows.
        rows: Rows it stands on.
    """

    error: float
    scale: float
    spread: float
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Jump:
    """A site where more error leaves than entered.

    Attributes:
        layer: None for `embed`, `final_norm` and `logits`.
        size: Median relative L2 error at the site.
        input_error: Largest median error among its declared inputs.
        scale: Median best-fit scalar: A is about `scale` * B there.
        scale_spread: Robust standard deviation of that scalar over rows.
        constant: Whether one factor other than 1 describes all rows.
        rule: `error` or `scale`: which test found it.
        rows: Rows it stands on.
    """

    layer: int | None
    site: str
    size: float
    input_error: float
    scale: float
    scale_spread: float
    constant: bool
    rule: Literal["error", "scale"]
    rows: int

    def to_json(self) -> dict[str, Any]:
        """As `comparison.json` lists it."""
        body = {name: getattr(self, name) for name in self.__slots__}
        return {
            k: v if not isinstance(v, float) or np.isfinite(v) else None for k, v in body.items()
        }


def find_jump(tables: Tables, budgets: Budgets, excused: Excuses) -> Jump | None:
    """The first jump in execution order, or None when every site carries on what it was given."""
    walk = _Walk(tables, budgets, excused)
    previous = walk.model("embed", None)
    if previous.found is not None:
        return previous.found
    for layer in range(tables.num_layers):
        found, previous = walk.layer(layer, previous.location)
        if found is not None:
            return found
    for site in ("final_norm", "logits"):
        step = walk.model(site, previous.location)
        if step.found is not None:
            return step.found
        previous = step
    return None


class _Step(NamedTuple):
    location: Location | None
    found: Jump | None


class _Walk:
    """Goes through the sites in execution order."""

    def __init__(self, tables: Tables, budgets: Budgets, excused: Excuses) -> None:
        self.tables, self.budgets = tables, budgets
        self.untouched = _untouched_rows(tables, excused)

    def layer(self, layer: int, entering: Location | None) -> tuple[Jump | None, _Step]:
        """The layer's first jump, and what leaves it."""
        here: dict[str, Location | None] = {}
        for site in MEASURED_LAYER_SITES:
            location = self._locate(layer, site)
            given = self._given(site, here, entering)
            # A site that was not recorded hands on what it was given.
            here[site] = location or given
            if location is not None:
                found = self._judge(layer, site, location, given)
                if found is not None:
                    return found, _Step(None, found)
        return None, _Step(here["output"], None)

    def model(self, site: str, entering: Location | None) -> _Step:
        """A site without a layer."""
        rows = self.tables.rows
        if f"{site}.rel_l2" not in rows.columns:
            return _Step(entering, None)
        use_T = np.ones(self.tables.num_rows, np.bool_)
        if site != "embed":
            use_T = self._rows_to_use(self.untouched[-1], use_T)
        location = _location(
            rows[f"{site}.rel_l2"].to_numpy()[use_T], rows[f"{site}.scale"].to_numpy()[use_T]
        )
        if location is None:
            return _Step(entering, None)
        return _Step(location, self._judge(None, site, location, entering))

    def _given(
        self, site: str, here: Mapping[str, Location | None], entering: Location | None
    ) -> Location | None:
        if site == "input":
            return entering
        given = [found for name in INPUTS[site] if (found := here.get(name)) is not None]
        if not given:
            return entering
        return Location(
            error=max(g.error for g in given),
            scale=max((g.scale for g in given), key=abs),
            spread=0.0,
            rows=min(g.rows for g in given),
        )

    def _locate(self, layer: int, site: str) -> Location | None:
        if not self.tables.has_column(f"{site}.rel_l2"):
            return None
        error_T = self.tables.column(f"{site}.rel_l2")[layer]
        scale_T = self.tables.column(f"{site}.scale")[layer]
        same_set_T = self._same_set(layer, site)
        before_T = self.untouched[layer - 1] if layer else np.ones(len(error_T), np.bool_)
        use_T = self._rows_to_use(before_T & same_set_T & ~np.isnan(error_T), same_set_T)
        return _location(error_T[use_T], scale_T[use_T])

    def _same_set(self, layer: int, site: str) -> np.ndarray:
        if site not in (*AFTER_ROUTING, "topk_weights"):
            return np.ones(self.tables.num_rows, np.bool_)
        if not self.tables.has_column("topk.set_equal"):
            return np.ones(self.tables.num_rows, np.bool_)
        same_T: np.ndarray = (
            self.tables.column("topk.set_equal")[layer]
            | self.tables.missing("topk.set_equal")[layer]
        )
        return same_T

    @staticmethod
    def _rows_to_use(clean_T: np.ndarray, otherwise_T: np.ndarray) -> np.ndarray:
        return clean_T if int(clean_T.sum()) >= _MIN_ROWS else otherwise_T

    def _judge(
        self, layer: int | None, site: str, at: Location, given: Location | None
    ) -> Jump | None:
        input_error = 0.0 if given is None else given.error
        input_scale = 0.0 if given is None else abs(given.scale)
        budget = self._budget(layer, site)
        constant = self._is_constant_factor(at)
        by_scale = constant and abs(at.scale) > AMPLIFICATION * input_scale
        by_error = at.error > budget and at.error > AMPLIFICATION * input_error
        if site == "topk_weights":
            # A softmax turns the absolute error of its scores into a relative one: only a common
            # factor says something without knowing their size.
            by_error = False
        if not by_scale and not by_error:
            return None
        return Jump(
            layer=layer,
            site=site,
            size=at.error,
            input_error=input_error,
            scale=1.0 + at.scale,
            scale_spread=at.spread,
            constant=constant,
            rule="error" if by_error else "scale",
            rows=at.rows,
        )

    def _budget(self, layer: int | None, site: str) -> float:
        if layer is None:
            return self.budgets.model[site]
        return float(self.budgets.layer[site][layer]) if site in self.budgets.layer else np.inf

    def _is_constant_factor(self, at: Location) -> bool:
        if at.rows < _MIN_ROWS or not np.isfinite(at.scale) or self.budgets.roundoff == 0:
            return False
        uncertain = _STANDARD_ERRORS * at.spread / np.sqrt(at.rows)
        smallest = max(SCALE_ROUNDOFFS * self.budgets.roundoff, _MIN_SCALE, float(uncertain))
        return abs(at.scale) > max(smallest, 2 * at.spread)


def _untouched_rows(tables: Tables, excused: Excuses) -> np.ndarray:
    """Rows that no flip up to and including a layer has touched, bool (L, T)."""
    touched = excused.after.copy()
    if tables.has_column("topk.set_equal"):
        flipped = ~(tables.column("topk.set_equal") | tables.missing("topk.set_equal"))
        touched |= np.logical_or.accumulate(flipped, axis=0)
    return ~touched


def _location(error: np.ndarray, scale: np.ndarray) -> Location | None:
    known = ~np.isnan(error)
    if not known.any():
        return None
    scales = scale[known & ~np.isnan(scale)].astype(np.float64)
    centre = float(np.median(scales)) if len(scales) else np.nan
    spread = _MAD_TO_SIGMA * float(np.median(np.abs(scales - centre))) if len(scales) else np.nan
    error_median = float(np.median(error[known]))
    return Location(error_median, centre - 1.0, spread, int(known.sum()))
