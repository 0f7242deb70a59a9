"""Reading one capture that may still be written: each chunk once, only what one side's lenses need.

The manifest is replaced whole and lists finished chunks alone, so looking at it at any moment is
safe. Memory: about 20 bytes per cell, and the token table. No Textual, no torch.

Rows come chunk by chunk, so new rows are appended and never inserted; within a chunk they lie
request by request. Axes: L layer, T row, E expert, D hidden.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from workbench.comparison.exact import nonfinite_counts
from workbench.comparison.routing import margin
from workbench.errors import CaptureError
from workbench.names import layer_site, split_site
from workbench.store import Chunk, Manifest, read_manifest
from workbench.store.dtypes import decoded
from workbench.store.manifest import MANIFEST_NAME
from workbench.store.tokens import TOKEN_SCHEMA

LENS_SITES: Final = ("topk_weights", "mlp_out", "output")
"""Sites whose NaN and Inf are counted for every cell."""
MARGIN: Final = "topk.margin"
_BLOCK_ELEMENTS: Final = 1 << 20


class Grown(NamedTuple):
    """A column so far and where it has a value: both (L, T), views of arrays that have room."""

    values: np.ndarray
    known: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What has been read at one moment; later reading does not change it.

    Attributes:
        directory: Of the capture.
        manifest: As it was.
        chunks: The readable ones.
        tokens: Token lines in row order, with `chunk`, the place in `chunks`.
        columns: By name without a side: `topk.margin`, `<site>.nonfinite`.
        num_layers: L.
        num_damaged: Chunks that cannot be read.
    """

    directory: Path
    manifest: Manifest
    chunks: tuple[Chunk, ...]
    tokens: pl.DataFrame
    columns: dict[str, Grown]
    num_layers: int
    num_damaged: int


class GrowingCapture:
    """Follows a capture's directory.

    Args:
        directory: May not exist yet.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        self._seen: tuple[int, int, int] | None = None
        self._forget()

    def _forget(self) -> None:
        self._manifest: Manifest | None = None
        self._chunks: list[Chunk] = []
        self._tables: list[pl.DataFrame] = []
        self._num_rows = self._num_read = 0
        self._columns: dict[str, _Column] = {}

    @property
    def changed(self) -> float:
        """When the manifest that was read last was written, seconds since the epoch; 0 before."""
        return self._seen[0] / 1e9 if self._seen else 0.0

    def poll(self) -> bool:
        """Reads what is new; True when anything is.

        Raises:
            CaptureError: The manifest cannot be read.
        """
        stamp = _stamp(self.directory / MANIFEST_NAME)
        if stamp is None or stamp == self._seen:
            return False
        manifest = read_manifest(self.directory)
        if self._manifest is not None and not _continues(self._manifest, manifest):
            self._forget()
        self._manifest = manifest
        for index in range(self._num_read, len(manifest.chunks)):
            self._num_read += 1
            try:
                chunk = Chunk(index, manifest.chunks[index], self.directory, manifest)
            except CaptureError:
                continue
            self._take(chunk, manifest)
        self._seen = stamp
        return True

    def _take(self, chunk: Chunk, manifest: Manifest) -> None:
        place = len(self._chunks)
        table = _in_row_order(chunk.tokens).with_columns(pl.lit(place, pl.Int32).alias("chunk"))
        rows_of_offset = self._num_rows + _rows_of_offsets(table, chunk.num_array_rows)
        self._chunks.append(chunk)
        self._tables.append(table)
        self._num_rows += table.height
        for name in manifest.sites:
            layer, site = split_site(name)
            column = _column_name(site)
            if layer is None or column is None or name not in chunk:
                continue
            values_T = _measured(chunk, name, _top_k(manifest, layer))
            offsets = chunk.covered(name)
            rows_T = rows_of_offset if offsets is None else rows_of_offset[offsets]
            kept = self._columns.setdefault(column, _Column(_num_layers(manifest), values_T.dtype))
            kept.put(layer, rows_T, values_T, num_rows=self._num_rows)

    def recorded(self) -> Recorded | None:
        """What has been read; None before there is a manifest."""
        manifest = self._manifest
        if manifest is None:
            return None
        empty = pl.DataFrame(schema={**TOKEN_SCHEMA, "chunk": pl.Int32})
        return Recorded(
            directory=self.directory,
            manifest=manifest,
            chunks=tuple(self._chunks),
            tokens=pl.concat([empty, *self._tables]),
            columns={name: kept.so_far(self._num_rows) for name, kept in self._columns.items()},
            num_layers=_num_layers(manifest),
            num_damaged=self._num_read - len(self._chunks),
        )


class _Column:
    """One number per cell, in arrays that double when they are full."""

    def __init__(self, num_layers: int, dtype: np.dtype) -> None:
        self._values_LT = np.zeros((num_layers, 0), dtype)
        self._known_LT = np.zeros((num_layers, 0), np.bool_)

    def put(self, layer: int, rows_T: np.ndarray, values_T: np.ndarray, *, num_rows: int) -> None:
        self._reserve(num_rows)
        self._values_LT[layer, rows_T] = values_T
        self._known_LT[layer, rows_T] = ~np.isnan(values_T)

    def so_far(self, num_rows: int) -> Grown:
        self._reserve(num_rows)
        return Grown(self._values_LT[:, :num_rows], self._known_LT[:, :num_rows])

    def _reserve(self, num_rows: int) -> None:
        # What was handed out before keeps the old arrays: nobody sees a number change.
        num_layers, room = self._values_LT.shape
        if num_rows > room:
            more = np.zeros((num_layers, max(num_rows, 2 * room) - room), self._values_LT.dtype)
            self._values_LT = np.concatenate([self._values_LT, more], axis=1)
            self._known_LT = np.concatenate([self._known_LT, np.zeros_like(more, np.bool_)], axis=1)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What changes when a manifest is replaced; None while there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def _continues(before: Manifest, after: Manifest) -> bool:
    """Whether the same recording went on, and it is no other in the same directory."""
    same_chunks = after.chunks[: len(before.chunks)] == before.chunks
    same_size = not before.chunks or _num_layers(before) == _num_layers(after)
    return same_chunks and same_size and before.path == after.path


def _num_layers(manifest: Manifest) -> int:
    layers = (layer for layer, _ in map(split_site, manifest.sites) if layer is not None)
    return max(1, manifest.model.num_layers, max(layers, default=-1) + 1)


def _top_k(manifest: Manifest, layer: int) -> int:
    info = manifest.sites.get(layer_site(layer, "topk_ids"))
    return info.shape[0] if info is not None and info.shape else manifest.model.top_k


def _column_name(site: str) -> str | None:
    if site == "router_logits":
        return MARGIN
    return f"{site}.nonfinite" if site in LENS_SITES else None


def _in_row_order(tokens: pl.DataFrame) -> pl.DataFrame:
    """A chunk's lines, request by request as they first appear, then by position."""
    first = tokens.select("request").unique(maintain_order=True).with_row_index("first")
    return tokens.join(first, on="request", how="left").sort("first", "position").drop("first")


def _rows_of_offsets(table: pl.DataFrame, num_array_rows: int) -> np.ndarray:
    """Line of `table` for every row of the chunk's arrays, int64."""
    offsets = table["offset"]
    rows = np.flatnonzero(offsets.is_not_null().to_numpy())
    places = np.zeros(num_array_rows, np.int64)
    places[offsets.drop_nulls().to_numpy()] = rows
    return places


def _measured(chunk: Chunk, name: str, top_k: int) -> np.ndarray:
    """A site's number per array row: the margin of scores, or how many are NaN or Inf."""
    is_router = split_site(name)[1] == "router_logits"
    stored, dtype = chunk.bits(name), chunk.dtype(name)
    flat_TD = stored.reshape(len(stored), math.prod(stored.shape[1:]))
    step = max(1, _BLOCK_ELEMENTS // max(1, flat_TD.shape[1]))
    parts = [np.zeros(0, np.float32 if is_router else np.uint32)]
    with np.errstate(invalid="ignore"):
        for start in range(0, len(flat_TD), step):
            block_TD = decoded(flat_TD[start : start + step], dtype)
            parts.append(
                margin(block_TD, top_k).astype(np.float32)
                if is_router
                else nonfinite_counts(block_TD)
            )
    return np.concatenate(parts)
