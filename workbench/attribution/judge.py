"""Who is wrong: the verdict on each module, from its local errors and the arbiter.

A budget derived from rounding alone says what a correct module may differ by; the arbiter sharpens
it with what the better of both sides really does. The invariant: a row where A equals B's module
bit for bit is never beyond anything.

Axis legend: T row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from workbench.attribution.columns import Scratch
from workbench.attribution.kinds import EXECUTION_ORDER, MODULE_BY_NAME, rounding_budget
from workbench.attribution.local import ModulePlace
from workbench.attribution.mapping import Map, Tally

Who = Literal["neither", "A", "B", "both", "unknown"]
"""Which side is outside its rounding budget; `unknown` where no arbiter saw the module."""

SHARPEN: Final = 2.5
"""A side is outside where its error is this many times the largest of the better side."""
_TAIL: Final = 3.0
"""The better side's largest error counts up to this many times its 99th percentile, so that a few
bad rows of its own do not hide those of the other."""
_COARSE_FLOOR: Final = 0.5
_FINE_FLOOR: Final = 8.0
"""Units that a better side is never taken to be below: in 16-bit types a value is rounded once and
by at most one unit; in float32 the order of an inner product alone moves it by several, and 9 units
beside 3 were seen in a router whose scores cancel."""
_FINE_UNIT: Final = 2.0**-16
_QUANTILE: Final = 0.99
_LARGER: Final = 1.0
_SMALLER: Final = 2.25
_FINE_LEAN: Final = 16.0
"""Units that a best-fit scale must be off by before it is more than rounding that leans one way.

Cutting digits off instead of rounding makes results smaller, by 0.72 units each time, 2.2 for three
in a row; no rounding in use makes them larger. Approximations of exp and the reciprocal root may
lean by several units of float32.
"""
_CHOICE_FLOOR: Final = 8.0
"""Units of float32 that softmax may move one score against another."""
BIAS_UNITS: Final = 0.25
_BIAS_SIGMA: Final = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One module of one layer, judged.

    Attributes:
        place: Layer and module.
        rows: Rows that were measured.
        unit: Unit roundoff of the coarser of both sides' types at its site.
        median, largest: Of the local error; None where nothing finite was measured.
        budget: Relative error from which a row is beyond, sharpened where the arbiter allowed.
        derived: The budget that rounding alone gives.
        over: Rows beyond.
        worst_row: Row of the largest local error, None where all are 0.
        first_row: First row beyond, in the comparison's order.
        units_a, units_b: Medians over the rows that the arbiter saw, in units of rounding.
        worst_a, worst_b: Largest of the same.
        limit: Units from which a side is outside; None without the arbiter.
        who: Verdict.
        bias_a, bias_b: Best-fit scale minus 1 against the arbiter, in units of rounding.
        systematic: Whether a side's result is off by a constant factor, too far for its rounding.
        scale: Best-fit scale of A on B's module: A is about scale * B.
        includes: Other modules whose errors are in this one too, because A lacks a site between.
    """

    place: ModulePlace
    rows: int
    unit: float
    median: float | None
    largest: float | None
    budget: float
    derived: float
    over: int
    worst_row: int | None
    first_row: int | None
    units_a: float | None
    units_b: float | None
    worst_a: float | None
    worst_b: float | None
    limit: float | None
    who: Who
    bias_a: float | None
    bias_b: float | None
    systematic: bool
    scale: float | None
    includes: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        """Name of the module."""
        return self.place[1]

    def to_json(self) -> dict[str, Any]:
        """As `comparison.json` lists it."""
        layer, module = self.place
        return {
            "layer": layer,
            "module": module,
            "site": MODULE_BY_NAME[module].site,
            "rows": self.rows,
            "median": self.median,
            "max": self.largest,
            "budget": self.budget,
            "derived_budget": self.derived,
            "unit": self.unit,
            "over": self.over,
            "worst_row": self.worst_row,
            "first_row": self.first_row,
            "units_a": self.units_a,
            "units_b": self.units_b,
            "worst_units_a": self.worst_a,
            "worst_units_b": self.worst_b,
            "limit_units": self.limit,
            "who": self.who,
            "bias_units_a": self.bias_a,
            "bias_units_b": self.bias_b,
            "systematic": self.systematic,
            "scale": self.scale,
            "includes": list(self.includes),
        }


def judge(
    found: Map, *, hidden_size: int, top_k: int, includes: dict[ModulePlace, tuple[str, ...]]
) -> list[Finding]:
    """Judges every module that was measured, in execution order, and marks the rows beyond."""
    places = sorted(found.tallies, key=_execution_key(found.scratch.num_layers))
    findings = []
    for place in places:
        tally = found.tallies[place]
        derived = rounding_budget(
            MODULE_BY_NAME[place[1]], tally.unit, hidden_size=hidden_size, top_k=top_k
        )
        if place[1] == "top_k":
            derived = _CHOICE_FLOOR * tally.unit
        findings.append(_finding(place, tally, found.scratch, derived, includes.get(place, ())))
    return findings


def _execution_key(num_layers: int) -> Any:
    def key(place: ModulePlace) -> tuple[int, int]:
        layer, name = place
        at = -1 if name == "embedding" else num_layers if layer is None else layer
        return at, EXECUTION_ORDER[name]

    return key


def _finding(
    place: ModulePlace,
    tally: Tally,
    scratch: Scratch,
    derived: float,
    includes: tuple[str, ...],
) -> Finding:
    layer, name = place
    local_T = scratch.values(name, "local", layer)
    a_T, b_T = (scratch.values(name, f"units_{side}", layer) for side in "ab")
    biases = tuple(_bias(side.value, tally.unit) for side in (tally.a, tally.b))
    leans = _leaning(biases, tally)
    outside = _Outside(
        local_T,
        a_T,
        b_T,
        # The better side says what can be had only where it is held in the same type.
        floor=_floor(name, tally.unit) if tally.alike else derived / tally.unit / SHARPEN,
        leans=leans,
    )
    budget = (
        derived
        if outside.limit is None
        else min(derived, (outside.limit + outside.limit / SHARPEN) * tally.unit)
    )
    over_T = outside.rows | (np.isnan(a_T) & (local_T > budget))
    over_T &= local_T > 0
    scratch.mark_over(name, layer, over_T)
    measured_T = ~np.isnan(local_T)
    positive = bool((local_T > 0).any())
    return Finding(
        place=place,
        rows=int(measured_T.sum()),
        unit=tally.unit,
        median=_median(local_T),
        largest=_largest(local_T),
        budget=budget,
        derived=derived,
        over=int(over_T.sum()),
        worst_row=int(np.nanargmax(local_T)) if positive else None,
        first_row=int(np.argmax(over_T)) if over_T.any() else None,
        units_a=_median(a_T),
        units_b=_median(b_T),
        worst_a=_largest(a_T),
        worst_b=_largest(b_T),
        limit=outside.limit,
        who=outside.who(over_T),
        bias_a=biases[0],
        bias_b=biases[1],
        systematic=leans != (0.0, 0.0),
        scale=tally.local.value,
        includes=includes,
    )


def _leaning(biases: tuple[float | None, ...], tally: Tally) -> tuple[float, float]:
    """How far each side leans one way, in units, where that is no rounding; 0 where it is.

    A factor on the result shows over many rows long before it shows in one.
    """
    if not tally.alike or None in biases:
        return 0.0, 0.0
    a, b = (bias or 0.0 for bias in biases)
    found = []
    for own, other in ((a, b), (b, a)):
        least = _FINE_LEAN if tally.unit < _FINE_UNIT else _LARGER if own > 0 else _SMALLER
        found.append(abs(own) if abs(own) > max(least, 3 * abs(other)) else 0.0)
    return found[0], found[1]


def _floor(module: str, unit: float) -> float:
    if module == "top_k":
        return _CHOICE_FLOOR / SHARPEN
    return _COARSE_FLOOR if unit > _FINE_UNIT else _FINE_FLOOR


class _Outside:
    """Which side is outside its budget at which rows, by the arbiter."""

    def __init__(
        self,
        local_T: np.ndarray,
        a_T: np.ndarray,
        b_T: np.ndarray,
        *,
        floor: float,
        leans: tuple[float, float],
    ) -> None:
        seen_T = ~np.isnan(a_T) & ~np.isnan(b_T)
        self.limit: float | None = None
        self.a_T = self.b_T = np.zeros(len(local_T), np.bool_)
        if not seen_T.any():
            return
        base = min(_usual_largest(units[seen_T]) for units in (a_T, b_T))
        base = max(floor, base) if math.isfinite(base) else floor
        self.limit = SHARPEN * base
        with np.errstate(invalid="ignore"):
            # A row that is hard for the better side is hard for the other too.
            limit_T = SHARPEN * np.fmax(base, np.fmin(a_T, b_T))
            self.a_T = seen_T & (local_T > 0) & ((a_T > limit_T) | np.isinf(a_T))
            self.b_T = seen_T & (local_T > 0) & ((b_T > limit_T) | np.isinf(b_T))
            if leans[0]:
                self.a_T |= seen_T & (local_T > 0) & (a_T > leans[0] / 2) & (a_T > b_T)
            if leans[1]:
                self.b_T |= seen_T & (local_T > 0) & (b_T > leans[1] / 2) & (b_T > a_T)

    @property
    def rows(self) -> np.ndarray:
        rows_T: np.ndarray = self.a_T | self.b_T
        return rows_T

    def who(self, over_T: np.ndarray) -> Who:
        if self.limit is None:
            return "unknown" if over_T.any() else "neither"
        a, b = bool(self.a_T.any()), bool(self.b_T.any())
        if a and b:
            # Rows of one side alone say who; a few rows where both stand out do not.
            only_a, only_b = int((self.a_T & ~self.b_T).sum()), int((self.b_T & ~self.a_T).sum())
            if only_a > 10 * only_b:
                return "A"
            return "B" if only_b > 10 * only_a else "both"
        return "A" if a else "B" if b else "unknown" if over_T.any() else "neither"


def _usual_largest(units_T: np.ndarray) -> float:
    usual = float(np.quantile(units_T, _QUANTILE, method="higher"))
    return min(float(units_T.max()), _TAIL * usual)


def is_biased(bias: float | None, rows: int) -> bool:
    """Whether a scale is off by more than unbiased rounding leaves over so many rows.

    Rounding errors of one unit average out over the rows; the elements of a row are not counted,
    so this errs on the side of silence.
    """
    if bias is None or rows == 0:
        return False
    return abs(bias) > max(BIAS_UNITS, _BIAS_SIGMA / math.sqrt(rows))


def _bias(scale: float | None, unit: float) -> float | None:
    return None if scale is None or unit == 0 else (scale - 1.0) / unit


def _median(values_T: np.ndarray) -> float | None:
    values = values_T[np.isfinite(values_T)]
    return float(np.median(values)) if len(values) else None


def _largest(values_T: np.ndarray) -> float | None:
    values = values_T[np.isfinite(values_T)]
    return float(values.max()) if len(values) else None
