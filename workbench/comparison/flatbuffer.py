"""A writer for the few flatbuffer shapes that Arrow's metadata needs. Stdlib only.

Owns byte layout, knows nothing about Arrow. Everything is written front to back: a table first,
what it points at behind it, so every offset is positive and patched in place.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number stored inside its table; `code` is its `struct` letter."""

    code: str
    value: int


@dataclass(frozen=True, slots=True)
class Table:
    """A table; `fields` in the order of the schema, None where a field is left out."""

    fields: Sequence[Field]


@dataclass(frozen=True, slots=True)
class Vector:
    """A vector of tables."""

    items: Sequence[Table]


@dataclass(frozen=True, slots=True)
class Structs:
    """A vector of structs, already packed, 8-byte aligned."""

    count: int
    packed: bytes


Field = Scalar | Table | Vector | Structs | str | None


def encode(root: Table) -> bytes:
    """The bytes of a flatbuffer whose root is `root`, padded to 8 bytes.

    >>> len(encode(Table([Scalar("q", 7)]))) % 8
    0
    """
    buffer = bytearray(8)
    struct.pack_into("<I", buffer, 0, _table(buffer, root))
    _align(buffer, 8)
    return bytes(buffer)


def _align(buffer: bytearray, to: int, ahead: int = 0) -> None:
    """Pads so that the position `ahead` bytes further on is a multiple of `to`."""
    buffer.extend(bytes(-(len(buffer) + ahead) % to))


def _table(buffer: bytearray, table: Table) -> int:
    offsets, size = _inline_layout(table.fields)
    vtable = struct.pack(f"<{2 + len(offsets)}H", 4 + 2 * len(offsets), size, *offsets)
    _align(buffer, 8, ahead=len(vtable))
    buffer.extend(vtable)
    start = len(buffer)
    buffer.extend(bytes(size))
    struct.pack_into("<i", buffer, start, len(vtable))
    for field, offset in zip(table.fields, offsets, strict=True):
        if isinstance(field, Scalar):
            struct.pack_into("<" + field.code, buffer, start + offset, field.value)
        elif field is not None:
            target = _referred(buffer, field)
            struct.pack_into("<I", buffer, start + offset, target - (start + offset))
    return start


def _inline_layout(fields: Sequence[Field]) -> tuple[list[int], int]:
    """Offset of each field inside its table (0 when left out), and the table's size."""
    offsets, position = [], 4
    for field in fields:
        if field is None:
            offsets.append(0)
            continue
        width = struct.calcsize("<" + field.code) if isinstance(field, Scalar) else 4
        position += -position % width
        offsets.append(position)
        position += width
    return offsets, position


def _referred(buffer: bytearray, field: Table | Vector | Structs | str) -> int:
    if isinstance(field, Table):
        return _table(buffer, field)
    if isinstance(field, str):
        raw = field.encode()
        _align(buffer, 4)
        start = len(buffer)
        buffer.extend(struct.pack("<I", len(raw)) + raw + b"\0")
        return start
    if isinstance(field, Structs):
        _align(buffer, 8, ahead=4)
        start = len(buffer)
        buffer.extend(struct.pack("<I", field.count) + field.packed)
        return start
    _align(buffer, 4)
    start = len(buffer)
    buffer.extend(struct.pack("<I", len(field.items)) + bytes(4 * len(field.items)))
    for index, item in enumerate(field.items):
        slot = start + 4 + 4 * index
        struct.pack_into("<I", buffer, slot, _table(buffer, item) - slot)
    return start
