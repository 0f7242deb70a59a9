"""Reading the table with one line per (layer, row) through a memory map.

Axis legend: L layer, T row, C column.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from workbench.comparison.arrow import KINDS, Column, Kind, Values, layout
from workbench.errors import CaptureError

_SINGLES_KEPT: Final = 512
"""Single values read, far from each other, before their pages are given back."""
_NEAR_VALUES: Final = 4096
"""Values of four bytes in the 16 KB that are mapped with any of them, whatever the system."""
_STORED: Final[dict[Kind, type]] = {"f4": np.float32, "u4": np.uint32, "b1": np.bool_}
_FLOAT: Final = struct.Struct("<f")
_WHOLE: Final = struct.Struct("<I")


class LayerTable:
    """The table, mapped for reading.

    Raises:
        CaptureError: The file is missing, or is not of the size its columns and lines need.
    """

    def __init__(
        self, path: Path, columns: Sequence[Column], *, num_layers: int, num_rows: int
    ) -> None:
        self.path = path
        self.num_layers, self.num_rows = num_layers, num_rows
        self._layout = layout(columns, num_layers * num_rows, [0] * len(columns))
        self._index = {column.name: index for index, column in enumerate(columns)}
        self._kinds = [column.kind for column in columns]
        try:
            size = path.stat().st_size
            if size != self._layout.size:
                raise unreadable_comparison(path, f"{self._layout.size} bytes", f"{size} bytes")
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise unreadable_comparison(
                path, "a readable file", error.strerror or str(error)
            ) from error
        self._singles = 0
        self._mapped: set[tuple[str, int]] = set()
        self._bytes = np.frombuffer(self._map, np.uint8)
        self._words = self._bytes[: len(self._bytes) // 4 * 4].view(np.uint32)
        starts_C = np.array([start for start, _ in self._layout.values], np.int64)
        is_bit_C = np.array([kind == "b1" for kind in self._kinds], np.bool_)
        self._validity_C = np.array([start for start, _ in self._layout.validity], np.int64)
        self._bits_C, self._words_C = starts_C[is_bit_C], starts_C[~is_bit_C] // 4
        place_C = np.where(is_bit_C, is_bit_C.cumsum(), (~is_bit_C).cumsum()) - 1
        self._places = list(zip(self._index, self._kinds, place_C.tolist(), strict=True))

    def forget(self) -> None:
        """Gives the pages that were read back to the system.

        Nothing is lost: what is read again comes from the system's cache of the file. Without this
        every column that was ever looked at counts as memory of this process.
        """
        self._singles = 0
        self._mapped.clear()
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)

    def __contains__(self, name: str) -> bool:
        return name in self._index

    def values(self, name: str) -> np.ndarray:
        """The column as (L, T): float32 (NaN where missing), uint32 or bool (0 where missing)."""
        index = self._index[name]
        start, length = self._layout.values[index]
        kind = self._kinds[index]
        if kind == "b1":
            return self._unpacked(start, length)
        flat = self._bytes[start : start + length].view(np.float32 if kind == "f4" else np.uint32)
        return flat.reshape(self.num_layers, self.num_rows)

    def missing(self, name: str) -> np.ndarray:
        """Where the column is null, bool (L, T)."""
        return ~self._unpacked(*self._layout.validity[self._index[name]])

    def line(self, layer: int, row: int) -> dict[str, float | int | bool | None]:
        """Every column at one (layer, row), None where missing; reads a few bytes per column."""
        at = layer * self.num_rows + row
        self._reads("", at, 2 * len(self._kinds))
        known_C = (self._bytes[self._validity_C + at // 8] >> (at % 8) & 1).tolist()
        bits = (self._bytes[self._bits_C + at // 8] >> (at % 8) & 1).view(np.bool_).tolist()
        words = self._words[self._words_C + at]
        stored = {"f4": words.view(np.float32).tolist(), "u4": words.tolist(), "b1": bits}
        return {
            name: stored[kind][place] if known else None
            for (name, kind, place), known in zip(self._places, known_C, strict=True)
        }

    def at_row(self, name: str, row: int) -> np.ndarray:
        """A column at one row, (L,), as `values` gives it; reads a few bytes per layer."""
        if self._kinds[self._index[name]] == "b1":
            start = self._layout.values[self._index[name]][0]
            layers = range(self.num_layers)
            return np.array([self._bit(start, layer * self.num_rows + row) for layer in layers])
        self._reads(name, row, self.num_layers)
        found: np.ndarray = self.values(name)[:, row].copy()
        return found

    def cell(self, name: str, layer: int, row: int) -> Values:
        """One value and whether it is missing, (1, 1) each, without reading the column."""
        index = self._index[name]
        at = layer * self.num_rows + row
        missing = not self._bit(self._layout.validity[index][0], at)
        value: np.ndarray = np.array([[self._value(index, at)]], _STORED[self._kinds[index]])
        return Values(value, np.array([[missing]]))

    def _value(self, index: int, at: int) -> float | int | bool:
        start, kind = self._layout.values[index][0], self._kinds[index]
        if kind == "b1":
            return self._bit(start, at)
        number = _FLOAT if kind == "f4" else _WHOLE
        found: tuple[float | int] = number.unpack(self._single(start + 4 * at, 4))
        return found[0]

    def _bit(self, start: int, at: int) -> bool:
        return bool(self._single(start + at // 8, 1)[0] >> (at % 8) & 1)

    def _single(self, start: int, length: int) -> bytes:
        self._reads("byte", start // 4, 1)
        return self._map[start : start + length]

    def _reads(self, what: str, place: int, singles: int) -> None:
        """Before single values are read, each of which maps a page and as many as the system likes.

        Values beside ones that were read since the last `forget` map nothing new.
        """
        near = (what, place // _NEAR_VALUES)
        if near in self._mapped:
            return
        self._singles += singles
        if self._singles > _SINGLES_KEPT:
            self.forget()
            self._singles = singles
        self._mapped.add(near)

    def _unpacked(self, start: int, length: int) -> np.ndarray:
        lines = self.num_layers * self.num_rows
        bits = np.unpackbits(self._bytes[start : start + length], count=lines, bitorder="little")
        return bits.view(np.bool_).reshape(self.num_layers, self.num_rows)


def columns_from_json(entries: object, where: Path) -> list[Column]:
    """Checked columns, as `comparison.json` lists them.

    Raises:
        CaptureError: Anything but a list of [name, kind] pairs.
    """
    if isinstance(entries, list):
        columns = [
            Column(entry[0], entry[1])
            for entry in entries
            if isinstance(entry, list)
            and len(entry) == 2
            and isinstance(entry[0], str)
            and entry[1] in KINDS
        ]
        if len(columns) == len(entries):
            return columns
    raise unreadable_comparison(
        where, "a list of [name, kind] as layers.columns", repr(entries)[:80]
    )


def unreadable_comparison(path: Path, expected: str, got: str) -> CaptureError:
    """The error for a file of a comparison that is not what kldive writes."""
    return CaptureError(
        "cannot read a comparison",
        where=path,
        expected=expected,
        got=got,
        do="compare the two captures again",
    )
