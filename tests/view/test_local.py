import numpy as np
import pytest

from tests.view.attributed import BUDGET, attributed
from tests.view.synthetic import make_source
from workbench.comparison.columns import LOCAL_ERROR
from workbench.view.cell_text import cell_text
from workbench.view.headline import headline, verdict_line
from workbench.view.lenses import lens_codes
from workbench.view.local import attribution
from workbench.view.model import ViewModel
from workbench.view.palette import ABSENT, EQUAL, code_of_level
from workbench.view.state import Cell

CULPRIT = {(1, 7, "routed_experts"): 5.3 * BUDGET}


def test_a_comparison_without_attribution_has_no_findings() -> None:
    assert attribution(make_source()) is None


def test_levels_are_decades_of_the_modules_budget_and_the_worst_module_shows() -> None:
    factors = (0.5, 5, 50, 500, 5000)
    errors = {(1, row, "attention"): BUDGET * factor for row, factor in enumerate(factors)}
    codes = lens_codes(attributed(make_source(), errors), "local")
    assert codes[1, :5].tolist() == [code_of_level(level) for level in (1, 2, 3, 4, 5)]
    assert codes[0, 0] == EQUAL
    assert codes.dtype == np.uint8


def test_a_nan_that_a_module_made_is_the_highest_level_and_a_missing_one_is_absent() -> None:
    source = attributed(make_source(), {(1, 4, "combine"): float("inf")}, unseen=((2, 5),))
    codes = lens_codes(source, "local")
    assert codes[1, 4] == code_of_level(6)
    assert codes[2, 5] == ABSENT


def test_one_module_that_is_not_attributable_leaves_the_others() -> None:
    source = attributed(make_source(), CULPRIT)
    source._columns["attention.local"][1, 7] = np.nan
    assert lens_codes(source, "local")[1, 7] == code_of_level(2)


def test_beyond_is_what_attribution_says_and_not_the_bare_budget() -> None:
    source = attributed(make_source(), {(1, 4, "router"): 20 * BUDGET, (1, 5, "router"): 1e-4})
    source._columns["router.over"][1, 4:6] = (False, True)
    assert lens_codes(source, "local")[1, 4:6].tolist() == [code_of_level(1), code_of_level(2)]


def test_inherited_error_is_coloured_apart_from_local_error() -> None:
    source = attributed(make_source())
    source._columns["attention.inherited"][2, 3] = 5 * BUDGET
    assert lens_codes(source, "inherited")[2, 3] == code_of_level(2)
    assert lens_codes(source, "local")[2, 3] == lens_codes(source, "total")[2, 3] == EQUAL


def test_a_choice_that_differs_with_its_scores_is_no_multiple_of_a_budget() -> None:
    source = attributed(make_source())
    source._columns["top_k.inherited"][2, 3] = 0.5
    assert lens_codes(source, "inherited")[2, 3] == EQUAL


def test_the_key_goes_round_local_inherited_and_total() -> None:
    model = ViewModel(attributed(make_source(flips=((1, 5),))))
    lenses = []
    for _ in range(4):
        model.act("lens.local")
        lenses.append(model.state.lens)
    assert lenses == ["local", "inherited", "total", "local"]
    model.act("lens.router")
    model.act("lens.local")
    assert model.state.lens == "local"


def test_without_attribution_the_key_says_what_it_needs() -> None:
    model = ViewModel(make_source(flips=((1, 5),)))
    before = model.act("lens.local")
    assert model.state.lens == before.lens
    assert model.state.message == ("needs the model: kldive attribute run/comparison --model M")


def test_opens_at_the_first_local_error_and_says_it_in_words() -> None:
    model = ViewModel(attributed(make_source(flips=((3, 2),)), CULPRIT))
    assert (model.state.klass, model.state.cell) == ("local_error", Cell(1, 7))
    assert model.state.lens == "local"
    text = headline(model).text
    assert text.startswith("first local error: L1 t7 ")
    assert text.endswith(
        "routed experts · 0.021 of the output, 5.3 × budget · B wrong by the arbiter"
    )
    verdict = verdict_line(model).text
    assert "the error enters at L1 routed experts, B wrong by the arbiter" in verdict


def test_an_error_within_the_budget_of_rounding_is_told_by_the_arbiters_units() -> None:
    source = attributed(make_source(), CULPRIT)
    for module in source.summary["attribution"]["modules"]:
        module["budget"] = 1.0
    assert "units A 0.6 B 12.2" in headline(ViewModel(source)).text


def test_jumps_step_through_local_errors() -> None:
    errors = {**CULPRIT, (2, 9, "attention"): 0.3, (0, 20, "router"): 0.3}
    model = ViewModel(attributed(make_source(), errors))
    assert model.class_counts()["local_error"] == 3
    model.act("jump.next")
    assert model.state.cell == Cell(2, 9)
    model.act("jump.next")
    assert model.state.cell == Cell(0, 20)
    model.act("jump.previous")
    assert model.state.cell == Cell(2, 9)
    model.act("jump.first")
    assert model.state.cell == Cell(1, 7)


def test_who_is_outside_at_a_row() -> None:
    def outside(who: str, *, judged: bool = True) -> str:
        model = ViewModel(attributed(make_source(), CULPRIT, who=who, judged=judged))
        return next(e.outside for e in model.cell_facts(Cell(1, 7)).errors if e.over)

    assert outside("A") == "A"
    assert outside("B") == "B"
    assert outside("AB") == "AB"
    assert outside("unknown", judged=False) == "?"


@pytest.mark.parametrize(
    ("cell", "meaning"),
    [
        (Cell(1, 7), "up to 10 × budget: routed experts"),
        (Cell(0, 7), "equal bit for bit, every module"),
        (Cell(2, 5), "not attributable: side A has no inputs of this layer here"),
    ],
)
def test_the_level_at_the_cursor_in_words(cell: Cell, meaning: str) -> None:
    model = ViewModel(attributed(make_source(), CULPRIT, unseen=((2, 5),)))
    model.move_to(cell)
    assert model.meaning()[1] == meaning


def test_a_request_that_was_left_out_says_why() -> None:
    source = attributed(make_source(), CULPRIT, unseen=((2, 5),))
    gaps = source.summary["attribution"]["not_attributable"]
    gaps["attention"] = [{"request": "c00", "from_position": 3, "reason": "cached rows"}]
    model = ViewModel(source)
    model.move_to(Cell(2, 5))
    assert model.meaning()[1] == "not attributable: cached rows"
    gaps["requests"] = {"c00": "tokens missing"}
    model = ViewModel(source)
    model.move_to(Cell(2, 5))
    assert model.meaning()[1] == "not attributable: tokens missing"


def test_what_ends_the_model_stands_in_the_last_layer() -> None:
    source = attributed(make_source())
    first = dict(source.summary["attribution"]["modules"][0])
    for module in ("embedding", "final_norm", "lm_head"):
        source.summary["attribution"]["modules"].append({**first, "layer": None, "module": module})
    found = attribution(source)
    assert found is not None
    last = [place for place in found.modules if place[1] in ("embedding", "final_norm", "lm_head")]
    assert last == [(0, "embedding"), (3, "final_norm"), (3, "lm_head")]


def test_total_error_does_not_blame_a_layer_that_attribution_clears() -> None:
    source = attributed(make_source(flips=((2, 14),)))
    source.summary["jump"] = {"layer": 1, "site": "mlp_out", "scale": 1.02, "constant": True}
    text = verdict_line(ViewModel(source)).text
    assert "total error grows at L1 mlp_out, no module is beyond its budget" in text


def test_choosing_the_class_without_attribution_says_what_it_needs() -> None:
    model = ViewModel(make_source(flips=((1, 5),)))
    model.choose_class("local_error")
    assert model.state.message.startswith("no local error known: needs the model: kldive")
    model = ViewModel(attributed(make_source(flips=((1, 5),))))
    model.choose_class("local_error")
    assert model.state.message == "no local error in this comparison"


def test_the_copied_text_lists_the_modules() -> None:
    text = cell_text(ViewModel(attributed(make_source(), CULPRIT)))
    assert "routed experts: local 0.0212 (5.3 × budget)" in text
    assert "outside: B" in text


def test_the_invented_attribution_marks_what_the_real_one_marks() -> None:
    source = attributed(make_source(), CULPRIT)
    assert np.argwhere(source.column(LOCAL_ERROR)).tolist() == [[1, 7]]
