"""One token down the layers: where it went wrong, a line per layer.

Sizes are in units of the rounding budget of the current tolerance, so that layers can be compared;
what is missing is None.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from workbench.view.drill.flips import Flip, flip_of
from workbench.view.local import module_errors
from workbench.view.modules import short_title
from workbench.view.state import Cell
from workbench.view.stepping import step_text
from workbench.view.walk import AFTER_LAYERS, BEFORE_LAYERS, Stop, stops

if TYPE_CHECKING:
    from workbench.view.model import ViewModel


class LayerLine(NamedTuple):
    """One layer.

    Attributes:
        layer: Index.
        code: What the lens shows there, as the grid does.
        kind: `moe`, `dense` or empty.
        flip: Which experts changed; None where routing was not compared.
        gates: Largest gate difference, matched by expert.
        combined: Relative L2 of the combined output in budgets; `residual` of the stream.
        residual_l2: Relative L2 of the stream itself.
        worst: The module with the largest local error; empty where none was attributed.
        local: Its local error in its budgets.
        outside: Sides that are wrong there: empty, `A`, `B`, `AB` or `?`.
    """

    layer: int
    code: int
    kind: str
    flip: Flip | None
    gates: float | None
    combined: float | None
    residual: float | None
    residual_l2: float | None
    worst: str
    local: float | None
    outside: str


class ModelLine(NamedTuple):
    """A site of the whole model, in words."""

    stop: Stop
    text: str


TraceLine = LayerLine | ModelLine


def trace(model: ViewModel, row: int) -> list[TraceLine]:
    """The whole way of a row, from the embedding to the log-probability of its own token."""
    if not model.num_rows:
        return []
    places = list(stops(model, row))
    of_model = {site: [s for s in places if s.site == site] for site in BEFORE_LAYERS}
    before = [ModelLine(s, step_text(model, s)) for found in of_model.values() for s in found]
    after = [ModelLine(s, step_text(model, s)) for s in places if s.site in AFTER_LAYERS]
    codes_LT = model.codes()
    layers = [
        layer_line(model, Cell(layer, row), int(codes_LT[layer, row]))
        for layer in range(model.num_layers)
    ]
    return [*before, *layers, *after]


def layer_line(model: ViewModel, cell: Cell, code: int) -> LayerLine:
    """One layer of a row."""
    line = model.source.metrics(*cell)
    budgets = model.source.budgets(model.state.tolerance or None).layer
    worst, local, outside = _worst(model, cell)
    return LayerLine(
        layer=cell.layer,
        code=code,
        kind=model.facts.layer_kind(cell.layer),
        flip=flip_of(model.source, cell, line),
        gates=line.get("gates.max_abs"),
        combined=in_budgets(line.get("mlp_out.rel_l2"), float(budgets["mlp_out"][cell.layer])),
        residual=in_budgets(line.get("output.rel_l2"), float(budgets["output"][cell.layer])),
        residual_l2=line.get("output.rel_l2"),
        worst=worst,
        local=local,
        outside=outside,
    )


def in_budgets(value: float | None, budget: float) -> float | None:
    """A difference in units of its budget: Inf where the budget is 0 and there is one."""
    if value is None:
        return None
    if budget > 0:
        return value / budget
    return 0.0 if value == 0 else math.inf


def _worst(model: ViewModel, cell: Cell) -> tuple[str, float | None, str]:
    """The module with the largest local error, that error in budgets, and who is wrong."""
    if model.attribution is None:
        return "", None, ""
    errors = module_errors(model.source, model.attribution, *cell)
    known = [(size, e) for e in errors if (size := e.size("local")) is not None]
    if not known:
        return "", None, ""
    size, worst = max(known, key=lambda pair: pair[0])
    return short_title(worst.verdict.module) if size else "", size, worst.outside
