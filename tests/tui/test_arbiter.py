import pytest

from tests.tui.test_sections import texts
from tests.view.attributed import BUDGET, MODULES, SAME_ORDER, attributed
from tests.view.synthetic import ArraySource, make_source
from tui.arbiter import arbiter, arbiter_line
from workbench.view.model import ViewModel
from workbench.view.state import LensId

CULPRIT = {(1, 7, "routed_experts"): 5.3 * BUDGET}


def section(source: ArraySource, height: int = 30, width: int = 43, lens: LensId = "local") -> str:
    model = ViewModel(source)
    assert model.attribution is not None
    lines = texts(arbiter(model.cell_facts(), model.attribution, lens, width, height))
    assert all(len(line) <= width for line in lines)
    assert len(lines) <= height
    return "\n".join(lines)


def test_every_module_has_its_error_its_units_and_who_is_outside() -> None:
    text = section(attributed(make_source(), CULPRIT, noise=1e-3))
    assert "routed experts   0.021  5.3 ×  0.6 12.2 B" in text
    assert "post-attn norm 1.0e-03  0.3 ×  0.6  0.6" in text
    assert "B (trainer) is wrong" in text


def test_all_modules_are_shown_where_there_is_room() -> None:
    assert section(attributed(make_source(), CULPRIT)).count("equal") == len(MODULES) - 1


@pytest.mark.parametrize("height", [4, 5, 8, 12])
@pytest.mark.parametrize("width", [35, 43])
def test_the_guilty_module_is_never_left_out(height: int, width: int) -> None:
    text = section(attributed(make_source(), CULPRIT, noise=1e-3), height, width)
    assert "routed experts   0.021  5.3 ×" in text
    assert " B" in text


def test_modules_left_out_are_counted() -> None:
    text = section(attributed(make_source(), CULPRIT), height=7)
    shown = text.count("equal") + text.count("5.3 ×")
    assert 0 < shown < len(MODULES)
    assert f"… {len(MODULES) - shown} more modules" in text


def test_rows_that_the_arbiter_did_not_see_show_the_layers_medians() -> None:
    source = attributed(make_source(), CULPRIT)
    for module in MODULES:
        for number in ("units_a", "units_b"):
            source._absent[f"{module}.{number}"][:] = True
    text = section(source)
    assert "medians of the" in text
    assert "0.5  0.5" in text


def test_without_an_arbiter_nobody_is_blamed() -> None:
    text = section(attributed(make_source(), CULPRIT, who="unknown", judged=False))
    assert "no exact copy of the model" in text
    assert " ?" in text


def test_the_combine_order_is_said_where_nobody_is_outside() -> None:
    source = attributed(make_source(flips=((1, 5),)), noise=1e-3, combine=SAME_ORDER)
    words = " ".join(section(source).split())
    assert f"combine order: {SAME_ORDER}" in words
    assert "combine order" not in section(attributed(make_source(), CULPRIT, combine=SAME_ORDER))


def test_inherited_error_takes_the_column_under_its_lens() -> None:
    source = attributed(make_source(), CULPRIT)
    source._columns["attention.inherited"][1, 7] = 0.04
    text = section(source, lens="inherited")
    assert "inherit budget" in text
    assert "attention        0.040 10.0 ×" in text


def test_a_module_that_cannot_be_attributed_says_so() -> None:
    source = attributed(make_source(), CULPRIT)
    source._absent["attention.local"][1, 7] = True
    assert "attention       not attributable here" in section(source)


@pytest.mark.parametrize(
    ("errors", "noise", "words"),
    [
        (CULPRIT, 0.0, "6 outside: routed experts (B)"),
        ({}, 1e-3, "6 modules within budget, at most 0.3 ×"),
        ({}, 0.0, "6 every module equal on the same input"),
    ],
)
def test_folded_it_is_one_line(
    errors: dict[tuple[int, int, str], float], noise: float, words: str
) -> None:
    model = ViewModel(attributed(make_source(flips=((1, 5),)), errors, noise=noise))
    assert texts(arbiter_line(model.cell_facts(), 43)) == [f" {words}"]
