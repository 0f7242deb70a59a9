"""One side's capture, as far as single cells need it: opened chunk by chunk when one is looked at.

Opening a whole capture reads every chunk's tokens; a face that shows one cell after another needs
the arrays of one chunk. A chunk that cannot be read has no vectors.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from workbench.errors import CaptureError
from workbench.store.capture import ArrayChunk, open_chunk
from workbench.store.dtypes import decoded
from workbench.store.manifest import MANIFEST_NAME, Manifest

_KEPT_CHUNKS: Final = 8
"""Tables of contents kept: large models have a thousand arrays per chunk."""


class Vector(NamedTuple):
    """A row of an array of a chunk."""

    chunk: ArrayChunk
    site: str
    place: int

    @property
    def stored(self) -> np.ndarray:
        """As stored, in its own type."""
        found: np.ndarray = self.chunk.array(self.site)[self.place]
        return found

    @property
    def numbers(self) -> np.ndarray:
        """As stored where numpy knows the type, else float32, exactly."""
        return decoded(self.chunk.bits(self.site)[self.place], self.dtype)

    @property
    def dtype(self) -> str:
        """Name of the stored type."""
        return self.chunk.dtype(self.site)


class Recorded:
    """The vectors of one capture.

    Args:
        directory: Where it lies.
        manifest: Its manifest.
    """

    def __init__(self, directory: Path, manifest: Manifest) -> None:
        self._directory = directory
        self._manifest = manifest
        self._chunks: OrderedDict[int, ArrayChunk | None] = OrderedDict()

    def vector(self, chunk_idx: int, offset: int, site: str) -> Vector | None:
        """The vector of a site by its chunk's index and the row's offset; negative: there is none.

        None too where the chunk does not hold the site, or not for this row.
        """
        chunk = self._chunk(chunk_idx) if chunk_idx >= 0 and offset >= 0 else None
        if chunk is None or site not in chunk:
            return None
        cover = chunk.covered(site)
        if cover is None:
            return Vector(chunk, site, offset)
        at = int(np.searchsorted(cover, offset))
        return Vector(chunk, site, at) if at < len(cover) and cover[at] == offset else None

    def _chunk(self, index: int) -> ArrayChunk | None:
        if index in self._chunks:
            self._chunks.move_to_end(index)
            return self._chunks[index]
        try:
            chunk = open_chunk(self._directory, self._manifest, index)
        except CaptureError:
            chunk = None
        self._chunks[index] = chunk
        if len(self._chunks) > _KEPT_CHUNKS:
            self._chunks.popitem(last=False)
        return chunk


def find_capture(comparison: Path, side: str, facts: Mapping[str, Any]) -> Path:
    """Where the capture lies that was compared: relative to the comparison, or where it was then.

    Args:
        comparison: The comparison's directory.
        side: `a` or `b`.
        facts: What the summary says of that side.

    Raises:
        CaptureError: It was moved, removed or recorded again since.
    """
    places: list[Path] = [comparison / facts["directory_relative"], Path(facts["directory"])]
    for place in places:
        manifest = place / MANIFEST_NAME
        if manifest.is_file() and zlib.crc32(manifest.read_bytes()) == facts["manifest_crc"]:
            return place
    raise CaptureError(
        f"the capture of side {side.upper()} is not where it was compared",
        where=places[1],
        expected="the same capture there, or at the same place relative to the comparison",
        got="another capture" if any(p.exists() for p in places) else "no such directory",
        do="move it back, or compare again",
    )
