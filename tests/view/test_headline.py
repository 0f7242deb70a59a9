from typing import Any

from tests.view.synthetic import make_source
from workbench.view.headline import headline, verdict_line
from workbench.view.model import ViewModel
from workbench.view.state import Cell


def lines_of(**events: Any) -> tuple[str, str]:
    model = ViewModel(make_source(**events))
    return verdict_line(model).text, headline(model).text


def test_identical_captures_are_a_positive_result() -> None:
    model = ViewModel(make_source(num_rows=50))
    assert headline(model).tone == "good"
    assert headline(model).text.startswith("identical: 0 of 200 cells differ")


def test_a_flip_names_place_experts_margin_and_whether_it_is_explained() -> None:
    text = lines_of(flips=((2, 14),))[1]
    assert text.startswith("first flip: L2 t14 ")
    assert "experts A {" in text
    assert " B {" in text
    assert "margin 1.2e-03" in text
    assert text.endswith("explained")


def test_an_unexplained_flip_leads() -> None:
    text = lines_of(flips=((2, 4),), unexplained=((1, 20),))[1]
    assert text.startswith("first unexplained flip: L1 t20 ")


def test_noise_alone_is_within_rounding() -> None:
    model = ViewModel(make_source(noise=1e-5))
    found = headline(model)
    assert found.tone == "good"
    assert found.text.startswith("within rounding: ")
    assert "none above the rounding budget; " in found.text
    assert " of 240 cells below it; press t for bitwise" in found.text


def test_a_place_without_a_divergence_says_what_is_there_and_how_to_go_on() -> None:
    model = ViewModel(make_source(flips=((2, 14), (1, 30))))
    model.move_to(Cell(0, 20))
    text = headline(model).text
    assert "L0 t20" in text
    assert "no flip here (n: 1 ahead)" in text


def test_nan_is_said_with_its_side() -> None:
    assert "NaN or Inf in A (3)" in lines_of(nans=((1, 4),))[1]


def test_a_logprob_difference_states_its_direction() -> None:
    model = ViewModel(make_source(dlogp={7: 3.0}))
    assert model.state.klass == "logprob"
    assert "dlogp +3.0000 (A − B)" in headline(model).text


def test_the_verdict_names_where_the_error_enters() -> None:
    source = make_source(flips=((2, 14),))
    source.summary["jump"] = {"layer": 1, "site": "mlp_out", "scale": 1.0204, "constant": True}
    text = verdict_line(ViewModel(source)).text
    assert "the error enters at L1 mlp_out, A ≈ 1.02 × B" in text
    assert "KL(A‖B) 1.20e-04 (exact)" in text


def test_what_cannot_be_compared_says_why() -> None:
    source = make_source()
    source.summary |= {"status": "not_comparable", "reason": "other tokens"}
    found = verdict_line(ViewModel(source))
    assert (found.text, found.tone) == ("not comparable: other tokens", "warning")


def test_a_row_that_a_side_never_computed_says_so() -> None:
    source = make_source(num_rows=60, flips=((1, 5),))
    row = source.rows["state_a"].to_list().index("sampled")
    model = ViewModel(source)
    model.move_to(Cell(1, row))
    assert "sampled last, never fed back" in headline(model).text
    assert model.meaning()[1] == "A: sampled last, never fed back"


def test_token_text_cannot_break_the_line() -> None:
    texts = ["\x1b[2J\n"] * 60
    assert "\x1b" not in lines_of(texts=texts, flips=((1, 5),))[1]
