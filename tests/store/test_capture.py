"""Opening captures: damage stays where it is, and what is damaged says so once, clearly."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import polars as pl
import pytest

from tests.captures import ROLLOUT, make_capture
from workbench.errors import CaptureError
from workbench.store import CaptureWriter, Manifest, open_capture
from workbench.store.arrays import ChunkArrays, encode_arrays, read_header

CHUNK = "chunk-000001.safetensors"
TOKENS = "tokens-000001.parquet"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A capture of four chunks."""
    return make_capture(tmp_path / "capture", side=replace(ROLLOUT, chunk_rows=10))


def edit_manifest(directory: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = directory / "manifest.json"
    body = json.loads(path.read_text())
    change(body)
    path.write_text(json.dumps(body))


def edit_header(directory: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Rewrites a chunk's header and keeps its data, and the manifest's idea of its size."""
    path = directory / CHUNK
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    written = struct.pack("<Q", len(text)) + text + raw[8 + length :]
    path.write_bytes(written)

    def resize(body: dict[str, Any]) -> None:
        body["chunks"][1]["arrays_bytes"] = len(written)

    edit_manifest(directory, resize)


def resize_file(directory: Path, name: str, raw: bytes) -> None:
    """Replaces a file by one that the manifest says has this size."""
    (directory / name).write_bytes(raw)
    key = "arrays_bytes" if name == CHUNK else "tokens_bytes"
    edit_manifest(directory, lambda body: body["chunks"][1].update({key: len(raw)}))


def set_site(body: dict[str, Any], **changes: Any) -> None:
    body["layers.1.output"].update(changes)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "arrays gone": lambda d: (d / CHUNK).unlink(),
    "arrays truncated": lambda d: (d / CHUNK).write_bytes((d / CHUNK).read_bytes()[:-1]),
    "arrays empty": lambda d: resize_file(d, CHUNK, b""),
    "arrays of seven bytes": lambda d: resize_file(d, CHUNK, b"1234567"),
    "header longer than the file": lambda d: resize_file(d, CHUNK, b"\xff" * 7 + b"\x7f{}"),
    "header that is no JSON": lambda d: resize_file(d, CHUNK, struct.pack("<Q", 2) + b"{{"),
    "header that is a list": lambda d: resize_file(d, CHUNK, struct.pack("<Q", 2) + b"[]"),
    "header nested deep": lambda d: resize_file(
        d, CHUNK, struct.pack("<Q", 300_000) + b"[" * 300_000
    ),
    "a pickle": lambda d: resize_file(d, CHUNK, b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00."),
    "an array gone": lambda d: edit_header(d, lambda h: h.pop("layers.1.output")),
    "another type": lambda d: edit_header(d, lambda h: set_site(h, dtype="BF16")),
    "an unknown type": lambda d: edit_header(d, lambda h: set_site(h, dtype="C64")),
    "another shape": lambda d: edit_header(d, lambda h: set_site(h, shape=[64, 10])),
    "a huge shape": lambda d: edit_header(d, lambda h: set_site(h, shape=[2**62, 2**62])),
    "a negative shape": lambda d: edit_header(d, lambda h: set_site(h, shape=[-10, -64])),
    "a shape of text": lambda d: edit_header(d, lambda h: set_site(h, shape="10")),
    "offsets outside": lambda d: edit_header(
        d, lambda h: set_site(h, data_offsets=[10**9, 10**9 + 2560])
    ),
    "offsets reversed": lambda d: edit_header(d, lambda h: set_site(h, data_offsets=[2560, 0])),
    "offsets as text": lambda d: edit_header(d, lambda h: set_site(h, data_offsets=["0", "1"])),
    "a site too many": lambda d: edit_header(
        d, lambda h: h.update({"layers.9.output": h["layers.1.output"]})
    ),
    "tokens gone": lambda d: (d / TOKENS).unlink(),
    "tokens truncated": lambda d: (d / TOKENS).write_bytes((d / TOKENS).read_bytes()[:-1]),
    "tokens that are no Parquet": lambda d: resize_file(d, TOKENS, b"PAR1 not really PAR1"),
    "tokens of another chunk": lambda d: resize_file(
        d, TOKENS, (d / "tokens-000003.parquet").read_bytes()
    ),
    "rows that the manifest does not have": lambda d: edit_manifest(
        d, lambda body: body["chunks"][1].update(rows=11)
    ),
    "array rows that the manifest does not have": lambda d: edit_manifest(
        d, lambda body: body["chunks"][1].update(array_rows=9)
    ),
}
HARMLESS = ("an array gone",)


@pytest.mark.parametrize("name", [n for n in DAMAGE if n not in HARMLESS])
def test_one_damaged_chunk_is_one_error_and_the_others_stay(directory: Path, name: str) -> None:
    DAMAGE[name](directory)
    found = open_capture(directory)
    assert len(found.damaged) == 1
    error = found.damaged[0]
    assert error.exit_code == 3
    assert Path(str(error.where)).name in (CHUNK, TOKENS)
    assert error.expected
    assert error.got
    assert error.do
    assert [chunk.index for chunk in found.chunks] == [0, 2, 3]
    assert found.num_rows == 26
    assert not found.complete
    assert all(np.isfinite(array).all() for _, array in found.iterate("layers.1.output"))


def test_a_chunk_may_lack_a_site_that_others_have(directory: Path) -> None:
    DAMAGE["an array gone"](directory)
    found = open_capture(directory)
    assert found.damaged == []
    assert len(list(found.iterate("layers.1.output"))) == 3
    assert "layers.1.output" not in found.chunks[1]
    with pytest.raises(CaptureError, match=r"no array 'layers\.1\.output' in this chunk"):
        found.chunks[1].array("layers.1.output")


def test_flipped_bits_are_found_when_asked_for(directory: Path) -> None:
    path = directory / CHUNK
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    assert open_capture(directory).damaged == []
    damaged = open_capture(directory, verify=True).damaged
    assert len(damaged) == 1
    assert "CRC-32" in str(damaged[0].expected)


@pytest.mark.parametrize(
    "cover",
    [
        np.array([0, 0], np.int32),
        np.array([1, 0], np.int32),
        np.array([0, 9], np.int32),
        np.array([-1, 0], np.int32),
        np.array([0, 1], np.int64),
        np.array([[0, 1]], np.int32),
    ],
)
def test_a_cover_that_lies_damages_its_chunk(tmp_path: Path, cover: np.ndarray) -> None:
    writer = CaptureWriter(tmp_path / "c", Manifest(path="rollout"))
    columns = {"request": ["r"] * 3, "position": range(3), "token_id": range(3)}
    logits = np.ones((2, 4), np.float32)
    writer.append(columns, {"logits": logits}, {"logits": np.array([0, 1])})
    raw = encode_arrays({"logits": logits, "logits.rows": cover})
    (tmp_path / "c" / "chunk-000000.safetensors").write_bytes(raw)
    edit_manifest(tmp_path / "c", lambda body: body["chunks"][0].update(arrays_bytes=len(raw)))
    assert len(open_capture(tmp_path / "c").damaged) == 1


@pytest.mark.parametrize(
    ("column", "values", "problem"),
    [
        ("position", pl.Series([-1] * 10, dtype=pl.Int32), "negative position"),
        ("token_id", pl.Series([None] * 10, dtype=pl.Int32), "null in token_id"),
        ("state", pl.Series(["lost"] * 10), "state 'lost'"),
        ("phase", pl.Series([None] * 10, dtype=pl.String), "phase None"),
        ("offset", pl.Series([0] * 10, dtype=pl.Int32), "offsets that are not 0..9"),
        ("offset", pl.Series([0.0] * 10), "Float64"),
        ("position", pl.Series(["0"] * 10), "String"),
    ],
)
def test_token_tables_that_lie_damage_their_chunk(
    directory: Path, column: str, values: pl.Series, problem: str
) -> None:
    table = pl.read_parquet(directory / TOKENS).with_columns(values.alias(column))
    table.write_parquet(directory / TOKENS)
    resize_file(directory, TOKENS, (directory / TOKENS).read_bytes())
    (error,) = open_capture(directory).damaged
    assert problem in str(error.got)


def test_a_token_table_without_a_column_damages_its_chunk(directory: Path) -> None:
    pl.read_parquet(directory / TOKENS).drop("logprob").write_parquet(directory / TOKENS)
    resize_file(directory, TOKENS, (directory / TOKENS).read_bytes())
    (error,) = open_capture(directory).damaged
    assert error.expected == "a column logprob"


def test_arrays_are_read_only_views_in_their_stored_type(tmp_path: Path) -> None:
    path = make_capture(tmp_path / "c", side=replace(ROLLOUT, dtype="bfloat16"))
    array = open_capture(path).chunks[0].array("layers.0.output")
    assert array.dtype == ml_dtypes.bfloat16
    assert array.shape == (36, 64)
    assert not array.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        array[0, 0] = 1


@pytest.mark.parametrize(
    "dtype",
    [
        np.float64,
        np.float32,
        np.float16,
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e5m2,
        np.int64,
        np.int8,
        np.uint16,
        np.bool_,
    ],
)
def test_every_element_type_survives(tmp_path: Path, dtype: type) -> None:
    bits = np.arange(24, dtype=np.uint8) % 2 if dtype is np.bool_ else np.arange(24, dtype=np.uint8)
    array: np.ndarray = np.resize(bits, 8 * np.dtype(dtype).itemsize * 3).view(dtype).reshape(4, -1)
    path = tmp_path / "x.safetensors"
    path.write_bytes(encode_arrays({"a": array, "none": array[:0]}))
    found = ChunkArrays(path)
    assert found["a"].tobytes() == array.tobytes()
    assert found["a"].dtype == array.dtype
    assert found["none"].shape == (0, array.shape[1])
    assert set(read_header(path)) == {"a", "none"}


def test_other_tools_read_the_same_files(directory: Path) -> None:
    from safetensors.numpy import load_file

    arrays = load_file(directory / CHUNK)
    found = open_capture(directory)
    np.testing.assert_array_equal(
        arrays["layers.1.output"], found.chunks[1].array("layers.1.output")
    )
    assert pl.read_parquet(directory / TOKENS).equals(found.chunks[1].tokens)


def test_a_capture_without_chunks_is_empty_not_broken(tmp_path: Path) -> None:
    CaptureWriter(tmp_path / "c", Manifest(path="trainer")).finish()
    found = open_capture(tmp_path / "c")
    assert (found.num_rows, found.sites, found.tokens.height, found.complete) == (0, [], 0, True)


@pytest.mark.slow
def test_reading_and_comparing_never_import_an_engine(tmp_path: Path) -> None:
    make_capture(tmp_path / "a")
    script = (
        "import sys; from workbench.comparison.run import compare\n"
        "from workbench.comparison.result import open_comparison\n"
        "compare(sys.argv[1], sys.argv[1], out=sys.argv[2]); open_comparison(sys.argv[2])\n"
        "found = {'torch', 'transformers', 'vllm', 'pickle5'} & set(sys.modules)\n"
        "assert not found, found"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "a"), str(tmp_path / "c")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
