"""Where an expert was selected, read from both captures.

Axes: L layer, T row, N array row of a chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from workbench.names import layer_site
from workbench.store import Capture, Chunk

if TYPE_CHECKING:
    from workbench.comparison.result import Comparison


def selected_by_either(comparison: Comparison, expert: int) -> np.ndarray:
    """Where A or B selected an expert (logical id), bool (L, T).

    False where a side has no ids. Reads the ids of the whole comparison once, layer by layer.

    Raises:
        CaptureError: A capture was moved.
    """
    found_LT = np.zeros((comparison.num_layers, comparison.num_rows), np.bool_)
    for side in ("a", "b"):
        capture = comparison.capture("a" if side == "a" else "b")
        chunk_T = comparison.rows[f"chunk_{side}"].fill_null(-1).to_numpy()
        offset_T = comparison.rows[f"offset_{side}"].fill_null(-1).to_numpy()
        for chunk, rows in _rows_by_chunk(capture, chunk_T):
            row_N = np.full(chunk.num_array_rows, -1, np.int64)
            row_N[offset_T[rows]] = rows
            for layer in range(comparison.num_layers):
                name = layer_site(layer, "topk_ids")
                if name in chunk:
                    hits = row_N[_offsets_with(chunk, name, expert)]
                    found_LT[layer, hits[hits >= 0]] = True
    return found_LT


def _rows_by_chunk(capture: Capture, chunk_T: np.ndarray) -> Iterator[tuple[Chunk, np.ndarray]]:
    for chunk in capture.chunks:
        rows = np.flatnonzero(chunk_T == chunk.index)
        if len(rows):
            yield chunk, rows


def _offsets_with(chunk: Chunk, name: str, expert: int) -> np.ndarray:
    """Array rows of a chunk that have the expert among their ids, int64."""
    ids_NK = chunk.array(name)
    # Flat: few ids hit, and comparing one row of eight at a time would take ten times as long.
    offsets: np.ndarray = np.flatnonzero(ids_NK.ravel() == expert) // max(1, ids_NK.shape[1])
    cover = chunk.covered(name)
    if cover is not None:
        offsets = cover[offsets]
    return offsets
