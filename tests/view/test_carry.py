"""What stays where it was when the recording grows under the cursor."""

from __future__ import annotations

import polars as pl
import pytest

from tests.view.synthetic import make_source
from workbench.view.carry import carried
from workbench.view.model import ViewModel
from workbench.view.state import Cell, ViewState


def rows(*keys: str) -> pl.DataFrame:
    """Rows from texts such as `x0`: a request's letter and a position."""
    return pl.DataFrame({"request": [k[0] for k in keys], "position": [int(k[1:]) for k in keys]})


BEFORE = rows("x0", "x1", "y0")


@pytest.mark.parametrize(
    ("row", "after", "expected"),
    [
        (0, rows("x0", "x1", "y0", "y1"), 0),
        (1, rows("x0", "x1", "y0", "y1"), 1),
        # Rows were inserted above: the cursor stays on its token.
        (1, rows("w0", "x0", "x1", "x2", "y0"), 2),
        # On the last row the cursor follows the end.
        (2, rows("x0", "x1", "x2", "y0", "y1"), 4),
        # Its token is gone: the same row number, inside.
        (1, rows("z0"), 0),
        (1, rows("z0", "z1", "z2"), 1),
        (2, rows(), 0),
    ],
)
def test_the_cursor_keeps_its_token(row: int, after: pl.DataFrame, expected: int) -> None:
    assert carried(ViewState(row=row, layer=3), BEFORE, after).cell == Cell(3, expected)


def test_marks_pin_and_history_move_with_their_tokens() -> None:
    state = ViewState(
        pin=Cell(1, 2), marks=frozenset({Cell(0, 1), Cell(2, 2)}), past=(Cell(0, 0), Cell(1, 1))
    )
    found = carried(state, BEFORE, rows("w0", "x0", "x1", "y0"))
    assert found.pin == Cell(1, 3)
    assert found.marks == {Cell(0, 2), Cell(2, 3)}
    assert found.past == (Cell(0, 1), Cell(1, 2))


def test_a_model_takes_a_longer_one_and_keeps_what_was_chosen() -> None:
    model = ViewModel(make_source(num_rows=60, flips=((2, 14),)))
    model.act("lens.combined")
    model.act("zoom.out")
    model.move_to(Cell(1, 20))
    before = model.state
    assert model.codes().shape == (4, 60)
    assert model.take(ViewModel(make_source(num_rows=90, flips=((2, 14), (3, 70))))) == before
    assert model.state == before
    assert model.codes().shape == (4, 90)
    assert model.num_rows == 90
    model.act("token.last")
    model.take(ViewModel(make_source(num_rows=120)))
    assert model.state.cell == Cell(1, 119)
