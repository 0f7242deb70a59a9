"""Finished rows on their way to disk. Owns the grouping into chunks; numpy only, no torch, no vLLM.

Rows go to the writer in the order they were computed. A row that may yet turn out to be past its
request's end (asynchronous scheduling) waits here and is written with a later chunk.

Axis legend: T row of one step, N row of the chunk being built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

import numpy as np

from workbench.capture.vllm.rows import Line
from workbench.store import CaptureWriter
from workbench.store.tokens import TOKEN_SCHEMA

DEFAULT_CHUNK_BYTES: Final = 32 * 1024 * 1024


class Sparse(NamedTuple):
    """A site that exists for some rows of a step: values, and their rows within the step."""

    values: np.ndarray
    rows: np.ndarray


class Detokenizer(Protocol):
    """Gives the text of one token id."""

    def __call__(self, token_id: int, /) -> str: ...


class _Block(NamedTuple):
    lines: list[Line]
    arrays: Mapping[str, np.ndarray]
    sparse: Mapping[str, Sparse]


class RowBuffer:
    """Collects steps and appends them to a capture, one chunk per `chunk_bytes` of arrays.

    Args:
        writer: Where chunks go.
        text: Text of a token id.
        chunk_bytes: Bytes of arrays after which a chunk is written.
    """

    def __init__(
        self, writer: CaptureWriter, *, text: Detokenizer, chunk_bytes: int = DEFAULT_CHUNK_BYTES
    ) -> None:
        self.writer = writer
        self._text = text
        self._chunk_bytes = chunk_bytes
        self._blocks: list[_Block] = []
        self._bytes = 0

    def add(
        self,
        bare: list[Line],
        lines: list[Line],
        arrays: Mapping[str, np.ndarray],
        sparse: Mapping[str, Sparse] | None = None,
    ) -> None:
        """Takes one step.

        Args:
            bare: Lines without arrays (cached or sampled tokens).
            lines: Lines of the computed rows.
            arrays: By site, shape (len(lines), ...).
            sparse: By site, for sites that exist for some rows only.
        """
        if bare:
            self._blocks.append(_Block(bare, {}, {}))
        if lines:
            self._blocks.append(_Block(lines, arrays, sparse or {}))
            self._bytes += sum(array.nbytes for array in arrays.values())
            self._bytes += sum(item.values.nbytes for item in (sparse or {}).values())

    @property
    def is_full(self) -> bool:
        """Whether a chunk's worth of arrays is waiting."""
        return self._bytes >= self._chunk_bytes

    def drop(self, unwanted: Callable[[Line], bool]) -> int:
        """Removes waiting computed rows; returns how many."""
        before = sum(len(block.lines) for block in self._blocks)
        self._blocks = [
            _select(block, lambda line: line.state != "computed" or not unwanted(line))
            for block in self._blocks
        ]
        return before - sum(len(block.lines) for block in self._blocks)

    def flush(self, ready: Callable[[Line], bool] | None = None) -> None:
        """Writes the waiting rows as one chunk; rows that are not `ready` keep waiting."""
        waiting: list[_Block] = []
        blocks = self._blocks
        if ready is not None:

            def is_ready(line: Line) -> bool:
                return line.state != "computed" or ready(line)

            waiting = [_select(block, lambda line: not is_ready(line)) for block in blocks]
            blocks = [_select(block, is_ready) for block in blocks]
        blocks = [block for block in blocks if block.lines]
        if blocks:
            computed = [block for block in blocks if block.lines[0].state == "computed"]
            lines = [line for block in blocks for line in block.lines]
            self.writer.append(self._columns(lines), *_stacked(computed))
        self._blocks = [block for block in waiting if block.lines]
        self._bytes = 0

    def _columns(self, lines: list[Line]) -> dict[str, list[object]]:
        scores = [line.score for line in lines]
        names = [name for name in Line._fields if name in TOKEN_SCHEMA]
        columns: dict[str, list[object]] = {
            name: [getattr(line, name) for line in lines] for name in names
        }
        columns["text"] = [self._text(line.token_id) for line in lines]
        columns["logprob"] = [None if score is None else score.logprob for score in scores]
        columns["rank"] = [None if score is None else score.rank for score in scores]
        columns["entropy"] = [None if score is None else score.entropy for score in scores]
        return columns


def _select(block: _Block, wanted: Callable[[Line], bool]) -> _Block:
    keep = np.array([wanted(line) for line in block.lines], bool)
    if keep.all():
        return block
    new_row = np.cumsum(keep) - 1
    sparse = {}
    for name, item in block.sparse.items():
        kept = keep[item.rows]
        sparse[name] = Sparse(item.values[kept], new_row[item.rows[kept]])
    return _Block(
        [line for line, kept in zip(block.lines, keep, strict=True) if kept],
        {name: array[keep] for name, array in block.arrays.items()},
        sparse,
    )


def _stacked(
    blocks: list[_Block],
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Arrays of all blocks after one another, and which rows the sparse ones cover."""
    names = list(blocks[0].arrays) if blocks else []
    arrays = {name: np.concatenate([block.arrays[name] for block in blocks]) for name in names}
    values: dict[str, list[np.ndarray]] = {}
    places: dict[str, list[np.ndarray]] = {}
    start = 0
    for block in blocks:
        for name, item in block.sparse.items():
            values.setdefault(name, []).append(item.values)
            places.setdefault(name, []).append(item.rows + start)
        start += len(block.lines)
    arrays |= {name: np.concatenate(parts) for name, parts in values.items()}
    covers = {name: np.concatenate(parts).astype(np.int32) for name, parts in places.items()}
    return arrays, covers
