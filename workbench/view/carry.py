"""Carrying what a person looks at over to a longer or newly measured recording of the same rows."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from workbench.view.state import Cell, ViewState

_KEY = ["request", "position"]


def carried(state: ViewState, before: pl.DataFrame, after: pl.DataFrame) -> ViewState:
    """The same state over other rows: cells keep their request and position.

    A cursor on the last row stays on the last row, and so follows what is being recorded. What is
    gone keeps its row number, inside the recording.

    Args:
        state: What was shown.
        before: Rows it was shown over, with `request` and `position`.
        after: Rows it will be shown over.
    """

    def moved(cell: Cell) -> Cell:
        return Cell(cell.layer, _row(cell.row, before, after))

    at_end = state.row >= before.height - 1
    last = max(0, after.height - 1)
    return replace(
        state,
        row=last if at_end else moved(state.cell).row,
        pin=None if state.pin is None else moved(state.pin),
        marks=frozenset(map(moved, state.marks)),
        past=tuple(map(moved, state.past)),
        future=tuple(map(moved, state.future)),
        area=None,
        selecting=False,
    )


def _row(row: int, before: pl.DataFrame, after: pl.DataFrame) -> int:
    if row >= before.height or not after.height:
        return max(0, min(row, after.height - 1))
    key = before.select(_KEY).row(row)
    # Recordings grow at their end: mostly the row is where it was.
    if row < after.height and after.select(_KEY).row(row) == key:
        return row
    same = after.select(((pl.col("request") == key[0]) & (pl.col("position") == key[1])).arg_true())
    return int(same.item(0, 0)) if same.height else min(row, after.height - 1)
