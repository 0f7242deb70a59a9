from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from workbench.view.jumps import JumpIndex, count_between, rows_by_layer
from workbench.view.state import Cell, Order

MASKS = arrays(np.bool_, array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=12))
ORDERS = st.sampled_from(get_args(Order))


def key(cell: Cell, order: str) -> tuple[int, int]:
    return (cell.row, cell.layer) if order == "token" else (cell.layer, cell.row)


def scan(mask: np.ndarray, order: str) -> list[Cell]:
    """Every cell of the mask in scan order, the slow way."""
    cells = [Cell(int(layer), int(row)) for layer, row in np.argwhere(mask)]
    return sorted(cells, key=lambda cell: key(cell, order))


@given(MASKS, ORDERS)
def test_next_from_the_first_visits_every_cell_once_in_order(
    mask: np.ndarray, order: Order
) -> None:
    index = JumpIndex(mask, order)
    found, here = [], index.first()
    while here is not None:
        found.append(here)
        here = index.next(here)
    assert found == scan(mask, order)
    assert len(index) == len(found)


@given(MASKS, ORDERS, st.data())
def test_next_and_previous_from_anywhere(
    mask: np.ndarray, order: Order, data: st.DataObject
) -> None:
    layer = data.draw(st.integers(0, mask.shape[0] - 1))
    row = data.draw(st.integers(0, mask.shape[1] - 1))
    here = Cell(layer, row)
    cells = scan(mask, order)
    index = JumpIndex(mask, order)
    assert index.next(here) == next((c for c in cells if key(c, order) > key(here, order)), None)
    assert index.previous(here) == next(
        (c for c in reversed(cells) if key(c, order) < key(here, order)), None
    )
    assert index.place(here) == (
        sum(key(c, order) < key(here, order) for c in cells),
        here in cells,
    )


def test_token_order_reads_all_layers_of_a_row_first() -> None:
    mask = np.zeros((2, 3), np.bool_)
    mask[1, 0] = mask[0, 1] = True
    assert JumpIndex(mask, "token").first() == Cell(1, 0)
    assert JumpIndex(mask, "layer").first() == Cell(0, 1)


def test_an_empty_class_has_no_cell() -> None:
    index = JumpIndex(np.zeros((2, 3), np.bool_))
    assert index.first() is None
    assert index.next(Cell(0, 0)) is None
    assert index.previous(Cell(1, 2)) is None
    assert index.place(Cell(0, 0)) == (0, False)


@pytest.mark.parametrize(
    ("start", "stop", "expected"), [(0, 5, 3), (1, 3, 1), (4, 5, 1), (2, 2, 0)]
)
def test_counting_a_window_of_a_layer(start: int, stop: int, expected: int) -> None:
    rows = rows_by_layer(np.array([[True, False, True, False, True]]))
    assert count_between(rows[0], start, stop) == expected
