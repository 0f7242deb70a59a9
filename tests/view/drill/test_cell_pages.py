"""Experts, a token down the layers, a layer across its tokens, and the pin, as plain values."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.view.attributed import BUDGET, attributed
from tests.view.synthetic import make_source
from workbench.address import parse_address
from workbench.errors import CaptureError
from workbench.names import LOGPROBS
from workbench.view.drill.across import Across, order_by_size
from workbench.view.drill.beside import beside_pin
from workbench.view.drill.experts import expert_facts, mass_moved, shares
from workbench.view.drill.flips import Flip
from workbench.view.drill.trace import LayerLine, ModelLine, in_budgets, trace
from workbench.view.inspector import ExpertRow, Margin, OnSide, RouterFacts
from workbench.view.model import ViewModel
from workbench.view.state import Cell
from workbench.view.walk import Stop

FLIPS = ((1, 5), (3, 2))


def model_of(at: str = "L1 t5", **events: object) -> ViewModel:
    return ViewModel(make_source(**events), at=parse_address(at))  # type: ignore[arg-type]


def row(expert: int, on: OnSide, gate_a: float | None, gate_b: float | None) -> ExpertRow:
    return ExpertRow(
        expert=expert,
        on=on,
        rank_a=None,
        rank_b=None,
        gate_a=gate_a,
        gate_b=gate_b,
        logit_a=None,
        logit_b=None,
    )


def router(*rows: ExpertRow) -> RouterFacts:
    nothing = Margin(gap=None, ulps=math.nan)
    return RouterFacts(
        experts=rows,
        num_flips=1,
        same_order=False,
        margin_a=nothing,
        margin_b=nothing,
        explained=None,
        needed=None,
        bound=None,
    )


def test_gates_are_shares_of_their_sides_mass() -> None:
    found = shares(router(row(2, "both", 1.5, 1.0), row(5, "A", 0.5, None), row(7, "B", None, 1.0)))
    assert [(e.expert, e.share_a, e.share_b) for e in found] == [
        (7, 0.0, 0.5),
        (5, 0.25, 0.0),
        (2, 0.75, 0.5),
    ]
    assert [e.moved for e in found] == [-1.0, 0.5, 0.5]
    assert mass_moved(found) == 1.0


def test_an_unknown_gate_leaves_the_mass_unknown() -> None:
    found = shares(router(row(2, "both", None, 1.0), row(5, "both", 0.5, 0.5)))
    assert mass_moved(found) is None
    assert found[0].share_a is None
    assert mass_moved(()) is None


def test_experts_of_a_flip_agree_with_the_inspector() -> None:
    facts = expert_facts(model_of(flips=FLIPS), Cell(1, 5))
    assert {e.on for e in facts.experts} == {"both", "A", "B"}
    assert facts.router is not None
    assert facts.mass_a == pytest.approx(1.0)
    assert facts.mass_moved is not None
    assert facts.mass_moved > 0


def test_the_experts_as_one_module_are_there_after_attribution() -> None:
    culprit = {(1, 5, "routed_experts"): 3 * BUDGET}
    source = attributed(make_source(flips=FLIPS), culprit)
    error = expert_facts(ViewModel(source), Cell(1, 5)).error
    assert error is not None
    assert error.over
    assert expert_facts(model_of(flips=FLIPS), Cell(1, 5)).error is None


def test_what_each_expert_adds_is_there_where_attribution_looked() -> None:
    source = attributed(make_source(flips=FLIPS))
    sizes = [{"expert": 3, "a": 1.5, "b": None}, {"expert": 6, "a": None, "b": 1.75}]
    source.summary["attribution"]["contributions"] = [{"layer": 1, "row": 5, "experts": sizes}]
    model = ViewModel(source)
    assert expert_facts(model, Cell(1, 5)).contributions == {3: (1.5, None), 6: (None, 1.75)}
    assert expert_facts(model, Cell(1, 6)).contributions == {}
    assert expert_facts(model_of(flips=FLIPS), Cell(1, 5)).contributions == {}


def test_a_dense_layer_has_no_experts() -> None:
    model = model_of()
    model.source.summary["a"]["model"]["layer_kinds"][1] = "dense"
    columns = model.source._absent  # type: ignore[attr-defined]
    columns["topk.set_equal"] = np.ones((4, 60), np.bool_)
    assert "dense layer" in expert_facts(ViewModel(model.source), Cell(1, 5)).problem


def test_a_flip_is_short_or_counted() -> None:
    flip = Flip(1, (12,), (7,), True)
    assert (flip.short(8), flip.word) == ("12→7", "explained")
    many = Flip(3, (1, 22, 33), (4, 55, 66), False)
    assert (many.short(8), many.word) == ("3 flips", "UNEXPLAINED")
    assert many.short(20) == "1,22,33→4,55,66"
    assert (Flip(1).short(8), Flip(1).word) == ("1 flip", "not judged")
    assert (Flip(0).short(8), Flip(0).word) == ("·", "")


def test_a_token_down_the_layers_has_one_line_per_layer() -> None:
    model = model_of(flips=FLIPS, noise=1e-3)
    lines = trace(model, 5)
    layers = [line for line in lines if isinstance(line, LayerLine)]
    assert [line.layer for line in layers] == [0, 1, 2, 3]
    assert [line.flip is not None and line.flip.num for line in layers] == [0, 1, 0, 0]
    budget = model.source.budgets().layer["mlp_out"][1]
    assert layers[1].combined == pytest.approx(0.2 / budget)
    assert layers[1].residual_l2 == pytest.approx(0.2)
    assert layers[1].code == model.codes()[1, 5]
    last = lines[-1]
    assert isinstance(last, ModelLine)
    assert last.stop == Stop(3, 5, LOGPROBS)


def test_the_worst_module_of_each_layer_is_named() -> None:
    culprit = {(1, 7, "attention"): 2.5 * BUDGET, (1, 7, "router"): 1.5 * BUDGET}
    model = ViewModel(attributed(make_source(), culprit))
    layers = [line for line in trace(model, 7) if isinstance(line, LayerLine)]
    assert (layers[1].worst, layers[1].outside) == ("attention", "B")
    assert layers[1].local == pytest.approx(2.5)
    assert (layers[0].worst, layers[0].local) == ("", 0.0)


def test_a_row_without_numbers_stays_without_them() -> None:
    source = make_source()
    row_ = source.rows["state_a"].to_list().index("sampled")
    layers = [x for x in trace(ViewModel(source), row_) if isinstance(x, LayerLine)]
    assert {(x.flip, x.gates, x.combined, x.residual) for x in layers} == {(None,) * 4}


def test_a_budget_of_zero_makes_any_difference_infinite() -> None:
    assert in_budgets(None, 1.0) is None
    assert in_budgets(0.0, 0.0) == 0.0
    assert in_budgets(1e-9, 0.0) == math.inf
    assert in_budgets(0.5, 0.25) == 2.0


def test_an_empty_comparison_has_no_way() -> None:
    assert trace(ViewModel(make_source(num_rows=0)), 0) == []


def test_tokens_stand_in_order_or_by_size() -> None:
    model = model_of(flips=FLIPS, jumps={(1, 9): 0.7, (1, 3): 0.4}, nans=((1, 20),))
    across = Across(model, 1, "mlp_out")
    assert [across.row_at(place) for place in range(3)] == [0, 1, 2]
    across.sort_by("size")
    # What is NaN on a side is first, what was never computed last.
    assert [across.row_at(place) for place in range(4)] == [20, 9, 3, 5]
    assert across.place_of(3) == 2
    absent = across.line(len(across) - 1)
    assert absent.absent == "sampled"
    first = across.line(0)
    assert first.size is not None
    assert math.isnan(first.size)
    across.sort_by("row")
    assert across.place_of(9) == 9


def test_a_line_across_agrees_with_the_cell() -> None:
    model = model_of(flips=FLIPS, noise=1e-3)
    line = Across(model, 1, "mlp_out").line(5)
    assert line.flip is not None
    assert line.flip.explained
    assert line.size == pytest.approx(0.2)
    assert line.text == model.text(5)
    assert line.dlogp == model.source.rows["dlogp"][5]


def test_a_site_without_a_size_is_ranked_by_the_combined_output() -> None:
    assert Across(model_of(), 1, "topk_ids").site == "mlp_out"
    assert Across(model_of(), 1, "attn_out").site == "attn_out"


def test_ties_and_missing_sizes_keep_their_order() -> None:
    size = np.array([0.5, math.inf, 0.5, math.nan, 9.0], np.float32)
    missing = np.array([False, False, False, True, True])
    assert order_by_size(size, missing).tolist() == [1, 0, 2, 3, 4]
    assert order_by_size(np.zeros(0, np.float32), np.zeros(0, np.bool_)).tolist() == []


def test_the_pin_stands_beside_the_cell() -> None:
    model = model_of(flips=FLIPS)
    assert beside_pin(model, Stop(1, 5, "mlp_out")) is None
    model.act("pin.set")
    model.move_to(Cell(2, 6))
    found = beside_pin(model, Stop(2, 6, "mlp_out"))
    assert found is not None
    assert (found.here.address, found.pin.address) == ("L2 t6", "L1 t5")
    assert found.flips == (0, 1)
    logprob = found.sides[0]
    rows = model.source.rows
    assert (logprob.here_a, logprob.here_b) == (rows["logprob_a"][6], rows["logprob_b"][6])
    assert (logprob.pin_a, logprob.pin_b) == (rows["logprob_a"][5], rows["logprob_b"][5])
    by_site = {d.site: d for d in found.differences}
    assert by_site["mlp_out"].here is not None
    assert by_site["mlp_out"].here.bit_equal
    assert by_site["mlp_out"].pin is not None
    assert by_site["mlp_out"].pin.rel_l2 == pytest.approx(0.2)


def test_a_moved_capture_leaves_what_needs_no_vectors() -> None:
    source = make_source(flips=FLIPS)

    def moved(layer: int | None, row: int, site: str) -> object:
        raise CaptureError("the capture of side A is not where it was compared")

    source.cell = moved  # type: ignore[method-assign,assignment]
    model = ViewModel(source, at=parse_address("L1 t5"))
    layers = [line for line in trace(model, 5) if isinstance(line, LayerLine)]
    assert layers[1].flip == Flip(1, explained=True)
    assert "not where it was" in expert_facts(model, Cell(1, 5)).problem
    model.act("pin.set")
    assert beside_pin(model, Stop(1, 5, "mlp_out")) is not None
