import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from workbench.view.palette import NUM_CODES
from workbench.view.tiles import (
    Pyramid,
    column_of,
    column_starts,
    halve_rows,
    pool_layers,
    pool_to_width,
)

GRIDS = arrays(
    np.uint8,
    array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=40),
    elements=st.integers(0, NUM_CODES - 1),
)


@given(GRIDS, st.integers(1, 50))
def test_pooling_to_a_width_keeps_the_largest_code_of_every_cell_beneath(
    grid: np.ndarray, width: int
) -> None:
    pooled = pool_to_width(grid, width)
    starts = column_starts(grid.shape[1], width)
    assert pooled.shape == (grid.shape[0], min(width, grid.shape[1]))
    stops = [*starts[1:], grid.shape[1]]
    for column, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        assert np.array_equal(pooled[:, column], grid[:, start:stop].max(axis=1))


@given(GRIDS, st.integers(0, 6))
def test_every_step_of_the_pyramid_keeps_the_largest_code(grid: np.ndarray, step: int) -> None:
    pooled = Pyramid(grid).at(step)
    for column in range(pooled.shape[1]):
        beneath = grid[:, column << step : (column + 1) << step]
        assert np.array_equal(pooled[:, column], beneath.max(axis=1))
    assert pooled.shape[1] == -(-grid.shape[1] // (1 << step))


@given(GRIDS, st.integers(1, 9))
def test_pooling_layers_keeps_the_largest_code(grid: np.ndarray, group: int) -> None:
    pooled = pool_layers(grid, group)
    for place in range(pooled.shape[0]):
        beneath = grid[place * group : (place + 1) * group]
        assert np.array_equal(pooled[place], beneath.max(axis=0))


@given(st.integers(1, 5000), st.integers(1, 300))
def test_a_row_lies_in_the_column_that_covers_it(num_rows: int, width: int) -> None:
    starts = column_starts(num_rows, width)
    for row in {0, num_rows // 2, num_rows - 1}:
        column = column_of(row, num_rows, width)
        assert starts[column] <= row
        assert column + 1 == len(starts) or row < starts[column + 1]


def test_one_bad_cell_in_three_million_survives() -> None:
    grid = np.ones((96, 32_768), np.uint8)
    grid[57, 20_001] = 7
    assert pool_to_width(grid, 180).max() == 7
    assert Pyramid(grid).at(8)[57].max() == 7


def test_an_odd_last_column_stands_alone() -> None:
    assert halve_rows(np.array([[1, 2, 3]], np.uint8)).tolist() == [[2, 3]]


def test_no_rows_pool_to_no_columns() -> None:
    assert pool_to_width(np.zeros((4, 0), np.uint8), 10).shape == (4, 0)
    assert Pyramid(np.zeros((4, 0), np.uint8)).at(3).shape == (4, 0)


def test_codes_must_be_bytes() -> None:
    with pytest.raises(TypeError, match="2-D uint8"):
        Pyramid(np.zeros((2, 2), np.float32))
