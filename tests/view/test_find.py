import numpy as np
import pytest

from tests.view.synthetic import make_source
from workbench.view.find import Text, token_id_of
from workbench.view.model import ViewModel


def rows(texts: list[str], query: str, starts: tuple[int, ...] = (0,)) -> list[int]:
    found: list[int] = Text(texts, np.array(starts)).rows_with(query).tolist()
    return found


def test_a_hit_is_where_it_starts_and_may_span_tokens() -> None:
    assert rows(["The", " quick", " brown", " fox"], "quick brown") == [1]
    assert rows(["a", "b", "a", "b"], "ab") == [0, 2]


def test_case_does_not_matter() -> None:
    assert rows(["The", " THE", " the"], "the") == [0, 1, 2]


def test_two_requests_are_not_read_as_one_text() -> None:
    assert rows(["ab", "cd"], "bc", starts=(0,)) == [0]
    assert rows(["ab", "cd"], "bc", starts=(0, 1)) == []


def test_a_token_with_several_hits_counts_once() -> None:
    assert rows(["aaa", "b"], "a") == [0]


def test_signs_are_signs_and_no_pattern() -> None:
    assert rows(["1+2", "112"], "1+2") == [0]
    assert rows([".", "x"], ".") == [0]


def test_a_letter_that_folds_into_two_moves_no_hit() -> None:
    # "İ".lower() has two characters.
    assert rows(["İİİ", "x", "y"], "y") == [2]


@pytest.mark.parametrize("texts", [[], ["", ""]])
def test_nothing_is_found_in_nothing(texts: list[str]) -> None:
    assert rows(texts, "a") == []


def test_an_empty_query_finds_nothing() -> None:
    assert rows(["a"], "") == []


@pytest.mark.parametrize(
    ("query", "wanted"), [("#17", 17), (" #0 ", 0), ("17", None), ("#x", None)]
)
def test_a_hash_asks_for_a_token_id(query: str, wanted: int | None) -> None:
    assert token_id_of(query) == wanted


def test_n_steps_through_the_hits_until_escape() -> None:
    model = ViewModel(
        make_source(texts=list("abcabcabc") + ["#"] * 3, num_rows=12, flips=((1, 5),))
    )
    model.search("bc")
    assert (model.state.row, model.state.find) == (7, "bc")
    model.act("jump.previous")
    assert model.state.row == 4
    model.act("jump.next")
    model.act("jump.next")
    assert model.state.row == 7
    assert "escape ends the search" in model.state.message
    assert model.is_hit(4)
    assert not model.is_hit(5)
    model.act("back")
    assert model.state.find == "bc"
    model.act("back")
    assert model.state.find == ""
    model.act("jump.previous")
    assert model.state.cell == (1, 5)


def test_what_is_nowhere_is_said() -> None:
    model = ViewModel(make_source(num_rows=30))
    model.search("zebra")
    assert model.state.find == ""
    assert "zebra" in model.state.message


def test_a_token_id_is_found_by_its_number() -> None:
    model = ViewModel(make_source(num_rows=60))
    wanted = int(model.source.rows["token_id"][7])
    hits = model.hits(f"#{wanted}")
    assert 7 in hits
    assert all(model.source.rows["token_id"][int(row)] == wanted for row in hits)
