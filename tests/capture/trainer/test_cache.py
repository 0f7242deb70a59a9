"""Calls that continue a key-value cache are attributed to their sequences.

Axis legend: D hidden.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.capture.models import make_model, random_ids
from workbench.capture.trainer import record
from workbench.errors import RecordingError
from workbench.store import open_capture


def test_prefill_and_decode_give_the_rows_of_one_forward(tmp_path: Path) -> None:
    model = make_model("qwen3_moe")
    ids = torch.tensor(random_ids(8, 8))
    with torch.no_grad():
        with record(model, tmp_path / "whole"):
            model(input_ids=ids)
        with record(model, tmp_path / "stepwise"):
            output = model(input_ids=ids[:, :5], use_cache=True)
            for place in range(5, 8):
                output = model(
                    input_ids=ids[:, place : place + 1], past_key_values=output.past_key_values
                )
    whole, stepwise = open_capture(tmp_path / "whole"), open_capture(tmp_path / "stepwise")
    order = ["request", "position"]
    a = whole.tokens.with_row_index("row").sort(order)
    b = stepwise.tokens.with_row_index("row").sort(order)
    key = [*order, "token_id"]
    assert a.select(key).equals(b.select(key))
    np.testing.assert_allclose(
        a["logprob"].drop_nulls().to_numpy(), b["logprob"].drop_nulls().to_numpy(), atol=1e-4
    )
    assert b["logprob"].null_count() == 2
    outputs = [
        np.concatenate([array for _, array in capture.iterate("layers.2.output")])[rows["row"]]
        for capture, rows in ((whole, a), (stepwise, b))
    ]
    np.testing.assert_allclose(outputs[0], outputs[1], atol=1e-4)


def test_generation_with_left_padding_is_attributed(tmp_path: Path) -> None:
    model = make_model("qwen3_moe")
    long, short = random_ids(6, 3)
    call: dict[str, Any] = {
        "input_ids": torch.tensor([long, [0, 0, 0, *short]]),
        "attention_mask": torch.tensor([[1] * 6, [0, 0, 0, 1, 1, 1]]),
    }
    with torch.no_grad(), record(model, tmp_path / "c") as recording:
        recording.requests(["long", "short"], prompt_lengths=[6, 3])
        result = model.generate(**call, max_new_tokens=4, do_sample=False, eos_token_id=None)
    tokens = open_capture(tmp_path / "c").tokens
    for name, row, prompt in (("long", 0, long), ("short", 1, short)):
        rows = tokens.filter(tokens["request"] == name).sort("position")
        assert rows["position"].to_list() == list(range(len(prompt) + 3))
        assert rows["token_id"].to_list() == prompt + result[row, 6:9].tolist()
        assert rows["phase"].to_list() == ["prompt"] * len(prompt) + ["generated"] * 3
        # Greedy tokens are the most likely ones; generate() keeps only the prompt's last logits.
        assert rows["rank"].to_list() == [None] * len(prompt) + [1] * 3


def test_a_cache_from_before_the_recording_is_refused(tmp_path: Path) -> None:
    model = make_model("qwen3_moe")
    ids = torch.tensor(random_ids(6))
    with torch.no_grad():
        cache = model(input_ids=ids[:, :5], use_cache=True).past_key_values
        with (
            pytest.raises(RecordingError, match="beginning was not recorded"),
            record(model, tmp_path / "c"),
        ):
            model(input_ids=ids[:, 5:], past_key_values=cache)
