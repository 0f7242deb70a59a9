"""Recorded rows on their way to disk. Owns the cut into chunks; numpy only.

Rows go to the writer in the order they were computed, a bounded number per chunk, so that a kill
loses little and a reader never maps much at once.

Axis legend: T row.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final

import numpy as np

from workbench.store import CaptureWriter

CHUNK_BYTES: Final = 32 * 1024 * 1024
CHUNK_ROWS: Final = 4096

Columns = Mapping[str, list[Any]]


class RowBuffer:
    """Collects rows and appends them to a capture in chunks."""

    def __init__(self, writer: CaptureWriter) -> None:
        self.writer = writer
        self._columns: dict[str, list[Any]] = {}
        self._arrays: list[Mapping[str, np.ndarray]] = []
        self._num_rows = 0
        self._num_bytes = 0

    def add(self, columns: Columns, arrays: Mapping[str, np.ndarray]) -> None:
        """Takes the rows of one call: token columns and arrays of as many rows."""
        for name, values in columns.items():
            self._columns.setdefault(name, []).extend(values)
        self._arrays.append(arrays)
        self._num_rows += len(columns["request"])
        self._num_bytes += sum(array.nbytes for array in arrays.values())

    @property
    def is_full(self) -> bool:
        """Whether a chunk's worth of rows is waiting."""
        return self._num_rows >= CHUNK_ROWS or self._num_bytes >= CHUNK_BYTES

    def flush(self) -> None:
        """Writes everything that waits, as chunks of similar size."""
        if not self._num_rows:
            return
        arrays = _joined(self._arrays)
        num_chunks = max(-(-self._num_rows // CHUNK_ROWS), -(-self._num_bytes // CHUNK_BYTES))
        edges = np.linspace(0, self._num_rows, min(num_chunks, self._num_rows) + 1).astype(int)
        columns = self._columns
        self._columns, self._arrays, self._num_rows, self._num_bytes = {}, [], 0, 0
        for start, stop in pairwise(edges):
            self.writer.append(
                {name: values[start:stop] for name, values in columns.items()},
                {name: array[start:stop] for name, array in arrays.items()},
            )


def _joined(parts: list[Mapping[str, np.ndarray]]) -> Mapping[str, np.ndarray]:
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
