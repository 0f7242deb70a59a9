"""Chunks on their way to disk, without an engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from workbench.capture.vllm.buffer import RowBuffer, Sparse
from workbench.capture.vllm.rows import Line, Score
from workbench.names import RowState
from workbench.store import Capture, CaptureWriter, Manifest, open_capture


def line(request: str, position: int, state: RowState = "computed") -> Line:
    return Line(
        request=request,
        position=position,
        token_id=position,
        phase="generated",
        state=state,
        modality="text",
        step=0,
        batch_size=1,
        score=Score(-float(position), 1, 0.5),
    )


def buffer_in(directory: Path) -> RowBuffer:
    return RowBuffer(CaptureWriter(directory, Manifest(path="rollout")), text=str, chunk_bytes=64)


def step(*values: float) -> dict[str, np.ndarray]:
    return {"embed": np.array([[v] for v in values], np.float32)}


def embed(capture: Capture) -> list[float]:
    return [float(v) for _, array in capture.iterate("embed") for v in array[:, 0]]


def test_steps_become_one_chunk_in_order(tmp_path: Path) -> None:
    buffer = buffer_in(tmp_path)
    buffer.add([line("a", 0, "cached")], [line("a", 1)], step(1))
    buffer.add([], [line("a", 2), line("b", 0)], step(2, 3))
    buffer.flush()
    capture = open_capture(tmp_path)
    assert capture.tokens["state"].to_list() == ["cached", "computed", "computed", "computed"]
    assert capture.tokens["offset"].to_list() == [None, 0, 1, 2]
    assert capture.tokens["text"].to_list() == ["0", "1", "2", "0"]
    assert embed(capture) == [1, 2, 3]


def test_a_site_of_some_rows_keeps_their_places(tmp_path: Path) -> None:
    buffer = buffer_in(tmp_path)
    logits = np.array([[5.0, 6.0]], np.float32)
    buffer.add(
        [], [line("a", 0), line("a", 1)], step(1, 2), {"logits": Sparse(logits, np.array([1]))}
    )
    buffer.add([], [line("a", 2)], step(3), {"logits": Sparse(logits + 1, np.array([0]))})
    buffer.flush()
    (chunk,) = open_capture(tmp_path).chunks
    covered = chunk.covered("logits")
    assert covered is not None
    assert covered.tolist() == [1, 2]
    assert chunk.array("logits").tolist() == [[5, 6], [6, 7]]


def test_rows_that_are_not_ready_wait_for_a_later_chunk(tmp_path: Path) -> None:
    buffer = buffer_in(tmp_path)
    sparse = {"logits": Sparse(np.array([[1.0], [2.0]], np.float32), np.array([0, 1]))}
    buffer.add([], [line("a", 4), line("b", 7)], step(1, 2), sparse)
    buffer.flush(lambda item: item.request == "a")
    assert open_capture(tmp_path).tokens["request"].to_list() == ["a"]
    buffer.add([], [line("a", 5)], step(3))
    buffer.flush()
    capture = open_capture(tmp_path)
    assert capture.tokens["request"].to_list() == ["a", "b", "a"]
    assert embed(capture) == [1, 2, 3]
    covered = capture.chunks[1].covered("logits")
    assert covered is not None
    assert covered.tolist() == [0]
    assert capture.chunks[1].array("logits").tolist() == [[2]]


def test_dropped_rows_leave_no_trace(tmp_path: Path) -> None:
    buffer = buffer_in(tmp_path)
    buffer.add([line("a", 5, "sampled")], [line("a", 5), line("b", 7)], step(1, 2))
    assert buffer.drop(lambda item: item.request == "a") == 1
    buffer.flush()
    capture = open_capture(tmp_path)
    assert capture.tokens["state"].to_list() == ["sampled", "computed"]
    assert embed(capture) == [2]


def test_the_buffer_is_full_by_bytes(tmp_path: Path) -> None:
    buffer = buffer_in(tmp_path)
    buffer.add([], [line("a", i) for i in range(15)], step(*range(15)))
    full = [buffer.is_full]
    buffer.add([], [line("a", 15)], step(15))
    full.append(buffer.is_full)
    buffer.flush()
    assert [*full, buffer.is_full] == [False, True, False]


def test_an_empty_buffer_writes_no_chunk(tmp_path: Path) -> None:
    buffer_in(tmp_path).flush()
    assert open_capture(tmp_path).chunks == []
