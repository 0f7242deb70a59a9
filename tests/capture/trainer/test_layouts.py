"""Padded on either side, packed, one at a time: the same rows.

Axis legend: T row, D hidden, K top-k slot.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from tests.capture.models import make_model, random_ids
from workbench.capture.trainer import record
from workbench.store import Capture, open_capture

LENGTHS = (9, 1, 6)
FAMILIES = ["qwen3_moe", "mixtral", "qwen2_moe", "glm4_moe"]
ROUNDINGS = 256 * 2.0**-24
"""Other shapes add up in another order: some hundred roundings of float32."""


def padded(side: str) -> dict[str, torch.Tensor]:
    width = max(LENGTHS)
    rows, masks = [], []
    for ids in random_ids(*LENGTHS):
        gap = [0] * (width - len(ids))
        rows.append(gap + ids if side == "left" else ids + gap)
        ones = [1] * len(ids)
        masks.append(gap + ones if side == "left" else ones + gap)
    return {"input_ids": torch.tensor(rows), "attention_mask": torch.tensor(masks)}


def left_with_positions() -> dict[str, torch.Tensor]:
    call = padded("left")
    positions = call["attention_mask"].cumsum(-1) - 1
    return {**call, "position_ids": positions.masked_fill(call["attention_mask"] == 0, 1)}


def packed() -> dict[str, torch.Tensor]:
    sequences = random_ids(*LENGTHS)
    return {
        "input_ids": torch.tensor([[token for ids in sequences for token in ids]]),
        "position_ids": torch.tensor([[p for ids in sequences for p in range(len(ids))]]),
    }


LAYOUTS: dict[str, Any] = {
    "left": lambda: padded("left"),
    "left with positions": left_with_positions,
    "right": lambda: padded("right"),
    "packed": packed,
}


def run(model: Any, directory: Path, calls: list[dict[str, torch.Tensor]]) -> Capture:
    with torch.no_grad(), record(model, directory, logits=True):
        for call in calls:
            model(**call, use_cache=False)
    return open_capture(directory, verify=True)


def whole(capture: Capture, name: str) -> np.ndarray:
    return np.concatenate([np.asarray(array, np.float64) for _, array in capture.iterate(name)])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_give_the_rows_of_one_sequence_at_a_time(
    family: str, layout: str, tmp_path: Path
) -> None:
    model = make_model(family)
    alone = run(
        model, tmp_path / "alone", [{"input_ids": torch.tensor([i])} for i in random_ids(*LENGTHS)]
    )
    together = run(model, tmp_path / "together", [LAYOUTS[layout]()])
    key = ["request", "position", "token_id"]
    assert together.tokens.select(key).equals(alone.tokens.select(key))
    assert alone.tokens["request"].to_list() == ["r0"] * 9 + ["r1"] + ["r2"] * 6
    for name in alone.sites:
        a, b = whole(alone, name), whole(together, name)
        if name.endswith("topk_ids"):
            np.testing.assert_array_equal(np.sort(a, 1), np.sort(b, 1))
        elif not name.endswith("topk_weights"):
            scale = np.abs(a).max()
            np.testing.assert_allclose(a, b, rtol=0, atol=ROUNDINGS * scale, err_msg=name)
    for column in ("logprob", "entropy"):
        a, b = (c.tokens[column].drop_nulls().to_numpy() for c in (alone, together))
        np.testing.assert_allclose(a, b, rtol=0, atol=ROUNDINGS * 8)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_first_row_of_every_sequence_has_no_score(layout: str, tmp_path: Path) -> None:
    tokens = run(make_model("qwen3_moe"), tmp_path / "c", [LAYOUTS[layout]()]).tokens
    has_none = tokens["logprob"].is_null()
    assert has_none.equals(tokens["position"] == 0)
    assert tokens["rank"].is_null().equals(has_none)
    assert tokens["entropy"].is_null().equals(has_none)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_row_is_scored_by_the_logits_of_the_row_before_it(layout: str, tmp_path: Path) -> None:
    capture = run(make_model("qwen3_moe"), tmp_path / "c", [LAYOUTS[layout]()])
    logprobs_TV = torch.log_softmax(torch.from_numpy(whole(capture, "logits")), -1)
    tokens = capture.tokens
    for row, (position, token) in enumerate(
        zip(tokens["position"], tokens["token_id"], strict=True)
    ):
        if position:
            expected = float(logprobs_TV[row - 1, token])
            assert tokens["logprob"][row] == pytest.approx(expected, abs=16 * 2**-22)
            assert tokens["rank"][row] == int((logprobs_TV[row - 1] >= expected).sum())


def test_cumulative_lengths_part_sequences_like_positions(tmp_path: Path) -> None:
    edges = torch.tensor([0, *np.cumsum(LENGTHS).tolist()], dtype=torch.int32)
    call = {**packed(), "cu_seq_lens_q": edges, "cu_seq_lens_k": edges}
    tokens = run(make_model("qwen3_moe"), tmp_path / "c", [call]).tokens
    assert tokens.group_by("request", maintain_order=True).len()["len"].to_list() == list(LENGTHS)


def test_steps_batches_and_phases_are_told(tmp_path: Path) -> None:
    model = make_model("qwen3_moe")
    with torch.no_grad(), record(model, tmp_path / "c") as recording:
        recording.requests(["x", "y", "z"], prompt_lengths=[4, 1, 6])
        model(**padded("left"))
        model(input_ids=torch.tensor(random_ids(2)))
    tokens = open_capture(tmp_path / "c").tokens
    first = tokens.filter(pl.col("step") == 0)
    assert first["batch_size"].unique().to_list() == [3]
    assert tokens.filter(pl.col("step") == 1)["batch_size"].to_list() == [1, 1]
    generated = tokens.filter(pl.col("phase") == "generated")
    assert generated.select("request", "position").rows() == [("x", p) for p in range(4, 9)]
    assert tokens["state"].unique().to_list() == ["computed"]


@pytest.mark.parametrize(
    ("layout", "num_shifted"),
    [("left", 7), ("left with positions", 0), ("right", 0), ("packed", 0)],
)
def test_rows_at_shifted_positions_are_counted(
    layout: str, num_shifted: int, tmp_path: Path
) -> None:
    capture = run(make_model("qwen3_moe"), tmp_path / "c", [LAYOUTS[layout]()])
    assert capture.manifest.counts["rows_at_shifted_positions"] == num_shifted


def test_texts_come_from_the_tokenizer(tmp_path: Path) -> None:
    class Letters:
        def decode(self, token_ids: list[int]) -> str:
            return chr(97 + token_ids[0])

    model = make_model("qwen3_moe")
    with torch.no_grad(), record(model, tmp_path / "c", tokenizer=Letters()):
        model(input_ids=torch.tensor([[1, 2, 3]]))
    assert open_capture(tmp_path / "c").tokens["text"].to_list() == ["b", "c", "d"]


def test_large_calls_are_cut_into_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from workbench.capture.trainer import buffer

    monkeypatch.setattr(buffer, "CHUNK_ROWS", 7)
    model = make_model("qwen3_moe")
    whole_call = torch.tensor(random_ids(10, 10))
    cut = run(model, tmp_path / "cut", [{"input_ids": whole_call}])
    monkeypatch.undo()
    one = run(model, tmp_path / "one", [{"input_ids": whole_call}])
    assert [chunk.num_array_rows for chunk in cut.chunks] == [6, 7, 7]
    for name in one.sites:
        np.testing.assert_array_equal(whole(one, name), whole(cut, name))
    assert cut.tokens.drop("offset", "chunk").equals(one.tokens.drop("offset", "chunk"))
