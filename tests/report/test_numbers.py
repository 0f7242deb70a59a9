"""How numbers, tokens and places are written."""

from __future__ import annotations

import math

import pytest

from workbench.report.numbers import escaped, number, place, share


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0"),
        (-0.0, "0"),
        (1.0, "1"),
        (-12.5, "-12.5"),
        (0.99999, "1"),
        (0.000123456, "0.000123"),
        (0.0000999, "9.99e-05"),
        (999999.0, "1000000"),
        (1e6, "1e+06"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
    ],
)
def test_a_number_has_three_significant_digits_and_zero_is_told_from_missing(
    value: float | None, text: str
) -> None:
    assert number(value) == text


def test_a_share_of_nothing_has_no_percentage() -> None:
    assert share(0, 0) == "0 of 0"


def test_invisible_characters_are_written_out_and_letters_stay() -> None:
    assert escaped("é 漢\t\r\x1b[31m\u202e") == "é 漢\\t\\r\\x1b[31m\\u202e"


def test_a_place_without_layer_starts_with_its_site() -> None:
    entry = {"layer": None, "site": "logprobs", "request": "a", "position": 3}
    assert place(entry) == "logprobs · a p3"
