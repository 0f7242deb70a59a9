"""Following a capture that is being written: each chunk once, and only what one side has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.captures import ROLLOUT, TRAINER, Side, Toy, make_capture
from workbench.errors import CaptureError
from workbench.store import CaptureWriter, Manifest, ModelFacts, open_capture
from workbench.view.growing import GrowingCapture
from workbench.view.model import ViewModel
from workbench.view.oneside import OneSide
from workbench.view.palette import ABSENT, code_of_level
from workbench.view.source import Source
from workbench.view.state import Cell

MODEL = ModelFacts(num_layers=2, num_experts=4, top_k=2, hidden_size=3, layer_kinds=("moe", "moe"))


class Recording:
    """Writes chunks of invented rows."""

    def __init__(self, directory: Path, *, path: str = "rollout") -> None:
        draft = Manifest(path="rollout" if path == "rollout" else "trainer", model=MODEL)
        self.writer = CaptureWriter(directory, draft)

    def append(self, rows: list[tuple[str, int]], scores_TE: list[list[float]]) -> None:
        count = len(rows)
        scores = np.asarray(scores_TE, np.float32)
        output = np.ones((count, 3), np.float32)
        output[0, 0] = np.nan
        self.writer.append(
            {
                "request": [request for request, _ in rows],
                "position": [position for _, position in rows],
                "token_id": [position for _, position in rows],
                "text": [f"{request}{position}" for request, position in rows],
                "logprob": [-float(position) for _, position in rows],
            },
            {
                "layers.0.router_logits": scores,
                "layers.1.router_logits": scores,
                "layers.1.output": output,
            },
        )


def read(capture: GrowingCapture) -> OneSide:
    assert capture.poll()
    recorded = capture.recorded()
    assert recorded is not None
    return OneSide(recorded, status="live", words="")


def test_rows_of_a_chunk_lie_request_by_request_and_later_chunks_below(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "a")
    capture = GrowingCapture(tmp_path / "a")
    recording.append([("y", 0), ("x", 0), ("y", 1)], [[0, 1, 2, 3]] * 3)
    first = read(capture)
    recording.append([("x", 1), ("y", 2)], [[0, 1, 2, 3]] * 2)
    second = read(capture)
    assert first.rows["text"].to_list() == ["y0", "y1", "x0"]
    assert second.rows["text"].to_list() == ["y0", "y1", "x0", "x1", "y2"]
    assert second.rows["logprob_a"].to_list() == [0, -1, 0, -1, -2]
    assert second.rows["logprob_b"].null_count() == 5
    assert not capture.poll()


def test_margins_and_nan_belong_to_the_row_that_has_them(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "a")
    capture = GrowingCapture(tmp_path / "a")
    # Of 4 experts 2 are selected: the margin is the second largest minus the third.
    recording.append([("y", 0), ("x", 0), ("y", 1)], [[3, 2, 1.5, 0], [9, 5, 1, 0], [1, 1, 1, 0]])
    source = read(capture)
    margin_LT = source.column("topk.margin_a")
    assert margin_LT.tolist() == [[0.5, 0, 4]] * 2
    # The NaN is in the chunk's first row, which is y0; layer 0 has no `output`.
    assert source.column("output.nonfinite_a").tolist() == [[0, 0, 0], [1, 0, 0]]
    assert source.missing("output.nonfinite_a").tolist() == [[True] * 3, [False] * 3]
    assert source.missing("topk.margin_b").all()
    assert source.missing("output.rel_l2").all()
    model = ViewModel(source)
    assert model.state.side == "a"
    model.act("side.cycle")
    # There is no other side, and nothing to take the difference of.
    assert model.state.side == "a"
    assert "only A" in model.state.message
    model.act("jump.next")
    assert "diverges from nothing" in model.state.message
    assert model.codes("residual")[1, 0] == code_of_level(6)
    assert (model.codes("residual")[0] == ABSENT).all()


def test_each_chunk_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = Recording(tmp_path / "a")
    capture = GrowingCapture(tmp_path / "a")
    opened: list[int] = []
    take = GrowingCapture._take

    def counted(self: GrowingCapture, chunk: object, manifest: Manifest) -> None:
        opened.append(chunk.index)  # type: ignore[attr-defined]
        take(self, chunk, manifest)  # type: ignore[arg-type]

    monkeypatch.setattr(GrowingCapture, "_take", counted)
    for position in range(3):
        recording.append([("x", position)], [[0, 1, 2, 3]])
        assert capture.poll()
    assert opened == [0, 1, 2]


def test_what_was_handed_out_does_not_change(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "a")
    capture = GrowingCapture(tmp_path / "a")
    recording.append([("x", 0)], [[3, 2, 1, 0]])
    first = read(capture)
    before = first.column("topk.margin_a").copy()
    grown = first
    for position in range(1, 9):
        recording.append([("x", position)], [[9, 8, 0, 0]])
        grown = read(capture)
    assert np.array_equal(first.column("topk.margin_a"), before)
    assert grown.column("topk.margin_a").tolist() == [[1, *[8] * 8]] * 2


def test_a_capture_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    capture = GrowingCapture(tmp_path / "a")
    assert not capture.poll()
    assert capture.recorded() is None
    Recording(tmp_path / "a").append([("x", 0)], [[0, 1, 2, 3]])
    assert read(capture).num_rows == 1


def test_a_chunk_of_rows_that_were_only_sampled_has_no_arrays_to_read(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "a")
    recording.append([("x", 0)], [[0, 1, 2, 3]])
    tokens: dict[str, list[Any]] = {
        "request": ["x"],
        "position": [1],
        "token_id": [1],
        "state": ["sampled"],
    }
    empty = {"layers.0.router_logits": np.zeros((0, 4), np.float32)}
    recording.writer.append(tokens, empty)
    source = read(GrowingCapture(tmp_path / "a"))
    assert source.num_rows == 2
    assert source.missing("topk.margin_a").tolist() == [[False, True]] * 2


def test_another_recording_in_the_same_place_is_read_from_its_start(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "a")
    capture = GrowingCapture(tmp_path / "a")
    recording.append([("x", 0), ("x", 1)], [[0, 1, 2, 3]] * 2)
    assert read(capture).num_rows == 2
    for path in (tmp_path / "a").iterdir():
        path.unlink()
    Recording(tmp_path / "a").append([("z", 0)], [[0, 1, 2, 3]])
    assert read(capture).rows["text"].to_list() == ["z0"]


def test_a_damaged_chunk_is_counted_and_the_others_are_read(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "a")
    recording.append([("x", 0)], [[0, 1, 2, 3]])
    recording.append([("x", 1)], [[0, 1, 2, 3]])
    (tmp_path / "a" / "chunk-000000.safetensors").write_bytes(b"short")
    source = read(GrowingCapture(tmp_path / "a"))
    assert source.rows["position"].to_list() == [1]
    assert source.recorded.num_damaged == 1


def test_a_manifest_that_cannot_be_read_is_an_error_and_is_tried_again(tmp_path: Path) -> None:
    Recording(tmp_path / "a").append([("x", 0)], [[0, 1, 2, 3]])
    manifest = tmp_path / "a" / "manifest.json"
    text = manifest.read_text("utf-8")
    manifest.write_text(text.replace('"version": 1', '"version": 0'), "utf-8")
    capture = GrowingCapture(tmp_path / "a")
    for _ in range(2):
        with pytest.raises(CaptureError, match="a whole number as version"):
            capture.poll()
    manifest.write_text(text, "utf-8")
    assert read(capture).num_rows == 1


@pytest.mark.parametrize(
    "side",
    [
        replace(ROLLOUT, interleaved=True, chunk_rows=7, dtype="bfloat16"),
        replace(TRAINER, chunk_rows=5),
        replace(ROLLOUT, sampled_last=True, cached=(1, 3), logits="generated"),
        replace(ROLLOUT, omit=("topk_ids", "router_logits")),
    ],
)
def test_vectors_are_those_of_the_capture(tmp_path: Path, side: Side) -> None:
    directory = make_capture(tmp_path / "c", toy=Toy(), side=side)
    source = read(GrowingCapture(directory))
    view: Source = source
    capture = open_capture(directory)
    assert source.num_rows == capture.num_rows
    tokens = {
        key[:2]: key
        for key in capture.tokens.select(
            "request", "position", "chunk", "offset", "state"
        ).iter_rows()
    }
    for row, (request, position) in enumerate(source.rows.select("request", "position").rows()):
        _, _, chunk, offset, state = tokens[request, position]
        for site in ("router_logits", "mlp_out", "output"):
            pair = view.cell(1, row, site)
            own, other = (pair.a, pair.b) if source.side == "a" else (pair.b, pair.a)
            assert other is None
            there = state == "computed" and site not in side.omit
            assert (own is not None) == there
            if own is not None:
                stored = capture.chunks[chunk].array(f"layers.1.{site}")[offset]
                assert own.tobytes() == stored.tobytes()


def test_a_view_model_opens_on_every_row_and_lens(tmp_path: Path) -> None:
    directory = make_capture(tmp_path / "c", side=replace(ROLLOUT, sampled_last=True))
    model = ViewModel(read(GrowingCapture(directory)))
    model.act("side.cycle")
    model.warm()
    for row in range(model.num_rows):
        model.move_to(Cell(1, row))
        assert model.cell_facts().address == f"L1 t{row}"
    assert model.class_counts()["bit"] == 0
    assert model.source.selects(3).any()
