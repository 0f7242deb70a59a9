"""Opening a capture: its rows as one index, its arrays by site through memory maps.

Nothing loads a whole capture. A chunk that cannot be read is listed in `damaged` with its error and
the others stay readable; a capture with damage, or one that was not finished, is not `complete`.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl

from workbench.errors import CaptureError
from workbench.store.arrays import ChunkArrays
from workbench.store.manifest import FORMAT_VERSION, ChunkEntry, Manifest, read_manifest
from workbench.store.newer import unreadable_newer
from workbench.store.tokens import TOKEN_SCHEMA, read_tokens
from workbench.store.writer import COVERS_SUFFIX


class ArrayChunk:
    """The arrays of one chunk, checked against the manifest.

    Attributes:
        index: Place in the manifest.
        num_array_rows: Rows of its arrays.
    """

    def __init__(self, index: int, entry: ChunkEntry, directory: Path, manifest: Manifest) -> None:
        self.index = index
        self.num_array_rows = entry.array_rows
        _check_size(directory / entry.arrays, entry.arrays_bytes)
        self._arrays = ChunkArrays(directory / entry.arrays)
        self._check_arrays(directory / entry.arrays, manifest)

    def __contains__(self, site: str) -> bool:
        return site in self._arrays

    def array(self, site: str) -> np.ndarray:
        """Read-only view, shape (covered rows, *site shape), in the stored element type."""
        return self._arrays[site]

    def bits(self, site: str) -> np.ndarray:
        """The same where numpy knows the type, else its bits as integers of the same width."""
        return self._arrays.bits(site)

    def dtype(self, site: str) -> str:
        """Name of a site's stored element type."""
        return self._arrays.slots[site].dtype

    def covered(self, site: str) -> np.ndarray | None:
        """Offsets that `array(site)` covers, int32 ascending, or None when it covers all rows."""
        name = site + COVERS_SUFFIX
        if name not in self._arrays:
            return None
        return self._arrays[name]

    def _check_arrays(self, where: Path, manifest: Manifest) -> None:
        unknown = {n + suffix for n in manifest.unknown_sites for suffix in ("", COVERS_SUFFIX)}
        for name, slot in self._arrays.slots.items():
            if name in unknown:
                continue
            site = manifest.sites.get(name)
            if name.endswith(COVERS_SUFFIX):
                self._check_cover(where, name)
                continue
            if site is None:
                raise _mismatch(where, "only sites that the manifest lists", name)
            cover = self._arrays.slots.get(name + COVERS_SUFFIX)
            rows = self.num_array_rows if cover is None else cover.shape[0]
            expected = (site.dtype, (rows, *site.shape))
            if (slot.dtype, slot.shape) != expected:
                raise _mismatch(
                    where,
                    f"{name}: {expected[0]} {list(expected[1])}",
                    f"{slot.dtype} {list(slot.shape)}",
                )

    def _check_cover(self, where: Path, name: str) -> None:
        slot = self._arrays.slots[name]
        if slot.dtype != "int32" or len(slot.shape) != 1 or name[:-5] not in self._arrays:
            raise _mismatch(where, f"{name} as a list of int32 beside its array", str(slot[:2]))
        cover, num_rows = self._arrays[name], self.num_array_rows
        inside = cover.size == 0 or (cover[0] >= 0 and cover[-1] < num_rows)
        if not inside or np.any(np.diff(cover) <= 0):
            raise _mismatch(where, f"{name} ascending within {num_rows} rows", str(cover[:8]))


class Chunk(ArrayChunk):
    """One readable chunk.

    Attributes:
        tokens: Its token table.
    """

    def __init__(self, index: int, entry: ChunkEntry, directory: Path, manifest: Manifest) -> None:
        super().__init__(index, entry, directory, manifest)
        path = directory / entry.tokens
        _check_size(path, entry.tokens_bytes)
        self.tokens = read_tokens(path)
        if self.tokens.height != entry.rows:
            raise _mismatch(path, f"{entry.rows} rows", f"{self.tokens.height}")
        if self.tokens["offset"].count() != entry.array_rows:
            got = f"{self.tokens['offset'].count()} rows with arrays"
            raise _mismatch(path, f"{entry.array_rows}", got)


class Capture:
    """A recorded path: manifest, rows, arrays.

    Attributes:
        directory: Where it lies.
        manifest: Its checked manifest.
        chunks: Readable chunks in order.
        damaged: One error per chunk that cannot be read.
    """

    def __init__(self, directory: Path, manifest: Manifest, *, verify: bool = False) -> None:
        self.directory = directory
        self.manifest = manifest
        self.damaged: list[CaptureError] = []
        self.chunks: list[Chunk] = []
        for index, entry in enumerate(manifest.chunks):
            try:
                if verify:
                    _check_crc(directory / entry.arrays, entry.arrays_crc)
                    _check_crc(directory / entry.tokens, entry.tokens_crc)
                self.chunks.append(Chunk(index, entry, directory, manifest))
            except CaptureError as error:
                self.damaged.append(_of_a_newer(error, manifest))

    @property
    def complete(self) -> bool:
        """Whether the recording ended in order and every chunk is readable."""
        return self.manifest.complete and not self.damaged

    @property
    def num_rows(self) -> int:
        """Rows in readable chunks."""
        return sum(chunk.tokens.height for chunk in self.chunks)

    @property
    def sites(self) -> list[str]:
        """Recorded sites by full name, in manifest order."""
        return list(self.manifest.sites)

    @cached_property
    def tokens(self) -> pl.DataFrame:
        """All token lines in engine order, with `chunk`, the place in `chunks`, as UInt32."""
        tables = [
            chunk.tokens.with_columns(pl.lit(place, pl.UInt32).alias("chunk"))
            for place, chunk in enumerate(self.chunks)
        ]
        empty = pl.DataFrame(schema={**TOKEN_SCHEMA, "chunk": pl.UInt32})
        return pl.concat([empty, *tables])

    def iterate(self, site: str) -> Iterator[tuple[Chunk, np.ndarray]]:
        """Every chunk that holds `site`, with its array."""
        for chunk in self.chunks:
            if site in chunk:
                yield chunk, chunk.array(site)


def open_capture(directory: str | os.PathLike[str], *, verify: bool = False) -> Capture:
    """Opens a capture for reading; needs no torch, and maps its files instead of loading them.

    Args:
        directory: The capture's directory.
        verify: Read every file once and compare its CRC-32 with the manifest's.

    Raises:
        CaptureError: The manifest is missing or not sound. Damaged chunks do not raise: they are
            listed in `Capture.damaged`.
    """
    path = Path(directory)
    return Capture(path, read_manifest(path), verify=verify)


def open_chunk(directory: Path, manifest: Manifest, index: int) -> ArrayChunk:
    """The arrays of one chunk of a capture, without its tokens and without the other chunks.

    Raises:
        CaptureError: There is no such chunk, or its arrays are damaged.
    """
    if not 0 <= index < len(manifest.chunks):
        raise CaptureError(
            "no such chunk",
            where=directory,
            expected=f"0..{len(manifest.chunks) - 1}",
            got=index,
            do="compare again: the capture has other chunks than it had then",
        )
    return ArrayChunk(index, manifest.chunks[index], directory, manifest)


def _check_size(path: Path, expected: int) -> None:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise _mismatch(path, f"a file of {expected} bytes", error.strerror or "none") from error
    if size != expected:
        raise _mismatch(path, f"{expected} bytes", f"{size} bytes")


def _check_crc(path: Path, expected: int) -> None:
    try:
        crc = 0
        with path.open("rb") as file:
            while block := file.read(1 << 22):
                crc = zlib.crc32(block, crc)
    except OSError as error:
        raise _mismatch(path, "a readable file", error.strerror or str(error)) from error
    if crc != expected:
        raise _mismatch(path, f"CRC-32 {expected:08x}", f"{crc:08x}")


def _of_a_newer(error: CaptureError, manifest: Manifest) -> CaptureError:
    """The error itself; of a newer capture, one that does not call its chunk damaged."""
    version = manifest.newer_version
    if version is None:
        return error
    what = "a chunk of this capture cannot be read: it"
    return unreadable_newer(what, version, reads=FORMAT_VERSION, error=error)


def _mismatch(path: Path, expected: str, got: str) -> CaptureError:
    return CaptureError(
        "a chunk of this capture is damaged",
        where=path,
        expected=expected,
        got=got,
        do="record it again; the other chunks stay readable",
    )
