"""Tables of a cell in words: sides, flips, what is missing and what is not finite."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.view.attributed import attributed
from tests.view.synthetic import make_source
from workbench.report.panels import Panel, panels, profile_heights
from workbench.view.model import ViewModel
from workbench.view.state import Cell


def tables(model: ViewModel, layer: int, row: int) -> dict[str, Panel]:
    """Panels of a cell by id."""
    model.move_to(Cell(layer, row))
    return {panel.id: panel for panel in panels(model)}


def model_of(**events: Any) -> ViewModel:
    """A view-model over invented arrays."""
    return ViewModel(make_source(**events))


def test_every_row_fits_its_head() -> None:
    source = attributed(make_source(flips=((1, 5),), nans=((1, 7),), noise=1e-4))
    model = ViewModel(source)
    for row in (5, 7, 9):
        for panel in tables(model, 1, row).values():
            assert len(panel.sides) == len(panel.head)
            for line in panel.rows:
                assert len(line.cells) in (2, len(panel.head))


def test_what_the_lens_is_about_comes_first() -> None:
    model = ViewModel(attributed(make_source(noise=1e-5), {(2, 9, "attention"): 0.2}))
    assert [panel.id for panel in panels(model)] == ["modules", "experts", "sites", "logprob"]
    model.act("lens.router")
    assert [panel.id for panel in panels(model)] == ["experts", "modules", "sites", "logprob"]


def test_a_flip_is_said_with_what_it_needs() -> None:
    found = tables(model_of(unexplained=((2, 3),)), 2, 3)["experts"]
    assert found.notes[-1] == ("UNEXPLAINED flip: needs 0.310, inputs can move 0.030", "strong")
    assert found.head[1:4] == found.head[4:7]
    assert found.sides == ("", "A", "A", "A", "B", "B", "B")


def test_equal_sites_have_words_and_different_ones_numbers() -> None:
    model = model_of(jumps={(1, 4): 0.25})
    rows = {line.cells[0]: line for line in tables(model, 1, 4)["sites"].rows}
    assert rows["input"].cells == ("input", "equal bit for bit")
    assert rows["mlp_out"].cells == ("mlp_out", "0.500", "0.250", "0.96875", "128")


def test_what_a_side_did_not_compute_is_never_equal() -> None:
    model = model_of()
    last = model.request_rows(0)[1] - 1
    found = tables(model, 0, last)
    assert "not recorded" in found["experts"].notes[0][0]
    words = {line.cells[1] for line in found["sites"].rows}
    assert words == {"A: sampled last, never fed back"}


def test_the_first_token_has_no_log_probability() -> None:
    found = tables(model_of(), 0, 0)["logprob"]
    assert found.rows == ()
    assert found.notes == (("not scored on either side", "muted"),)


def test_dlogp_is_a_minus_b() -> None:
    (row,) = tables(model_of(dlogp={3: 0.5}), 0, 3)["logprob"].rows
    assert float(row.cells[4]) == pytest.approx(0.5)
    assert float(row.cells[0]) - float(row.cells[2]) == pytest.approx(0.5, abs=2e-4)


def test_modules_say_who_is_wrong_only_when_an_arbiter_saw_it() -> None:
    errors = {(1, 4, "attention"): 0.2}
    judged = tables(ViewModel(attributed(make_source(), errors, who="A")), 1, 4)["modules"]
    assert "A (rollout) is wrong" in judged.notes[0][0]
    alone = tables(ViewModel(attributed(make_source(), errors, judged=False)), 1, 4)["modules"]
    assert alone.notes[-1][0].startswith("no arbiter ran")


@pytest.mark.parametrize(
    ("error", "height"),
    [(0.0, 0), (1e-9, 1), (1e-6, 1), (1e-3, 5), (0.99, 8), (40.0, 8)],
)
def test_heights_of_a_profile_are_on_a_fixed_scale(error: float, height: int) -> None:
    # Eight heights over six decades: 1e-3 is half way up, and half way is the fifth of eight.
    model = model_of(jumps={(2, 6): error} if error else {})
    model.act("lens.combined")
    facts = model.cell_facts(Cell(2, 6))
    assert profile_heights(facts)[2] == height


def test_a_profile_tells_missing_from_not_finite() -> None:
    model = model_of(nans=((1, 6),))
    model.act("lens.combined")
    facts = model.cell_facts(Cell(1, 6))
    assert math.isnan(facts.profile_L[1] or 0)
    assert profile_heights(facts)[1] == 9
    last = model.request_rows(0)[1] - 1
    assert set(profile_heights(model.cell_facts(Cell(1, last)))) == {-1}
