"""Calls and models that cannot be recorded honestly get one clear error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.capture.models import make_model, random_ids
from workbench.capture.trainer import record
from workbench.errors import CaptureError, KldiveError, RecordingError, UsageError
from workbench.store import open_capture, read_manifest


def call_with(**changes: Any) -> dict[str, Any]:
    return {"input_ids": torch.tensor(random_ids(5, 5)), **changes}


def run(model: Any, directory: Path, *request_names: str) -> None:
    with torch.no_grad(), record(model, directory) as recording:
        recording.requests(request_names)
        model(**call_with())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            {"input_ids": None, "inputs_embeds": torch.zeros(1, 4, 32)},
            "without token ids",
        ),
        ({"attention_mask": torch.ones(2, 1, 5, 5, dtype=torch.bool)}, "attention mask of shape"),
        ({"position_ids": torch.tensor([[0, 1, 2, 4, 5]] * 2)}, "position 4 after 2"),
    ],
)
def test_calls_that_cannot_be_told_apart(
    call: dict[str, Any], message: str, tmp_path: Path
) -> None:
    model = make_model("qwen3_moe")
    with (
        pytest.raises(RecordingError, match=message),
        torch.no_grad(),
        record(model, tmp_path / "c"),
    ):
        model(**call_with(**call))
    assert not open_capture(tmp_path / "c").complete


def test_nothing_called(tmp_path: Path) -> None:
    with (
        pytest.raises(RecordingError, match="nothing was recorded"),
        record(make_model("qwen3_moe"), tmp_path / "c"),
    ):
        pass
    assert not read_manifest(tmp_path / "c").complete


def test_more_names_than_sequences(tmp_path: Path) -> None:
    model = make_model("qwen3_moe")
    with pytest.raises(RecordingError, match="more request names"):
        run(model, tmp_path / "c", "a", "b", "c")
    assert not read_manifest(tmp_path / "c").complete


def test_fewer_names_than_sequences(tmp_path: Path) -> None:
    model = make_model("qwen3_moe")
    with pytest.raises(RecordingError, match="fewer request names"):
        run(model, tmp_path / "c", "a")


def test_logits_that_were_not_all_computed(tmp_path: Path) -> None:
    model = make_model("qwen3_moe")
    with (
        pytest.raises(RecordingError, match="did not compute them all"),
        torch.no_grad(),
        record(model, tmp_path / "c", logits=True),
    ):
        model(**call_with(logits_to_keep=1))


def test_rows_whose_logits_were_not_computed_have_no_score(tmp_path: Path) -> None:
    model = make_model("qwen3_moe")
    with torch.no_grad():
        with record(model, tmp_path / "part"):
            model(**call_with(logits_to_keep=3))
        with record(model, tmp_path / "chosen"):
            model(**call_with(logits_to_keep=torch.tensor([0, 3])))
        with record(model, tmp_path / "whole"):
            model(**call_with())
    whole = open_capture(tmp_path / "whole").tokens
    for name, scored in (("part", [3, 4]), ("chosen", [1, 4])):
        tokens = open_capture(tmp_path / name).tokens
        has = tokens.filter(tokens["logprob"].is_not_null())
        assert has["position"].to_list() == scored * 2
        rows = whole.filter(whole["position"].is_in(scored))
        assert has["logprob"].to_list() == pytest.approx(rows["logprob"].to_list(), abs=1e-5)


def test_weights_that_change_while_recording(tmp_path: Path) -> None:
    model = make_model("qwen3_moe")

    def train() -> None:
        with torch.no_grad(), record(model, tmp_path / "c"):
            model(**call_with())
            model.lm_head.weight[0, 0] += 1.0
            model(**call_with())

    with pytest.raises(RecordingError, match="weights changed"):
        train()
    assert open_capture(tmp_path / "c").num_rows == 10


def test_weights_that_change_before_the_first_call_get_their_own_fingerprint(
    tmp_path: Path,
) -> None:
    model = make_model("qwen3_moe")
    with torch.no_grad(), record(model, tmp_path / "c"):
        before = read_manifest(tmp_path / "c").weights["head"]
        model.lm_head.weight[0, 0] += 1.0
        model(**call_with())
    assert read_manifest(tmp_path / "c").weights["head"] != before


def test_a_write_that_changes_no_value_is_no_change(tmp_path: Path) -> None:
    model = make_model("qwen3_moe")
    with torch.no_grad(), record(model, tmp_path / "c"):
        model(**call_with())
        model.lm_head.weight.add_(0.0)
        model(**call_with())
    assert open_capture(tmp_path / "c").complete


@pytest.mark.slow
def test_a_compiled_model(tmp_path: Path) -> None:
    model = make_model("qwen3_moe")
    wrapped: Any = torch.compile(model)
    with pytest.raises(RecordingError, match="compiled"):
        record(wrapped, tmp_path / "c")
    model.model.layers[0].compile()
    with pytest.raises(RecordingError, match="compiled"):
        record(model, tmp_path / "c")


def test_something_that_is_no_language_model(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="not a transformers model"):
        record(nn.Linear(2, 2), tmp_path / "c")


def test_a_directory_that_holds_something(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CaptureError, match="over something else"):
        record(make_model("qwen3_moe"), tmp_path)


def test_messages_say_what_to_do(tmp_path: Path) -> None:
    model = make_model("qwen3_moe")
    with pytest.raises(KldiveError) as caught, torch.no_grad(), record(model, tmp_path / "c"):
        model(**call_with(attention_mask=torch.ones(2, 1, 5, 5)))
    assert caught.value.do is not None
    assert caught.value.expected is not None


def test_a_name_used_twice_is_the_callers_mistake(tmp_path: Path) -> None:
    recording = record(make_model("qwen3_moe"), tmp_path / "c")
    with pytest.raises(UsageError, match="twice"):
        recording.requests(["a", "a"])
