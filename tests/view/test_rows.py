from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from workbench.view.rows import (
    cut,
    cut_sentence,
    escape,
    fit,
    heading_cell,
    quote,
    strip_tokens,
    text_width,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x1b[31m", "\\e[31m"),
        ("\x00\x07", "\\x00\\x07"),
        ("\u200b\u202e", "\\u200b\\u202e"),
        ("é", "é"),
        ("e\u0301", "e\\u0301"),
        ("漢", "漢"),
        ("\u05d0", "\\u05d0"),
        ("\u2028", "\\u2028"),
        ("\u00a0", " "),
        ("\ud800", "\\ud800"),
        ("[bold]x[/]", "[bold]x[/]"),
    ],
)
def test_escaping(text: str, shown: str) -> None:
    assert escape(text) == shown


@given(st.text())
def test_escaped_text_cannot_move_the_cursor(text: str) -> None:
    shown = escape(text)
    assert shown.isprintable()
    assert all(cell_len(character) >= 1 for character in shown)
    assert escape(shown) == shown


@given(st.text(), st.integers(0, 20))
def test_fit_fills_the_width_exactly(text: str, width: int) -> None:
    assert cell_len(fit(escape(text), width)) == width
    assert cell_len(cut(escape(text), width)) <= width


@given(st.text(), st.integers(1, 9))
def test_a_heading_fills_its_cell(text: str, width: int) -> None:
    assert cell_len(heading_cell(text, width)) == width


def test_a_cut_says_so() -> None:
    assert cut("abcdef", 4) == "abc…"
    assert quote("") == "(no text)"
    assert quote("x" * 30, 5) == "'xxxx…'"


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (60, "diverged · the error enters at L2, B wrong · KL 2.62e-05"),
        (53, "diverged · the error enters at L2, B wrong …"),
        (44, "diverged · the error enters at L2, B wrong …"),
        (43, "diverged · the error enters at L2 …"),
        (30, "diverged · the error enters …"),
        (9, "diverged…"),
        (1, "…"),
        (0, ""),
    ],
)
def test_a_sentence_is_cut_at_a_clause_and_never_in_a_number(width: int, shown: str) -> None:
    text = "diverged · the error enters at L2, B wrong · KL 2.62e-05"
    assert cut_sentence(text, width) == shown


@given(st.text(max_size=60), st.integers(0, 60))
def test_a_cut_sentence_fits(text: str, width: int) -> None:
    shown = cut_sentence(text, width)
    assert cell_len(shown) <= width
    assert shown == text or not shown or shown.endswith("…")


def test_spaces_are_visible_in_a_heading() -> None:
    assert heading_cell(" ", 1) == "␣"
    assert heading_cell(" the", 5) == "the  "


@given(
    st.lists(st.text(max_size=6), min_size=1, max_size=40),
    st.integers(4, 60),
    st.data(),
)
def test_the_strip_holds_the_cursor_and_fits(
    texts: list[str], width: int, data: st.DataObject
) -> None:
    row = data.draw(st.integers(0, len(texts) - 1))
    first = data.draw(st.integers(0, row))
    tokens = strip_tokens(texts.__getitem__, row=row, first=first, stop=len(texts), width=width)
    rows = [token.row for token in tokens]
    assert row in rows
    assert rows == list(range(rows[0], rows[-1] + 1))
    assert rows[0] >= first
    assert sum(token.width for token in tokens) <= width
    for token, after in pairwise(tokens):
        assert token.start + token.width == after.start


def test_text_width_covers_most_tokens() -> None:
    assert text_width(["a"] * 9 + ["a very long one"]) == 15
    assert text_width(["a"] * 99 + ["a very long one"]) == 1
    assert text_width([]) == 1
