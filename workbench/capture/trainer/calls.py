"""Which row of a forward call is which token of which sequence. numpy only; knows no module.

The invariant: a row leaves this module only with the position that mask, packing and position ids
agree on. What cannot be told for sure is an error, never a guess.

Axis legend: B row of the batch, S column of the call, P column of the cache before it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from workbench.errors import RecordingError


class Call(NamedTuple):
    """The arguments of one forward call that say what it computes.

    Attributes:
        input_ids_BS: Token ids, int64.
        attention_mask: 2-D mask over the cache and the call, or None for all ones.
        position_ids_BS: 2-D position ids, or None when the model makes its own.
        boundaries: Cumulative sequence lengths of a packed call, or None.
        num_cached: Columns that a cache holds before the call.
    """

    input_ids_BS: np.ndarray
    attention_mask: np.ndarray | None
    position_ids_BS: np.ndarray | None
    boundaries: np.ndarray | None
    num_cached: int


class Segment(NamedTuple):
    """A run of tokens of one sequence within a call.

    Attributes:
        batch_row: Row of the batch.
        columns: Columns of the call, ascending.
        first_position: Position of the first token within its sequence.
        shift: Position id of the first token, given or counted by column as transformers does,
            minus its position. Relative embeddings make a shift rounding alone, others do not.
    """

    batch_row: int
    columns: np.ndarray
    first_position: int
    shift: int


def find_segments(call: Call) -> list[Segment]:
    """The sequences of a call in batch order, padding left out.

    Raises:
        RecordingError: Mask, position ids and cache do not fit together.
    """
    mask_BS, num_before_B = _split_mask(call)
    _check_position_shape(call)
    segments: list[Segment] = []
    for row in range(call.input_ids_BS.shape[0]):
        columns = np.flatnonzero(mask_BS[row])
        if len(columns):
            starts = _starts(call, row, columns, mask_BS[row])
            runs = np.split(columns, starts)
            if call.num_cached and len(runs) > 1:
                raise _unclear(
                    "several sequences in one row that continues a cache", "one sequence per row"
                )
            segments += [_segment(call, row, run, int(num_before_B[row])) for run in runs]
    return segments


def _split_mask(call: Call) -> tuple[np.ndarray, np.ndarray]:
    """The mask of the call's own columns, and how many real tokens the cache holds per row."""
    num_rows, num_columns = call.input_ids_BS.shape
    if call.attention_mask is None:
        ones_BS = np.ones((num_rows, num_columns), np.int64)
        return ones_BS, np.full(num_rows, call.num_cached)
    mask = call.attention_mask
    expected = (num_rows, call.num_cached + num_columns)
    if mask.shape != expected:
        raise _unclear(
            f"an attention mask of shape {list(mask.shape)}",
            f"shape {list(expected)}: one number per token, cached ones first",
            do="pass the 2-D attention_mask; 4-D masks do not say which rows are padding",
        )
    before_BP = mask[:, : call.num_cached]
    return mask[:, call.num_cached :], (before_BP != 0).sum(1)


def _check_position_shape(call: Call) -> None:
    positions = call.position_ids_BS
    if positions is not None and positions.shape != call.input_ids_BS.shape:
        raise _unclear(
            f"position ids of shape {list(positions.shape)}",
            f"shape {list(call.input_ids_BS.shape)}",
        )


def _starts(call: Call, row: int, columns: np.ndarray, mask_S: np.ndarray) -> np.ndarray:
    """Places within `columns` where another sequence begins."""
    breaks = np.zeros(len(columns), bool)
    values = mask_S[columns]
    # Trainers that number the packed sequences in the mask: 1 1 1 2 2.
    breaks[1:] |= values[1:] != values[:-1]
    if call.boundaries is not None:
        place = np.searchsorted(call.boundaries, columns, "right")
        breaks[1:] |= place[1:] != place[:-1]
    if call.position_ids_BS is not None:
        positions = call.position_ids_BS[row, columns]
        steps = np.diff(positions)
        gaps = np.flatnonzero((steps > 1) & ~breaks[1:])
        if len(gaps):
            column = int(columns[gaps[0] + 1])
            raise _unclear(
                f"position {positions[gaps[0] + 1]} after {positions[gaps[0]]} "
                f"at row {row}, column {column}",
                "positions that go up by one, or start again",
            )
        breaks[1:] |= steps != 1
    return np.flatnonzero(breaks)


def _segment(call: Call, row: int, columns: np.ndarray, num_before: int) -> Segment:
    position_id = call.num_cached + int(columns[0])
    if call.position_ids_BS is not None:
        position_id = int(call.position_ids_BS[row, columns[0]])
    return Segment(row, columns, num_before, position_id - num_before)


def _unclear(got: str, expected: str, do: str | None = None) -> RecordingError:
    return RecordingError(
        "cannot tell which rows of this forward call are which tokens",
        where="the arguments of the model's forward",
        expected=expected,
        got=got,
        do=do or "pass input_ids with attention_mask, or packed with position_ids",
    )
