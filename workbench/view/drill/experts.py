"""Who takes part in the combined output at one cell, expert by expert, on both sides.

Experts are matched by id. A capture holds the gate of every selected expert and the combined
output, not what each expert made; how much an expert contributes is therefore told by its gate
alone, but at the cells where attribution ran the experts one by one. Nothing is estimated.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from workbench.errors import CaptureError
from workbench.view.inspector import OnSide, RouterFacts, SiteDifference
from workbench.view.local import ModuleError
from workbench.view.source import Source
from workbench.view.state import Cell
from workbench.view.steps import TITLES

if TYPE_CHECKING:
    from workbench.view.model import ViewModel

_OUTPUTS = ("routed_out", "shared_out", "mlp_out")


class ExpertShare(NamedTuple):
    """One expert.

    Attributes:
        expert: Logical id.
        on: Which sides selected it.
        gate_a, gate_b: Gate weights; 0 on a side that did not select it, None where unknown.
        share_a, share_b: Of the side's gate mass; None where unknown.
        logit_a, logit_b: Router scores, known for every expert.
    """

    expert: int
    on: OnSide
    gate_a: float | None
    gate_b: float | None
    share_a: float | None
    share_b: float | None
    logit_a: float | None
    logit_b: float | None

    @property
    def moved(self) -> float | None:
        """Gate of A minus gate of B."""
        if self.gate_a is None or self.gate_b is None:
            return None
        return self.gate_a - self.gate_b


class Output(NamedTuple):
    """One recorded output of the block: its size on both sides, and how far they are apart."""

    title: str
    norm_a: float | None
    norm_b: float | None
    difference: SiteDifference


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertFacts:
    """The block at one cell.

    Attributes:
        problem: Why there is no routing to show, or empty.
        experts: Those that flipped first, then by gate.
        mass_a, mass_b: Sums of the gates.
        mass_moved: Half the summed |gate A - gate B|; None where a gate is unknown.
        outputs: Recorded outputs of the block.
        error: Errors of all routed experts as one module, on A's input; None before attribution.
        router: Both routers.
        contributions: Norm of gate × output by expert, A and B, where attribution computed it for
            this cell; None on a side that did not select the expert. Empty elsewhere.
    """

    problem: str = ""
    experts: tuple[ExpertShare, ...] = ()
    mass_a: float | None = None
    mass_b: float | None = None
    mass_moved: float | None = None
    outputs: tuple[Output, ...] = ()
    error: ModuleError | None = None
    router: RouterFacts | None = None
    contributions: Mapping[int, tuple[float | None, float | None]] = field(default_factory=dict)


def expert_facts(model: ViewModel, cell: Cell) -> ExpertFacts:
    """Everything recorded about the experts of a cell."""
    facts = model.cell_facts(cell)
    found = {site.site: site for site in facts.sites}
    outputs = tuple(
        Output(TITLES[site], *_norms(model, cell, site), found[site])
        for site in _OUTPUTS
        if site in found
    )
    error = next((e for e in facts.errors if e.verdict.module == "routed_experts"), None)
    if facts.router is None:
        reason = "dense layer: no router and no experts" if facts.layer_kind == "dense" else ""
        reason = reason or facts.problem or "routing was not recorded here on both sides"
        return ExpertFacts(problem=reason, outputs=outputs, error=error)
    experts = shares(facts.router)
    return ExpertFacts(
        experts=experts,
        mass_a=_mass(e.gate_a for e in experts),
        mass_b=_mass(e.gate_b for e in experts),
        mass_moved=mass_moved(experts),
        outputs=outputs,
        error=error,
        router=facts.router,
        contributions=contributions(model.source, cell),
    )


def contributions(source: Source, cell: Cell) -> dict[int, tuple[float | None, float | None]]:
    """What attribution found single experts to add at a cell; {} where it did not look."""
    found = (source.summary.get("attribution") or {}).get("contributions") or ()
    for entry in found:
        if (entry["layer"], entry["row"]) == cell:
            return {int(e["expert"]): (e["a"], e["b"]) for e in entry["experts"]}
    return {}


def shares(router: RouterFacts) -> tuple[ExpertShare, ...]:
    """Experts of either side with their gates and shares, flipped ones first, then by gate."""
    gates = [
        (
            row,
            0.0 if row.on == "B" else row.gate_a,
            0.0 if row.on == "A" else row.gate_b,
        )
        for row in router.experts
    ]
    mass_a, mass_b = _mass(a for _, a, _ in gates), _mass(b for _, _, b in gates)
    found = [
        ExpertShare(
            row.expert,
            row.on,
            a,
            b,
            _part(a, mass_a),
            _part(b, mass_b),
            row.logit_a,
            row.logit_b,
        )
        for row, a, b in gates
    ]
    return tuple(sorted(found, key=lambda e: (e.on == "both", -_largest(e))))


def mass_moved(experts: tuple[ExpertShare, ...]) -> float | None:
    """Half the summed |gate A - gate B|: the part of the mass that goes to other experts."""
    moves = [e.moved for e in experts]
    known = [abs(move) for move in moves if move is not None]
    return 0.5 * sum(known) if known and len(known) == len(moves) else None


def _largest(expert: ExpertShare) -> float:
    known = [g for g in (expert.gate_a, expert.gate_b) if g is not None and not math.isnan(g)]
    return max(known, default=0.0)


def _mass(gates: Iterable[float | None]) -> float | None:
    values = list(gates)
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _part(gate: float | None, mass: float | None) -> float | None:
    return None if gate is None or not mass else gate / mass


def _norms(model: ViewModel, cell: Cell, site: str) -> tuple[float | None, float | None]:
    try:
        pair = model.source.numbers(cell.layer, cell.row, site)
    except CaptureError:
        return None, None
    return norm(pair.a), norm(pair.b)


def norm(values_D: np.ndarray | None) -> float | None:
    """Euclidean norm in float64; None without a vector, NaN or Inf where it holds one."""
    return None if values_D is None else float(np.linalg.norm(values_D.astype(np.float64)))
