"""Writing captures: what is refused, and that a kill at any moment leaves a readable capture."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workbench.errors import CaptureError, UsageError
from workbench.store import CaptureWriter, Manifest, open_capture

ONE_ROW: dict[str, Any] = {"request": ["r"], "position": [0], "token_id": [1]}
OUTPUT = "layers.0.output"


def rows(count: int, start: int = 0) -> dict[str, Any]:
    return {
        "request": ["r"] * count,
        "position": np.arange(start, start + count),
        "token_id": np.arange(count),
    }


def writer(directory: Path) -> CaptureWriter:
    return CaptureWriter(directory, Manifest(path="rollout"))


def test_what_is_appended_is_read_back(tmp_path: Path) -> None:
    capture = writer(tmp_path / "c")
    first, second = np.ones((2, 3), np.float32), np.full((1, 3), 2, np.float32)
    capture.append(rows(2), {OUTPUT: first})
    capture.append(rows(1, start=2), {OUTPUT: second})
    manifest = capture.finish(counts={"dropped": 1})
    assert (manifest.complete, manifest.counts, manifest.num_rows) == (True, {"dropped": 1}, 3)
    found = open_capture(tmp_path / "c", verify=True)
    assert found.complete
    assert [array.tolist() for _, array in found.iterate(OUTPUT)] == [
        first.tolist(),
        second.tolist(),
    ]
    assert found.tokens["chunk"].to_list() == [0, 0, 1]


def test_no_temporary_file_stays(tmp_path: Path) -> None:
    capture = writer(tmp_path / "c")
    capture.append(rows(2), {OUTPUT: np.ones((2, 3), np.float32)})
    capture.finish()
    assert sorted(p.name for p in (tmp_path / "c").iterdir()) == [
        "chunk-000000.safetensors",
        "manifest.json",
        "tokens-000000.parquet",
    ]


def test_rows_that_were_not_computed_have_no_place_in_the_arrays(tmp_path: Path) -> None:
    capture = writer(tmp_path / "c")
    columns = {**rows(3), "state": ["cached", "computed", "sampled"]}
    capture.append(columns, {OUTPUT: np.ones((1, 3), np.float32)})
    assert open_capture(tmp_path / "c").tokens["offset"].to_list() == [None, 0, None]


def test_arrays_may_cover_some_rows(tmp_path: Path) -> None:
    capture = writer(tmp_path / "c")
    logits = np.ones((2, 5), np.float32)
    capture.append(rows(4), {"logits": logits}, {"logits": np.array([1, 3])})
    chunk = open_capture(tmp_path / "c").chunks[0]
    assert chunk.covered("logits").tolist() == [1, 3]  # type: ignore[union-attr]
    assert chunk.array("logits").shape == (2, 5)


def test_an_occupied_directory_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("precious")
    with pytest.raises(CaptureError, match="will not write a capture over something else"):
        writer(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]
    with pytest.raises(CaptureError, match="will not write"):
        writer(tmp_path / "notes.txt")


BAD_APPENDS: dict[str, tuple[dict[str, Any], dict[str, np.ndarray], dict[str, np.ndarray]]] = {
    "an unknown site": (ONE_ROW, {"layers.0.secret": np.ones((1, 2))}, {}),
    "other number of rows": (ONE_ROW, {OUTPUT: np.ones((2, 2))}, {}),
    "a scalar": (ONE_ROW, {OUTPUT: np.float32(1)}, {}),  # type: ignore[dict-item]
    "complex numbers": (ONE_ROW, {OUTPUT: np.ones((1, 2), np.complex64)}, {}),
    "objects": (ONE_ROW, {OUTPUT: np.array([[object()]])}, {}),
    "cover without an array": (ONE_ROW, {}, {"logits": np.array([0])}),
    "cover beyond the rows": (ONE_ROW, {"logits": np.ones((1, 2))}, {"logits": np.array([1])}),
    "cover that descends": (rows(3), {"logits": np.ones((2, 2))}, {"logits": np.array([1, 0])}),
    "an unknown column": ({**ONE_ROW, "colour": ["red"]}, {}, {}),
    "a missing column": ({"request": ["r"], "position": [0]}, {}, {}),
    "columns of other lengths": ({**ONE_ROW, "text": ["a", "b"]}, {}, {}),
    "an unknown state": ({**ONE_ROW, "state": ["lost"], "offset": [None]}, {}, {}),
    "a negative position": ({**ONE_ROW, "position": [-1]}, {}, {}),
    "no token": ({**ONE_ROW, "token_id": [None]}, {}, {}),
    "offsets with a gap": ({**rows(2), "offset": [0, 2]}, {}, {}),
    "arrays for a cached row": ({**ONE_ROW, "state": ["cached"], "offset": [0]}, {}, {}),
}


@pytest.mark.parametrize("append", BAD_APPENDS.values(), ids=BAD_APPENDS.keys())
def test_what_does_not_fit_together_is_refused_and_nothing_is_written(
    tmp_path: Path, append: Any
) -> None:
    capture = writer(tmp_path / "c")
    with pytest.raises(UsageError):
        capture.append(*append)
    assert [p.name for p in (tmp_path / "c").iterdir()] == ["manifest.json"]


def test_a_site_may_not_change_between_chunks(tmp_path: Path) -> None:
    capture = writer(tmp_path / "c")
    capture.append(ONE_ROW, {OUTPUT: np.ones((1, 2), np.float32)})
    for other in (np.ones((1, 3), np.float32), np.ones((1, 2), np.float16)):
        with pytest.raises(UsageError, match="changed between chunks"):
            capture.append({**ONE_ROW, "position": [1]}, {OUTPUT: other})


def test_a_full_disk_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capture = writer(tmp_path / "c")
    capture.append(ONE_ROW, {OUTPUT: np.ones((1, 2), np.float32)})

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("workbench.store.writer.os.fsync", full)
    with pytest.raises(CaptureError, match="cannot write a capture") as caught:
        capture.append({**ONE_ROW, "position": [1]}, {OUTPUT: np.ones((1, 2), np.float32)})
    assert caught.value.got == "No space left on device"
    assert open_capture(tmp_path / "c").num_rows == 1


WRITE_FOREVER = """
import sys
import numpy as np
from workbench.store import CaptureWriter, Manifest
assert not {"torch", "transformers", "vllm"} & set(sys.modules)
capture = CaptureWriter(sys.argv[1], Manifest(path="rollout"))
for chunk in range(100_000):
    columns = {"request": [f"r{chunk}"] * 8, "position": range(8), "token_id": [chunk] * 8}
    capture.append(columns, {"layers.0.output": np.full((8, 4096), chunk, np.float32)})
    print(chunk, flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="kills with SIGKILL")
@pytest.mark.parametrize("moment", range(5))
def test_a_kill_at_any_moment_leaves_every_finished_chunk(tmp_path: Path, moment: int) -> None:
    directory = tmp_path / "capture"
    process = subprocess.Popen(
        [sys.executable, "-c", WRITE_FOREVER, str(directory)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    reported = -1
    for line in process.stdout:
        reported = int(line)
        if reported == moment:
            break
    # Somewhere inside the next chunk: each moment lands elsewhere in its few milliseconds.
    until = time.perf_counter() + moment * 0.0015
    while time.perf_counter() < until:
        pass
    process.send_signal(signal.SIGKILL)
    reported = max([reported, *map(int, process.stdout)])
    process.wait()
    found = open_capture(directory, verify=True)
    assert found.damaged == []
    assert not found.complete
    assert len(found.chunks) >= reported + 1
    for index, (_, array) in enumerate(found.iterate(OUTPUT)):
        assert (array == index).all()
    assert found.tokens["token_id"].to_list() == [
        i for i in range(len(found.chunks)) for _ in "x" * 8
    ]
