"""The table with one line per (layer, row): an uncompressed Arrow IPC file of one record batch.

Owns the file's layout, which is a pure function of the columns and the number of lines: every
column is one contiguous run of bytes, sorted by layer then row, so that a reader maps a column as
(L, T) without copying, and any Arrow tool opens the file. Written layer by layer; memory does not
grow with the number of layers. Missing values are Arrow nulls; under a null lies NaN in float
columns, 0 in others.

Axis legend: L layer, T row.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple, Self

import numpy as np

from workbench.comparison.flatbuffer import Field, Scalar, Structs, Table, Vector, encode

Kind = Literal["f4", "u4", "b1"]
"""float32, uint32, or bool (one bit)."""

_MAGIC: Final = b"ARROW1\0\0"
_ALIGN: Final = 64
_VERSION_V5: Final = 4
_HEADER_SCHEMA, _HEADER_BATCH = 1, 3
_TYPE_INT, _TYPE_FLOAT, _TYPE_BOOL = 2, 3, 6
KINDS: Final = ("f4", "u4", "b1")


class Column(NamedTuple):
    """Name and kind of one column."""

    name: str
    kind: Kind


class Values(NamedTuple):
    """One layer's slice of a column, shape (T,), and where it is missing (None: nowhere)."""

    values: np.ndarray
    missing: np.ndarray | None = None


class Layout(NamedTuple):
    """Where everything lies in the file: byte ranges of each column's validity and values."""

    head: bytes
    body_start: int
    validity: list[tuple[int, int]]
    values: list[tuple[int, int]]
    tail: bytes
    size: int


def _schema(columns: Sequence[Column]) -> Table:
    return Table([Scalar("h", 0), Vector([_field(column) for column in columns])])


def _field(column: Column) -> Table:
    if column.kind == "f4":
        code, kind = _TYPE_FLOAT, Table([Scalar("h", 1)])
    elif column.kind == "u4":
        code, kind = _TYPE_INT, Table([Scalar("i", 32), Scalar("b", 0)])
    else:
        code, kind = _TYPE_BOOL, Table([])
    return Table([column.name, Scalar("b", 1), Scalar("B", code), kind, None, Vector([])])


def _message(header_type: int, header: Table, body_length: int) -> bytes:
    fields: list[Field] = [
        Scalar("h", _VERSION_V5),
        Scalar("B", header_type),
        header,
        Scalar("q", body_length),
    ]
    raw = encode(Table(fields))
    return struct.pack("<Ii", 0xFFFFFFFF, len(raw)) + raw


def _padded(num_bytes: int) -> int:
    return num_bytes + -num_bytes % _ALIGN


def _num_bytes(kind: Kind, lines: int) -> int:
    return (lines + 7) // 8 if kind == "b1" else 4 * lines


def layout(columns: Sequence[Column], lines: int, null_counts: Sequence[int]) -> Layout:
    """The whole file but its column data; only `null_counts` does not affect any position."""
    buffers, nodes, position = [], [], 0
    for column, null_count in zip(columns, null_counts, strict=True):
        nodes.append(struct.pack("<qq", lines, null_count))
        for kind in ("b1", column.kind):
            num_bytes = _num_bytes(kind, lines)
            buffers.append((position, num_bytes))
            position += _padded(num_bytes)
    packed = b"".join(struct.pack("<qq", *buffer) for buffer in buffers)
    batch = Table(
        [
            Scalar("q", lines),
            Structs(len(nodes), b"".join(nodes)),
            Structs(len(buffers), packed),
        ]
    )
    start = len(_MAGIC) + len(schema := _message(_HEADER_SCHEMA, _schema(columns), 0))
    message = _message(_HEADER_BATCH, batch, position)
    padding = -(start + len(message)) % _ALIGN
    message = struct.pack("<Ii", 0xFFFFFFFF, len(message) - 8 + padding) + message[8:]
    message += bytes(padding)
    body = start + len(message)
    block = struct.pack("<qi4xq", start, len(message), position)
    footer = encode(
        Table([Scalar("h", _VERSION_V5), _schema(columns), Structs(0, b""), Structs(1, block)])
    )
    tail = struct.pack("<Ii", 0xFFFFFFFF, 0) + footer
    tail += struct.pack("<i", len(footer)) + _MAGIC[:6]
    return Layout(
        head=_MAGIC + schema + message,
        body_start=body,
        validity=[(body + at, length) for at, length in buffers[0::2]],
        values=[(body + at, length) for at, length in buffers[1::2]],
        tail=tail,
        size=body + position + len(tail),
    )


class _Bits:
    """Appends runs of bits to a byte range; a run may end inside a byte."""

    def __init__(self, start: int) -> None:
        self.position = start
        self.rest = np.zeros(0, np.uint8)

    def append(self, bits: np.ndarray) -> tuple[int, bytes]:
        """Where to write, and the whole bytes that are now known."""
        bits = np.concatenate([self.rest, bits.astype(np.uint8, copy=False)])
        whole = len(bits) - len(bits) % 8
        self.rest = bits[whole:]
        position = self.position
        self.position += whole // 8
        return position, np.packbits(bits[:whole], bitorder="little").tobytes()

    def flush(self) -> tuple[int, bytes]:
        return self.position, np.packbits(self.rest, bitorder="little").tobytes()


class LayerTableWriter:
    """Writes the table layer by layer, every layer once, in order.

    Args:
        path: Of the file; replaced when it exists.
        columns: All columns.
        num_layers: L.
        num_rows: T.
    """

    def __init__(
        self, path: Path, columns: Sequence[Column], *, num_layers: int, num_rows: int
    ) -> None:
        self.columns = list(columns)
        self.num_layers, self.num_rows = num_layers, num_rows
        self._null_counts = [0] * len(self.columns)
        self._layout = layout(self.columns, num_layers * num_rows, self._null_counts)
        self._validity = [_Bits(start) for start, _ in self._layout.validity]
        self._bits = [_Bits(start) for start, _ in self._layout.values]
        self._layer = 0
        self._file = path.open("wb")
        self._file.truncate(self._layout.size)

    def append(self, values: Mapping[str, Values]) -> None:
        """Writes the next layer; a column that is left out is missing in all of its rows."""
        for index, column in enumerate(self.columns):
            found = values.get(column.name)
            if found is None:
                found = Values(np.zeros(self.num_rows), np.ones(self.num_rows, np.bool_))
            self._write_column(index, column.kind, found)
        self._layer += 1

    def _write_column(self, index: int, kind: Kind, slice_T: Values) -> None:
        values, missing = slice_T
        valid = np.ones(self.num_rows, np.bool_) if missing is None else ~missing
        self._null_counts[index] += self.num_rows - int(valid.sum())
        self._put(*self._validity[index].append(valid))
        if kind == "b1":
            self._put(*self._bits[index].append(np.logical_and(values, valid)))
            return
        stored = np.ascontiguousarray(values, np.float32 if kind == "f4" else np.uint32)
        if missing is not None:
            stored = np.where(valid, stored, np.float32(np.nan) if kind == "f4" else np.uint32(0))
        self._put(self._layout.values[index][0] + 4 * self.num_rows * self._layer, stored.tobytes())

    def _put(self, position: int, raw: bytes) -> None:
        self._file.seek(position)
        self._file.write(raw)

    def close(self) -> None:
        """Writes what frames the columns; the file is not Arrow before this."""
        assert self._layer == self.num_layers, "a layer is missing"
        for index, column in enumerate(self.columns):
            self._put(*self._validity[index].flush())
            if column.kind == "b1":
                self._put(*self._bits[index].flush())
        final = layout(self.columns, self.num_layers * self.num_rows, self._null_counts)
        self._put(0, final.head)
        self._put(final.size - len(final.tail), final.tail)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        # A table that was not closed stays what it is: no Arrow file.
        self._file.close()
