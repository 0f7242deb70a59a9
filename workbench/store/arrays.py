"""Reading and writing one chunk of arrays: a safetensors file, read through a memory map.

The header is parsed and checked here, against the file's real size, before any byte of an array is
touched; nothing is unpickled. Arrays come back as read-only views of the map: no copy.
"""

from __future__ import annotations

import json
import mmap
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors.numpy import save

from workbench.errors import CaptureError
from workbench.store.dtypes import SAFETENSORS_TO_NAME, bits_dtype, numpy_dtype

MAX_HEADER_BYTES = 64 * 1024 * 1024


class ArraySlot(NamedTuple):
    """Element type by name, shape, and byte range of one array, from the start of its file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


def encode_arrays(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The bytes of a safetensors file that holds `arrays`."""
    return save({name: np.ascontiguousarray(array) for name, array in arrays.items()})


def read_header(path: Path) -> dict[str, ArraySlot]:
    """Checked table of contents of a safetensors file.

    Raises:
        CaptureError: The file is missing, truncated, or its header lies.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            prefix = file.read(8)
            if len(prefix) < 8:
                raise _broken(path, "an 8-byte length, then a header", f"{len(prefix)} bytes")
            (length,) = struct.unpack("<Q", prefix)
            if length > min(size - 8, MAX_HEADER_BYTES):
                raise _broken(path, f"a header within {size} bytes", f"a header of {length} bytes")
            raw = file.read(length)
    except OSError as error:
        raise _broken(path, "a readable file", error.strerror or str(error)) from error
    try:
        header = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise _broken(path, "a JSON header", str(error)) from error
    if not isinstance(header, dict):
        raise _broken(path, "a JSON object as header", type(header).__name__)
    header.pop("__metadata__", None)
    return {
        str(name): _slot(path, str(name), entry, data_start=8 + length, size=size)
        for name, entry in header.items()
    }


def _slot(path: Path, name: str, entry: object, *, data_start: int, size: int) -> ArraySlot:
    match entry:
        case {"dtype": str(code), "shape": [*shape], "data_offsets": [int(start), int(stop)]}:
            pass
        case _:
            raise _broken(path, f"dtype, shape and offsets of {name}", repr(entry)[:80])
    dtype = SAFETENSORS_TO_NAME.get(code)
    if dtype is None:
        raise _broken(path, f"a known element type for {name}", code[:40])
    if not all(type(dim) is int and 0 <= dim < 2**40 for dim in shape):
        raise _broken(path, f"whole numbers as shape of {name}", repr(shape)[:80])
    num_bytes = bits_dtype(dtype).itemsize
    for dim in shape:
        num_bytes *= dim
    if not 0 <= start <= stop or stop - start != num_bytes:
        raise _broken(path, f"{num_bytes} bytes for {name} {shape} {code}", f"{start}..{stop}")
    if data_start + stop > size:
        raise _broken(path, f"{data_start + stop} bytes, to the end of {name}", f"{size} bytes")
    return ArraySlot(dtype, tuple(shape), data_start + start, data_start + stop)


class ChunkArrays:
    """The arrays of one chunk file, by name, as read-only views of memory maps."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.slots = read_header(path)

    def __contains__(self, name: str) -> bool:
        return name in self.slots

    def __getitem__(self, name: str) -> np.ndarray:
        slot = self._slot(name)
        return self._mapped(slot, numpy_dtype(slot.dtype))

    def bits(self, name: str) -> np.ndarray:
        """The array as numpy knows it without help: `dtypes.bits_dtype` of its type."""
        slot = self._slot(name)
        return self._mapped(slot, bits_dtype(slot.dtype))

    def _slot(self, name: str) -> ArraySlot:
        slot = self.slots.get(name)
        if slot is None:
            raise CaptureError(f"no array {name!r} in this chunk", where=self.path)
        return slot

    def _mapped(self, slot: ArraySlot, dtype: np.dtype) -> np.ndarray:
        if slot.start == slot.stop:
            return np.empty(slot.shape, dtype)
        # One map per access, freed with the array: a map keeps a file descriptor, and a capture may
        # have more chunks than a process may have descriptors.
        base = slot.start - slot.start % mmap.ALLOCATIONGRANULARITY
        try:
            with self.path.open("rb") as file:
                view = mmap.mmap(
                    file.fileno(), slot.stop - base, access=mmap.ACCESS_READ, offset=base
                )
        except (OSError, ValueError) as error:
            raise _broken(self.path, f"{slot.stop} bytes that can be mapped", str(error)) from error
        count = (slot.stop - slot.start) // dtype.itemsize
        flat = np.frombuffer(view, dtype=dtype, count=count, offset=slot.start - base)
        return flat.reshape(slot.shape)


def _broken(path: Path, expected: str, got: str) -> CaptureError:
    return CaptureError(
        "cannot read a chunk of arrays",
        where=path,
        expected=expected,
        got=got,
        do="record this capture again, or remove the chunk from the manifest to use the rest",
    )
