"""Writing a capture chunk by chunk: a kill at any instant leaves every finished chunk readable.

Order of writing: arrays and tokens under temporary names, flushed to disk, renamed; then the
manifest is replaced. A chunk that the manifest does not list does not exist. No torch.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from workbench.errors import CaptureError, UsageError
from workbench.names import split_site
from workbench.store.arrays import encode_arrays
from workbench.store.dtypes import is_storable
from workbench.store.manifest import MANIFEST_NAME, ChunkEntry, Manifest, SiteInfo
from workbench.store.tokens import Columns, encode_tokens, token_table

COVERS_SUFFIX: Final = ".rows"
"""`logits.rows` in a chunk lists the offsets that `logits` covers, when it does not cover all."""


class CaptureWriter:
    """Appends chunks to a new capture directory.

    Args:
        directory: Must not exist, or be empty.
        draft: Everything that is known before the first row. `finish` may replace fields.

    Raises:
        CaptureError: The directory exists and is not empty.
    """

    def __init__(self, directory: str | os.PathLike[str], draft: Manifest) -> None:
        self.directory = Path(directory)
        if self.directory.exists() and (
            not self.directory.is_dir() or any(self.directory.iterdir())
        ):
            raise CaptureError(
                "will not write a capture over something else",
                where=self.directory,
                expected="a new or empty directory",
                got="files" if self.directory.is_dir() else "a file",
                do="choose another directory, or remove this one",
            )
        self.directory.mkdir(parents=True, exist_ok=True)
        self.manifest = replace(draft, chunks=(), complete=False)
        self._write_manifest()

    def append(
        self,
        tokens: Columns,
        arrays: Mapping[str, np.ndarray],
        covers: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        """Writes one chunk.

        Args:
            tokens: Token columns (workbench.store.tokens), one line per row. Where `offset` is left
                out, every row of state `computed` gets the next offset in order.
            arrays: By full site name, shape (array rows, *site shape).
            covers: For a site that exists only for some array rows: their offsets, ascending.

        Raises:
            UsageError: Names, lengths, shapes or types do not fit together or the earlier chunks.
        """
        covers = covers or {}
        table = token_table(_with_offsets(tokens))
        array_rows = table["offset"].count()
        sites = dict(self.manifest.sites)
        for name, array in arrays.items():
            rows = len(covers[name]) if name in covers else array_rows
            sites[name] = _checked_site(name, array, rows, sites.get(name))
        stored = dict(arrays)
        for name, offsets in covers.items():
            if name not in arrays:
                raise UsageError(f"covers names {name!r}, and there is no such array")
            stored[name + COVERS_SUFFIX] = _checked_cover(name, offsets, array_rows)
        index = len(self.manifest.chunks)
        arrays_name, tokens_name = f"chunk-{index:06d}.safetensors", f"tokens-{index:06d}.parquet"
        arrays_raw, tokens_raw = encode_arrays(stored), encode_tokens(table)
        self._write(arrays_name, arrays_raw)
        self._write(tokens_name, tokens_raw)
        entry = ChunkEntry(
            arrays=arrays_name,
            tokens=tokens_name,
            rows=table.height,
            array_rows=array_rows,
            arrays_bytes=len(arrays_raw),
            tokens_bytes=len(tokens_raw),
            arrays_crc=zlib.crc32(arrays_raw),
            tokens_crc=zlib.crc32(tokens_raw),
        )
        self.manifest = replace(self.manifest, sites=sites, chunks=(*self.manifest.chunks, entry))
        self._write_manifest()

    def finish(self, *, complete: bool = True, **changes: Any) -> Manifest:
        """Marks the capture as ended; `changes` replace fields of its manifest."""
        self.manifest = replace(self.manifest, complete=complete, **changes)
        self._write_manifest()
        return self.manifest

    def _write_manifest(self) -> None:
        self._write(MANIFEST_NAME, self.manifest.to_json().encode())

    def _write(self, name: str, raw: bytes) -> None:
        temporary = self.directory / f".{name}.tmp"
        try:
            with temporary.open("wb") as file:
                file.write(raw)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.directory / name)
            _sync_directory(self.directory)
        except OSError as error:
            raise CaptureError(
                "cannot write a capture",
                where=self.directory / name,
                got=error.strerror or str(error),
                do="free some space or choose another directory; finished chunks are kept",
            ) from error


def _with_offsets(tokens: Columns) -> Columns:
    if "offset" in tokens:
        return tokens
    states = tokens.get("state", ["computed"] * len(tokens["request"]))
    offsets: list[int | None] = []
    count = 0
    for state in states:
        offsets.append(count if state == "computed" else None)
        count += state == "computed"
    return {**tokens, "offset": offsets}


def _checked_site(name: str, array: np.ndarray, rows: int, known: SiteInfo | None) -> SiteInfo:
    try:
        split_site(name)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if not is_storable(array.dtype):
        raise UsageError(f"cannot store {name} as {array.dtype}")
    if array.ndim == 0 or array.shape[0] != rows:
        raise UsageError(
            f"{name} has another number of rows than its tokens", expected=rows, got=array.shape
        )
    found = SiteInfo(dtype=array.dtype.name, shape=array.shape[1:])
    if known is not None and (known.dtype, known.shape) != (found.dtype, found.shape):
        raise UsageError(
            f"{name} changed between chunks",
            expected=f"{known.dtype} {list(known.shape)}",
            got=f"{found.dtype} {list(found.shape)}",
        )
    return known or found


def _checked_cover(name: str, offsets: np.ndarray, array_rows: int) -> np.ndarray:
    cover = np.asarray(offsets, np.int32)
    inside = cover.size == 0 or (cover[0] >= 0 and cover[-1] < array_rows)
    if cover.ndim != 1 or not inside or np.any(np.diff(cover) <= 0):
        raise UsageError(f"covers of {name} must ascend within 0..{array_rows - 1}", got=cover[:8])
    return cover


def _sync_directory(directory: Path) -> None:
    if os.name != "posix":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
