"""Pictures: well-formed, nothing pooled away, nothing unescaped, small."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.view.synthetic import make_source
from workbench.report.svg import overview_svg, window_svg
from workbench.view.model import ViewModel
from workbench.view.palette import EQUAL, LOOKS
from workbench.view.state import Cell

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "<script>alert(1)</script>&\"'"


def model_of(**events: Any) -> ViewModel:
    """A view-model over invented arrays."""
    return ViewModel(make_source(**events))


def drawn(picture: str) -> dict[str, list[tuple[int, int, int]]]:
    """Colour to (start, line, length) of each run of cells in the first grid of a picture."""
    grid = ET.fromstring(picture).find(f".//{SVG}g[@shape-rendering]")
    assert grid is not None
    return {
        path.attrib["stroke"]: [
            (int(a), int(b), int(c))
            for a, b, c in re.findall(r"M(\d+) (\d+)h(\d+)", path.attrib["d"])
        ]
        for path in grid
    }


def test_one_bad_cell_of_many_is_in_the_overview() -> None:
    picture = overview_svg(model_of(num_layers=64, num_rows=9000, unexplained=((17, 4321),)))
    runs = drawn(picture)[LOOKS[EQUAL + 5].fill]
    # Two layers in a line, 300 columns over 9,000 rows.
    assert runs == [(4321 * 300 // 9000, 17 // 2, 1)]


def test_the_window_draws_the_codes_of_its_cells() -> None:
    model = model_of(flips=((1, 5), (3, 9)), num_rows=40)
    runs = drawn(window_svg(model, (1, 4, 4, 12)))
    assert runs[LOOKS[EQUAL + 3].fill] == [(1, 0, 1), (5, 2, 1)]


@given(st.integers(0, 40), st.integers(1, 400))
def test_any_window_is_a_picture(first: int, count: int) -> None:
    model = model_of(num_rows=400, flips=((1, 5),))
    stop = min(400, first + count)
    ET.fromstring(window_svg(model, (0, 4, first, stop)))


@pytest.mark.parametrize("text", [HOSTILE, "\x1b[31m", "\u202eabc", "\x00", "]]>"])
def test_token_texts_cannot_break_out(text: str) -> None:
    model = model_of(texts=[text] * 60, flips=((1, 5),))
    for picture in (overview_svg(model), window_svg(model)):
        ET.fromstring(picture)
        assert "<script" not in picture
        assert "\x1b" not in picture


def test_cursor_pin_and_bookmarks_are_marked() -> None:
    model = model_of(flips=((1, 5),))
    model.state = replace(model.state, pin=Cell(2, 7), marks=frozenset({Cell(0, 8)}))
    titles = [node.text for node in ET.fromstring(window_svg(model)).iter(f"{SVG}title")]
    assert titles[1:] == ["bookmark", "pin", f"cursor: {model.address()}"]
    overview = overview_svg(model)
    assert "pin: t7" in overview
    assert "first flip: t5" in overview


def test_the_worst_case_stays_small() -> None:
    model = model_of(num_layers=96, num_rows=4096, noise=0.01)
    model.act("lens.combined")
    assert len(overview_svg(model)) <= 140_000
    assert len(window_svg(model, (0, 96, 0, 4096))) <= 700_000


def test_a_comparison_without_rows_has_a_picture() -> None:
    model = model_of(num_rows=0)
    ET.fromstring(overview_svg(model))


def test_pooled_columns_of_a_window_show_their_worst() -> None:
    model = model_of(num_rows=4000, flips=((2, 1001),))
    runs = drawn(window_svg(model, (0, 4, 0, 4000)))
    step = int(np.ceil(np.log2(4000 / 128)))
    assert runs[LOOKS[EQUAL + 3].fill] == [(1001 >> step, 2, 1)]
