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
    """Rows of one chunk of A with their places on both sides, in the chunk's order.

    `breaks_b` are the rows that B does not hold right behind the row before, ascending: between two
    of them B's rows are one slice of one chunk. `breaks_a` likewise.
    """

    chunk_a: int
    rows: np.ndarray
    offset_a: np.ndarray
    chunk_b: np.ndarray
    offset_b: np.ndarray
    breaks_a: np.ndarray
    breaks_b: np.ndarray


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
        order = rows[np.lexsort((offset_a[rows], chunk_a[rows]))]
        starts = np.flatnonzero(np.diff(chunk_a[order], prepend=-1))
        for part in np.split(order, starts[1:]):
            if len(part):
                self._pairs.append(_paired(part, chunk_a, offset_a, chunk_b, offset_b))

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
                part = slice(start, min(start + step, len(pairs.rows)))
                block = _slices(pairs, part, maps_a, b_chunks, sites) or _gathered(
                    pairs, part, maps_a, b_chunks, sites
                )
                if block is not None:
                    yield block


def _paired(
    part: np.ndarray,
    chunk_a: np.ndarray,
    offset_a: np.ndarray,
    chunk_b: np.ndarray,
    offset_b: np.ndarray,
) -> _Pairs:
    on_a, on_b, places_b = offset_a[part], offset_b[part], chunk_b[part]
    follows_b = (np.diff(on_b) == 1) & (np.diff(places_b) == 0)
    return _Pairs(
        chunk_a=int(chunk_a[part[0]]),
        rows=part,
        offset_a=on_a,
        chunk_b=places_b,
        offset_b=on_b,
        breaks_a=np.flatnonzero(np.diff(on_a) != 1) + 1,
        breaks_b=np.flatnonzero(~follows_b) + 1,
    )


def _slices(
    pairs: _Pairs, part: slice, maps_a: list[_SiteRows], b_chunks: _Maps, sites: Sequence[str]
) -> Block | None:
    """The block as views, where both sides hold its rows one behind the other; else None."""
    if _is_broken(pairs.breaks_a, part) or _is_broken(pairs.breaks_b, part):
        return None
    place = int(pairs.chunk_b[part.start])
    maps_b = [found for site in sites if (found := b_chunks.get(place, site)) is not None]
    if len(maps_b) < len(sites) or not all(m.is_whole for m in (*maps_a, *maps_b)):
        return None
    count = part.stop - part.start
    first_a, first_b = int(pairs.offset_a[part.start]), int(pairs.offset_b[part.start])
    return Block(
        pairs.rows[part],
        [m.slice(first_a, count) for m in maps_a],
        [m.slice(first_b, count) for m in maps_b],
    )


def _is_broken(breaks: np.ndarray, part: slice) -> bool:
    """Whether a row of the part, but its first, does not follow the row before."""
    inside = breaks.searchsorted((part.start + 1, part.stop))
    return bool(inside[0] != inside[1])


def _gathered(
    pairs: _Pairs, part: slice, maps_a: list[_SiteRows], b_chunks: _Maps, sites: Sequence[str]
) -> Block | None:
    """The block as copies of its rows; None where no row has every site on both sides."""
    rows, offset_a = pairs.rows[part], pairs.offset_a[part]
    chunk_b, offset_b = pairs.chunk_b[part], pairs.offset_b[part]
    there = np.ones(len(rows), np.bool_)
    for map_a in maps_a:
        there &= map_a.has(offset_a)
    for place in np.unique(chunk_b):
        run = chunk_b == place
        for site in sites:
            map_b = b_chunks.get(int(place), site)
            there[run] &= map_b.has(offset_b[run]) if map_b is not None else False
    if not there.any():
        return None
    if not there.all():
        rows, offset_a = rows[there], offset_a[there]
        chunk_b, offset_b = chunk_b[there], offset_b[there]
    return Block(
        rows,
        [m.take(offset_a, f"gathered a {i}") for i, m in enumerate(maps_a)],
        [
            _gather(b_chunks, site, chunk_b, offset_b, f"gathered b {i}")
            for i, site in enumerate(sites)
        ],
    )


def _gather(
    b_chunks: _Maps, site: str, chunk_b: np.ndarray, offset_b: np.ndarray, name: str
) -> np.ndarray:
    places = np.unique(chunk_b)
    if len(places) == 1:
        return b_chunks.must(int(places[0]), site).take(offset_b, name)
    whole: np.ndarray | None = None
    for place in places:
        run = np.flatnonzero(chunk_b == place)
        part = b_chunks.must(int(place), site).take(offset_b[run], name + " of a chunk")
        if whole is None:
            # The type by its scalar class: a key of the work arrays that costs nothing to hash.
            whole = workspace().array(name, (len(chunk_b), part.shape[1]), part.dtype.type)
        whole[run] = part
    assert whole is not None
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

    def slice(self, first: int, count: int) -> np.ndarray:
        """A view of consecutive rows, where it has every row."""
        view: np.ndarray = self._array_TD[first : first + count]
        return view

    def take(self, offset_T: np.ndarray, name: str) -> np.ndarray:
        """Rows at `offset_T`, all of which it has, copied into scratch memory `name`."""
        if self._cover is not None:
            offset_T = np.searchsorted(self._cover, offset_T)
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
