"""Axis legend: B row of the batch, S column of the call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from workbench.capture.trainer.calls import Call, Segment, find_segments
from workbench.errors import RecordingError


def call(
    shape: tuple[int, int],
    *,
    mask: list[list[int]] | None = None,
    positions: list[list[int]] | None = None,
    boundaries: list[int] | None = None,
    num_cached: int = 0,
) -> Call:
    return Call(
        input_ids_BS=np.zeros(shape, np.int64),
        attention_mask=None if mask is None else np.array(mask),
        position_ids_BS=None if positions is None else np.array(positions),
        boundaries=None if boundaries is None else np.array(boundaries),
        num_cached=num_cached,
    )


def plain(segments: list[Segment]) -> list[tuple[int, list[int], int, int]]:
    return [(s.batch_row, s.columns.tolist(), s.first_position, s.shift) for s in segments]


def test_without_mask_and_positions_a_row_is_a_sequence() -> None:
    assert plain(find_segments(call((2, 3)))) == [(0, [0, 1, 2], 0, 0), (1, [0, 1, 2], 0, 0)]


def test_padding_on_either_side_is_left_out() -> None:
    found = find_segments(call((2, 4), mask=[[0, 0, 1, 1], [1, 1, 1, 0]]))
    assert plain(found) == [(0, [2, 3], 0, 2), (1, [0, 1, 2], 0, 0)]


def test_a_row_of_nothing_but_padding_is_no_sequence() -> None:
    assert plain(find_segments(call((2, 2), mask=[[0, 0], [1, 1]]))) == [(1, [0, 1], 0, 0)]


def test_positions_that_start_again_part_packed_sequences() -> None:
    found = find_segments(call((1, 6), positions=[[0, 1, 2, 0, 0, 1]]))
    assert plain(found) == [(0, [0, 1, 2], 0, 0), (0, [3], 0, 0), (0, [4, 5], 0, 0)]


def test_cumulative_lengths_part_packed_sequences() -> None:
    found = find_segments(call((1, 5), boundaries=[0, 2, 5]))
    assert plain(found) == [(0, [0, 1], 0, 0), (0, [2, 3, 4], 0, 2)]


def test_a_mask_that_numbers_sequences_parts_them() -> None:
    found = find_segments(call((1, 5), mask=[[1, 1, 2, 2, 0]]))
    assert plain(found) == [(0, [0, 1], 0, 0), (0, [2, 3], 0, 2)]


def test_positions_that_count_padding_are_a_shift_not_another_place() -> None:
    found = find_segments(call((1, 4), mask=[[0, 0, 1, 1]], positions=[[0, 1, 2, 3]]))
    assert plain(found) == [(0, [2, 3], 0, 2)]


def test_a_call_that_continues_a_cache_goes_on_from_its_real_tokens() -> None:
    found = find_segments(
        call((2, 1), mask=[[0, 1, 1, 1], [1, 1, 1, 1]], positions=[[2], [3]], num_cached=3)
    )
    assert plain(found) == [(0, [0], 2, 0), (1, [0], 3, 0)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shape": (1, 3), "positions": [[0, 1, 5]]}, "position 5 after 1"),
        ({"shape": (1, 3), "mask": [[1, 1]]}, r"shape \[1, 2\]"),
        ({"shape": (1, 1), "mask": [[1]], "num_cached": 4}, r"shape \[1, 5\]"),
        ({"shape": (2, 3), "positions": [[0, 1]]}, r"shape \[1, 2\]"),
        ({"shape": (1, 2), "positions": [[0, 0]], "num_cached": 4}, "continues a cache"),
    ],
)
def test_what_does_not_fit_together_is_an_error(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(RecordingError, match=message):
        find_segments(call(**arguments))
