"""Which stored row of B answers each stored row of A; streams both in blocks that fit a cache.

Walks A's chunks in file order and gathers B's rows by (chunk, offset) from memory maps, so that
captures in different orders and chunks need no copy of either. Holds 24 bytes per row.

Axis legend: T row, D element of a site's vector.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from workbench.comparison.metrics import BLOCK_ELEMENTS
from workbench.comparison.workspace import workspace
from workbench.store import Capture, Chunk

_OPEN_MAPS: Final = 64
"""A map holds a file descriptor, and a process may have only so many."""


class Block(NamedTuple):
    """Rows of the comparison with both sides' vectors, one array per asked site, shape (T, D).

    The arrays are views of the captures, or scratch memory that the next block overwrites.
    """

    rows: np.ndarray
    a: list[np.ndarray]
    b: list[np.ndarray]


class _Pairs(NamedTuple):
    chunk_a: int
    rows: np.ndarray
    offset_a: np.ndarray
    chunk_b: np.ndarray
    offset_b: np.ndarray


class RowMap:
    """Aligned rows that both sides computed.

    Args:
        chunk_a, offset_a, chunk_b, offset_b: Per row of the comparison, int32 (T,): place in
            `Capture.chunks` and place in the chunk's arrays; -1 where the side has none.
    """

    def __init__(
        self,
        a: Capture,
        b: Capture,
        *,
        chunk_a: np.ndarray,
        offset_a: np.ndarray,
        chunk_b: np.ndarray,
        offset_b: np.ndarray,
    ) -> None:
        self.a, self.b = a, b
        self._pairs: list[_Pairs] = []
        rows = np.flatnonzero((offset_a >= 0) & (offset_b >= 0))
        self.num_pairs = len(rows)
        order = rows[np.lexsort((offset_a[rows], chunk_a[rows]))]
        starts = np.flatnonzero(np.diff(chunk_a[order], prepend=-1))
        for part in np.split(order, starts[1:]):
            if len(part):
                place = int(chunk_a[part[0]])
                self._pairs.append(
                    _Pairs(place, part, offset_a[part], chunk_b[part], offset_b[part])
                )

    def blocks(
        self, sites: Sequence[str], *, block_elements: int = BLOCK_ELEMENTS
    ) -> Iterator[Block]:
        """Blocks of rows where both sides have every one of `sites`, in A's file order."""
        b_chunks = _Maps(self.b)
        for pairs in self._pairs:
            chunk = self.a.chunks[pairs.chunk_a]
            if not all(site in chunk for site in sites):
                continue
            maps_a = [_SiteRows(chunk, site) for site in sites]
            width = max(map_a.width for map_a in maps_a)
            step = max(1, block_elements // max(1, width))
            for start in range(0, len(pairs.rows), step):
                part = slice(start, start + step)
                block = self._block(pairs, part, maps_a, b_chunks, sites)
                if block is not None:
                    yield block

    def _block(
        self,
        pairs: _Pairs,
        part: slice,
        maps_a: list[_SiteRows],
        b_chunks: _Maps,
        sites: Sequence[str],
    ) -> Block | None:
        rows, offset_a = pairs.rows[part], pairs.offset_a[part]
        chunk_b, offset_b = pairs.chunk_b[part], pairs.offset_b[part]
        runs = _runs(chunk_b)
        there = _there(maps_a, offset_a, b_chunks, sites, runs, offset_b)
        if there is not None:
            if not there.any():
                return None
            rows, offset_a, chunk_b, offset_b = (
                values[there] for values in (rows, offset_a, chunk_b, offset_b)
            )
            runs = _runs(chunk_b)
        side_a = [m.take(offset_a, f"gathered a {i}") for i, m in enumerate(maps_a)]
        side_b = []
        for index, site in enumerate(sites):
            parts = [
                b_chunks.must(place, site).take(offset_b[run], f"gathered b {index} {number}")
                for number, (place, run) in enumerate(runs)
            ]
            side_b.append(_joined(parts, runs))
        return Block(rows, side_a, side_b)


def _there(
    maps_a: list[_SiteRows],
    offset_a: np.ndarray,
    b_chunks: _Maps,
    sites: Sequence[str],
    runs: list[tuple[int, np.ndarray | slice]],
    offset_b: np.ndarray,
) -> np.ndarray | None:
    """Rows that every site of both sides has; None when all of them do."""
    maps_b = [(run, b_chunks.get(place, site)) for place, run in runs for site in sites]
    whole = all(m.is_whole for m in maps_a) and all(m is not None and m.is_whole for _, m in maps_b)
    if whole:
        return None
    there = np.ones(len(offset_a), np.bool_)
    for map_a in maps_a:
        there &= map_a.has(offset_a)
    for run, map_b in maps_b:
        there[run] &= map_b.has(offset_b[run]) if map_b is not None else False
    return there


def _runs(chunk_T: np.ndarray) -> list[tuple[int, np.ndarray | slice]]:
    """Chunks that occur, each with the places where it does."""
    if len(chunk_T) and (chunk_T == chunk_T[0]).all():
        return [(int(chunk_T[0]), slice(None))]
    return [(int(place), np.flatnonzero(chunk_T == place)) for place in np.unique(chunk_T)]


def _joined(parts: list[np.ndarray], runs: list[tuple[int, np.ndarray | slice]]) -> np.ndarray:
    if len(parts) == 1:
        return parts[0]
    whole = np.empty((sum(map(len, parts)), parts[0].shape[1]), parts[0].dtype)
    for part, (_, run) in zip(parts, runs, strict=True):
        whole[run] = part
    return whole


class _SiteRows:
    """One site of one chunk, its rows addressed by offset."""

    def __init__(self, chunk: Chunk, site: str) -> None:
        array = chunk.array(site)
        self.width = math.prod(array.shape[1:])
        self._array_TD = array.reshape(len(array), self.width)
        self._cover = chunk.covered(site)

    @property
    def is_whole(self) -> bool:
        """Whether it has every row of its chunk."""
        return self._cover is None

    def has(self, offset_T: np.ndarray) -> np.ndarray:
        if self._cover is None:
            return np.ones(len(offset_T), np.bool_)
        return np.isin(offset_T, self._cover)

    def take(self, offset_T: np.ndarray, name: str) -> np.ndarray:
        """Rows at `offset_T`: a view where they follow each other, else scratch memory `name`."""
        if self._cover is not None:
            offset_T = np.searchsorted(self._cover, offset_T)
        first, count = int(offset_T[0]), len(offset_T)
        if int(offset_T[-1]) - first == count - 1 and bool((np.diff(offset_T) == 1).all()):
            view: np.ndarray = self._array_TD[first : first + count]
            return view
        if self.width == 0:
            return self._array_TD[: len(offset_T)]
        return workspace().take(name, self._array_TD, offset_T)


class _Maps:
    """The sites of B's chunks that were used last."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self._open: OrderedDict[tuple[int, str], _SiteRows] = OrderedDict()

    def get(self, place: int, site: str) -> _SiteRows | None:
        key = (place, site)
        found = self._open.get(key)
        if found is not None:
            self._open.move_to_end(key)
            return found
        chunk = self._capture.chunks[place]
        if site not in chunk:
            return None
        found = self._open[key] = _SiteRows(chunk, site)
        if len(self._open) > _OPEN_MAPS:
            self._open.popitem(last=False)
        return found

    def must(self, place: int, site: str) -> _SiteRows:
        found = self.get(place, site)
        assert found is not None
        return found
