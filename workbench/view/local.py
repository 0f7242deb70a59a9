"""Local errors: which module of a layer makes something else of the same input, and who is wrong.

Reads `local.arrow` and the summary's `attribution`; both are there only after `kldive attribute`.
The invariant: what could not be attributed is absent, and never shown as equal.

Axes: L layer, T row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from workbench.comparison.columns import LOCAL_SITES
from workbench.comparison.levels import numeric_levels
from workbench.view.palette import ABSENT, EQUAL, code_of_level
from workbench.view.source import Source

Number = Literal["local", "inherited", "total"]
_WITHIN: Final = code_of_level(1)
_BEYOND: Final = code_of_level(2)
_OF_MODEL: Final = ("embedding", "final_norm", "lm_head")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleVerdict:
    """One module of one layer over all of its rows.

    Attributes:
        module: Name.
        rows, over: Rows measured, and those beyond the budget.
        median: Of the local error.
        budget: Relative error from which a row is beyond.
        units_a, units_b: Medians of both sides against the arbiter, in units of rounding.
        limit: Units from which a side is outside.
        who: `neither`, `A`, `B`, `both` or `unknown`.
        scale: Best-fit factor, A is about scale times B; only where a constant explains it.
        includes: Modules whose errors are in this one too.
    """

    module: str
    rows: int
    over: int
    median: float | None
    budget: float
    units_a: float | None
    units_b: float | None
    limit: float | None
    who: str
    scale: float | None
    includes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstError:
    """The first row beyond, and its first module in execution order."""

    layer: int | None
    module: str
    row: int
    who: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """What attribution says of the whole comparison.

    Attributes:
        arbiter: Type of the exact copy, None where there was none.
        who: Which side is outside anywhere.
        modules: Verdicts by line of the table (layer) and module, in execution order.
        first: The first local error.
        combine: On the order in which experts are added up; empty when there is nothing to say.
        proof: `proved`, `suspected`, `none`, or empty when no swap was run.
        skipped: Request to the reason why none of it was attributed.
        attention: Request to its first position without attention, and why.
    """

    arbiter: str | None
    who: str
    modules: Mapping[tuple[int, str], ModuleVerdict]
    first: FirstError | None
    combine: str
    proof: str
    skipped: Mapping[str, str]
    attention: Mapping[str, tuple[int, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleError:
    """One module at one cell.

    Attributes:
        verdict: Of the module over all rows.
        local, inherited, total: Relative errors at this row; None where not attributable.
        units_a, units_b: At this row; None where the arbiter did not see it.
        over: Whether this row is beyond the budget.
    """

    verdict: ModuleVerdict
    local: float | None
    inherited: float | None
    total: float | None
    units_a: float | None
    units_b: float | None
    over: bool

    @property
    def site(self) -> str:
        """The site that the module makes."""
        return LOCAL_SITES[self.verdict.module]

    @property
    def of_budget(self) -> float | None:
        """Local error in units of the module's budget."""
        budget = self.verdict.budget
        return None if self.local is None or not budget > 0 else self.local / budget

    def size(self, number: str) -> float | None:
        """Local, inherited or total error in units of the module's budget, for ranking modules.

        A local error that is beyond for the arbiter's reasons alone ranks above all within.
        """
        budget = self.verdict.budget
        value = {"local": self.local, "inherited": self.inherited, "total": self.total}[number]
        if value is None or not budget > 0 or not _has_budget(self.verdict.module, number):
            return None
        if number == "local":
            return max(value / budget, 1.0) if self.over else min(value / budget, 1.0)
        return value / budget

    @property
    def outside(self) -> str:
        """Sides outside their budget at this row: empty, `A`, `B`, `AB`, or `?` without arbiter."""
        if not self.over:
            return ""
        limit, verdict = self.verdict.limit, self.verdict.who
        units = (("A", self.units_a), ("B", self.units_b))
        sides = [s for s, value in units if limit is not None and value is not None]
        found = "".join(s for s, v in units if s in sides and v is not None and v > (limit or 0))
        return found or {"A": "A", "B": "B", "both": "AB"}.get(verdict, "?")


def attribution(source: Source) -> Attribution | None:
    """The findings on modules, or None when the comparison was not attributed."""
    found = source.summary.get("attribution")
    if not isinstance(found, dict) or not source.has_column("local_error"):
        return None
    last = source.num_layers - 1
    verdicts = {(_line(m, last), str(m["module"])): _verdict(m) for m in found["modules"]}
    gaps, combine = found["not_attributable"], found.get("combine")
    return Attribution(
        arbiter=found["arbiter"]["dtype"],
        who=str(found["arbiter"]["who"]),
        modules=verdicts,
        first=_first(source.summary["first"].get("local_error")),
        combine=str(combine["sentence"] or "") if combine else "",
        proof=str((source.summary.get("proof") or {}).get("state") or ""),
        skipped=gaps["requests"],
        attention={a["request"]: (a["from_position"], a["reason"]) for a in gaps["attention"]},
    )


def _line(found: Mapping[str, Any], last: int) -> int:
    """The table's layer of a module; what stands once in the model is in the first or last."""
    if found["module"] not in _OF_MODEL:
        return int(found["layer"])
    return 0 if found["module"] == "embedding" else last


def _verdict(found: Mapping[str, Any]) -> ModuleVerdict:
    return ModuleVerdict(
        module=str(found["module"]),
        rows=int(found["rows"]),
        over=int(found["over"]),
        median=found["median"],
        budget=float(found["budget"]),
        units_a=found["units_a"],
        units_b=found["units_b"],
        limit=found["limit_units"],
        who=str(found["who"]),
        scale=found["scale"] if found["systematic"] else None,
        includes=tuple(found["includes"]),
    )


def _first(entry: Mapping[str, Any] | None) -> FirstError | None:
    if entry is None:
        return None
    return FirstError(
        layer=entry["layer"],
        module=str(entry["module"]),
        row=int(entry["row"]),
        who=str(entry["who"]),
    )


def module_errors(source: Source, found: Attribution, layer: int, row: int) -> list[ModuleError]:
    """Every module of a cell in execution order."""
    line = source.local(layer, row)
    return [
        ModuleError(
            verdict=verdict,
            local=line.get(f"{module}.local"),
            inherited=line.get(f"{module}.inherited"),
            total=line.get(f"{module}.total"),
            units_a=line.get(f"{module}.units_a"),
            units_b=line.get(f"{module}.units_b"),
            over=bool(line.get(f"{module}.over")),
        )
        for module in LOCAL_SITES
        if (verdict := found.modules.get((layer, module))) is not None
    ]


def error_codes(source: Source, found: Attribution, number: Number) -> np.ndarray:
    """Codes of the worst module of each layer, uint8 (L, T), in units of its budget.

    Levels as in the other numeric lenses. Absent where no module of the layer was attributed. A
    local error is beyond exactly where attribution says so: a row that is hard for both sides
    may pass the module's budget with neither side at fault.
    """
    codes_LT = np.full((source.num_layers, source.num_rows), ABSENT, np.uint8)
    for module in LOCAL_SITES:
        name = f"{module}.{number}"
        if not source.has_column(name) or not _has_budget(module, number):
            continue
        error_LT = source.column(name)
        over_LT = source.column(f"{module}.over") if number == "local" else None
        for layer in range(source.num_layers):
            verdict = found.modules.get((layer, module))
            if verdict is not None:
                over_T = None if over_LT is None else over_LT[layer]
                codes_T = _codes(error_LT[layer], verdict.budget, over_T)
                np.maximum(codes_LT[layer], codes_T, out=codes_LT[layer])
        # Nine modules' columns at once would be a hundred megabytes for a large comparison.
        source.forget()
    return codes_LT


def _has_budget(module: str, number: str) -> bool:
    """A choice that differs because its scores do is no multiple of a rounding budget."""
    return module != "top_k" or number == "local"


def _codes(error_T: np.ndarray, budget: float, over_T: np.ndarray | None) -> np.ndarray:
    """Codes of one module in one layer; with `over_T`, beyond exactly there."""
    codes_T = numeric_levels(error_T, budget) + np.uint8(EQUAL)
    if over_T is not None:
        free_T = over_T | ~np.isfinite(error_T)
        np.minimum(codes_T, np.maximum(free_T * np.uint8(255), _WITHIN), out=codes_T)
        np.maximum(codes_T, over_T * np.uint8(_BEYOND), out=codes_T)
    # A missing number reads as NaN; a NaN that a module made has the error Inf.
    nan_T = np.isnan(error_T)
    if nan_T.any():
        codes_T[nan_T] = ABSENT
    return codes_T


def why_absent(found: Attribution, request: str, position: int) -> str:
    """Why no module of a cell was attributed."""
    if request in found.skipped:
        return f"not attributable: {found.skipped[request]}"
    if request in found.attention and position >= found.attention[request][0]:
        return f"not attributable: {found.attention[request][1]}"
    return "not attributable: side A has no inputs of this layer here"
