"""The cursor's cell beside the pinned one, metric by metric, A and B of both.

Values that both sides have stand as A and B; what is a difference stands once. Nothing is scaled.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from workbench.errors import CaptureError
from workbench.view.drill.experts import norm
from workbench.view.inspector import CellFacts, SiteDifference
from workbench.view.source import Source
from workbench.view.state import Cell
from workbench.view.walk import Stop, has_vector, settled

if TYPE_CHECKING:
    from workbench.view.model import ViewModel


class Sides(NamedTuple):
    """A value of both sides at both cells."""

    name: str
    here_a: float | None
    here_b: float | None
    pin_a: float | None
    pin_b: float | None


class Difference(NamedTuple):
    """A against B at one site, at both cells; None where the layer does not have the site."""

    site: str
    here: SiteDifference | None
    pin: SiteDifference | None


class Beside(NamedTuple):
    """Two cells.

    Attributes:
        here, pin: Facts of both.
        sides: Log-probability, ranks, entropies, margins, gates, norm at the site in focus.
        differences: Site by site in execution order.
        flips: Experts that flip, here and at the pin; None where routing was not compared.
    """

    here: CellFacts
    pin: CellFacts
    sides: tuple[Sides, ...]
    differences: tuple[Difference, ...]
    flips: tuple[int | None, int | None]


def beside_pin(model: ViewModel, stop: Stop) -> Beside | None:
    """The cell against the pin; None where nothing is pinned."""
    if model.state.pin is None:
        return None
    here, pin = model.cell_facts(stop.cell), model.cell_facts(model.state.pin)
    found = [{site.site: site for site in facts.sites} for facts in (here, pin)]
    names = list(dict.fromkeys((*found[0], *found[1])))
    return Beside(
        here=here,
        pin=pin,
        sides=tuple(_sides(model, stop, model.state.pin, here, pin)),
        differences=tuple(Difference(n, found[0].get(n), found[1].get(n)) for n in names),
        flips=(_flips(here), _flips(pin)),
    )


def _flips(facts: CellFacts) -> int | None:
    return None if facts.router is None else facts.router.num_flips


def _sides(
    model: ViewModel, stop: Stop, pin: Cell, here_facts: CellFacts, pin_facts: CellFacts
) -> list[Sides]:
    columns = zip(_values(model.source, here_facts), _values(model.source, pin_facts), strict=True)
    found = [Sides(name, a, b, pin_a, pin_b) for (name, a, b), (_, pin_a, pin_b) in columns]
    if has_vector(stop.site):
        at_pin = Stop(*pin, settled(stop.site, pin.layer, model.num_layers))
        norms = (*_norms(model.source, stop), *_norms(model.source, at_pin))
        found.append(Sides(f"‖{stop.site}‖", *norms))
    return found


def _values(source: Source, facts: CellFacts) -> list[tuple[str, float | None, float | None]]:
    row = source.rows.row(facts.token.row, named=True)
    router = facts.router
    gates = [(e.gate_a, e.gate_b) for e in router.experts] if router else []
    return [
        ("logprob", facts.logprob.a, facts.logprob.b),
        ("rank", facts.logprob.rank_a, facts.logprob.rank_b),
        ("entropy", row["entropy_a"], row["entropy_b"]),
        (
            "router margin",
            router.margin_a.gap if router else None,
            router.margin_b.gap if router else None,
        ),
        ("largest gate", _largest(a for a, _ in gates), _largest(b for _, b in gates)),
    ]


def _largest(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known, default=None)


def _norms(source: Source, stop: Stop) -> tuple[float | None, float | None]:
    """Norms of both vectors; ids have none."""
    if stop.site == "topk_ids":
        return None, None
    try:
        pair = source.numbers(stop.model_layer, stop.row, stop.site)
    except CaptureError:
        return None, None
    return norm(pair.a), norm(pair.b)
