"""Replaying a rollout's exact tokens.

Axis legend: D hidden.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from tests.capture.models import VOCAB_SIZE, make_model, random_ids
from workbench.capture.requests import Request
from workbench.capture.trainer import capture_trainer, replay
from workbench.errors import ExitCode, KldiveError, UsageError
from workbench.store import Capture, CaptureWriter, Manifest, open_capture

LENGTHS = (7, 4, 11, 5)
PROMPTS = (3, 4, 2, 5)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model")
    make_model("qwen3_moe").save_pretrained(directory)
    return directory


@pytest.fixture(scope="module")
def rollout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A rollout's token table alone: cached, computed and sampled rows, out of order."""
    columns: dict[str, list[Any]] = {
        name: [] for name in ("request", "position", "token_id", "phase", "state")
    }
    for place, (ids, num_prompt) in enumerate(zip(random_ids(*LENGTHS), PROMPTS, strict=True)):
        for position, token in reversed(list(enumerate(ids))):
            columns["request"].append(f"q{place}")
            columns["position"].append(position)
            columns["token_id"].append(token)
            columns["phase"].append("prompt" if position < num_prompt else "generated")
            is_sampled = position == len(ids) - 1 and position >= num_prompt
            columns["state"].append("sampled" if is_sampled else "cached")
    directory = tmp_path_factory.mktemp("rollout") / "c"
    writer = CaptureWriter(directory, Manifest(path="rollout"))
    writer.append(columns, {})
    writer.finish()
    return directory


def sorted_tokens(capture: Capture) -> pl.DataFrame:
    return capture.tokens.sort("request", "position")


@pytest.mark.parametrize("layout", ["padded", "packed"])
@pytest.mark.parametrize("batch", [1, 3, 16])
def test_every_row_of_the_rollout_is_computed_with_its_phase(
    layout: Any, batch: int, checkpoint: Path, rollout: Path, tmp_path: Path
) -> None:
    out = capture_trainer(checkpoint, tmp_path / "c", like=rollout, layout=layout, batch=batch)
    capture = open_capture(out, verify=True)
    assert capture.complete
    key = ["request", "position", "token_id", "phase"]
    found, expected = sorted_tokens(capture), sorted_tokens(open_capture(rollout))
    assert found.select(key).equals(expected.select(key))
    assert found["state"].unique().to_list() == ["computed"]
    assert capture.manifest.counts["forward_calls"] == -(-4 // batch)


def test_layouts_and_batches_agree_to_rounding(
    checkpoint: Path, rollout: Path, tmp_path: Path
) -> None:
    captures = []
    layouts: tuple[replay.Layout, ...] = ("padded", "packed")
    for place, layout in enumerate(layouts):
        out = capture_trainer(
            checkpoint, tmp_path / str(place), like=rollout, layout=layout, batch=4 - place
        )
        captures.append(open_capture(out))
    a, b = (sorted_tokens(capture)["logprob"].drop_nulls().to_numpy() for capture in captures)
    assert len(a) == sum(LENGTHS) - len(LENGTHS)
    np.testing.assert_allclose(a, b, rtol=0, atol=2048 * 2.0**-24)


def test_the_manifest_names_the_model_and_the_settings(
    checkpoint: Path, rollout: Path, tmp_path: Path
) -> None:
    out = capture_trainer(
        checkpoint,
        tmp_path / "c",
        like=rollout,
        dtype="bfloat16",
        attn_implementation="eager",
        experts_implementation="batched_mm",
        batch=2,
        logits=True,
    )
    manifest = open_capture(out).manifest
    assert manifest.model.id == str(checkpoint)
    assert manifest.dtype == "bfloat16"
    expected = {
        "attn_implementation": "eager",
        "experts_implementation": "batched_mm",
        "batch": 2,
        "layout": "padded",
        "dtype_asked": "bfloat16",
    }
    assert {name: manifest.knobs[name] for name in expected} == expected
    assert manifest.sites["logits"].shape == (VOCAB_SIZE,)


def test_a_batch_holds_a_bounded_number_of_tokens(
    checkpoint: Path, rollout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "MAX_TOKENS", 14)
    out = capture_trainer(checkpoint, tmp_path / "c", like=rollout, batch=16)
    # 7 and 4 as 2 x 7; then 11 alone, since 2 x 11 is too many; then 5.
    steps = open_capture(out).tokens.group_by("step").len().sort("step")["len"]
    assert steps.to_list() == [11, 11, 5]


def test_a_loaded_model_is_left_as_it_was(rollout: Path, tmp_path: Path) -> None:
    model = make_model("mixtral").train()
    capture_trainer(model, tmp_path / "c", like=rollout)
    assert model.training
    assert open_capture(tmp_path / "c").manifest.knobs["training"] is False


def test_requests_can_be_given_directly(checkpoint: Path, tmp_path: Path) -> None:
    request = Request(name="one", prompt_token_ids=(1, 2), forced_token_ids=(3,))
    out = capture_trainer(checkpoint, tmp_path / "c", like=[request])
    tokens = open_capture(out).tokens
    assert tokens["token_id"].to_list() == [1, 2, 3]
    assert tokens["phase"].to_list() == ["prompt", "prompt", "generated"]


def test_progress_is_told_in_few_words(checkpoint: Path, rollout: Path, tmp_path: Path) -> None:
    said: list[str] = []
    capture_trainer(checkpoint, tmp_path / "c", like=rollout, progress=said.append)
    assert said == ["loading the model", "computing 4 requests, 27 tokens"]


def test_recording_does_not_change_what_the_replayed_model_computes(
    checkpoint: Path, rollout: Path, tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM

    out = capture_trainer(checkpoint, tmp_path / "c", like=rollout, batch=1, logits=True)
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype="auto").eval()
    capture = open_capture(out)
    for place, ids in enumerate(random_ids(*LENGTHS)):
        with torch.no_grad():
            logits = model(
                input_ids=torch.tensor([ids]),
                attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                use_cache=False,
            ).logits[0]
        np.testing.assert_array_equal(capture.chunks[place].array("logits"), logits.numpy())


BAD: dict[str, tuple[Callable[[Path, Path], dict[str, Any]], str]] = {
    "no model there": (lambda _m, r: {"model": r / "nothing", "like": r}, "cannot load the model"),
    "not a model": (lambda _m, r: {"model": r, "like": r}, "cannot load the model"),
    "no rollout there": (lambda m, _r: {"model": m, "like": m / "nothing"}, "cannot read requests"),
    "not a capture": (lambda m, _r: {"model": m, "like": m}, "not a capture"),
    "unknown dtype": (lambda m, r: {"model": m, "like": r, "dtype": "bf16"}, "bf16"),
    "unknown attention": (
        lambda m, r: {"model": m, "like": r, "attn_implementation": "nope"},
        "cannot load the model",
    ),
    "unknown experts": (
        lambda m, r: {"model": m, "like": r, "experts_implementation": "nope"},
        "cannot load the model",
    ),
    "unknown device": (
        lambda m, r: {"model": m, "like": r, "device": "nope"},
        "cannot put the model on device nope",
    ),
    "unknown layout": (lambda m, r: {"model": m, "like": r, "layout": "padd"}, "padded"),
    "empty batch": (lambda m, r: {"model": m, "like": r, "batch": 0}, "batch"),
    "no requests": (lambda m, _r: {"model": m, "like": []}, "no requests"),
    "text without ids": (
        lambda m, _r: {"model": m, "like": [Request(name="a", prompt="x")]},
        "no token ids",
    ),
    "foreign token": (
        lambda m, _r: {
            "model": m,
            "like": [Request(name="a", prompt_token_ids=(1,), forced_token_ids=(VOCAB_SIZE,))],
        },
        "request a, position 1",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gets_one_clear_error(
    name: str, checkpoint: Path, rollout: Path, tmp_path: Path
) -> None:
    make, message = BAD[name]
    arguments = make(checkpoint, rollout)
    with pytest.raises(KldiveError, match=message) as caught:
        capture_trainer(out=tmp_path / "c", **arguments)
    assert caught.value.exit_code in (ExitCode.USAGE, ExitCode.UNREADABLE)


def test_an_attention_that_a_loaded_model_does_not_run_is_refused(
    rollout: Path, tmp_path: Path
) -> None:
    model = make_model("qwen3_moe")
    model.set_attn_implementation("sdpa")
    with pytest.raises(UsageError, match="attention implementation") as caught:
        capture_trainer(model, tmp_path / "c", like=rollout, attn_implementation="eager")
    assert caught.value.got == "sdpa"


def test_experts_that_cannot_switch_are_refused(rollout: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="experts implementation"):
        capture_trainer(
            make_model("llama4_text"),
            tmp_path / "c",
            like=rollout,
            experts_implementation="grouped_mm",
        )


def test_packing_is_refused_where_state_would_leak(rollout: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="leak between sequences"):
        capture_trainer(make_model("lfm2_moe"), tmp_path / "c", like=rollout, layout="packed")


def test_a_rollout_with_a_missing_position_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    writer = CaptureWriter(tmp_path / "r", replace(Manifest(path="rollout"), engine="x"))
    writer.append(
        {"request": ["a", "a"], "position": [0, 2], "token_id": [1, 2]},
        {"embed": np.zeros((2, 3), np.float32)},
    )
    writer.finish()
    with pytest.raises(UsageError, match="missing positions"):
        capture_trainer(checkpoint, tmp_path / "c", like=tmp_path / "r")


def test_without_transformers_the_error_says_what_to_install(
    rollout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(KldiveError, match="transformers is needed") as caught:
        capture_trainer("anything", tmp_path / "c", like=rollout)
    assert caught.value.exit_code == ExitCode.MISSING_DEPENDENCY
