"""The bundled trained model, end to end: generate with one path, replay with the other.

Axis legend: K top-k slot.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

from workbench.capture.fingerprint import fingerprint
from workbench.capture.trainer import capture_trainer, record
from workbench.store import open_capture

MODEL = Path(__file__).parents[3] / "sample_data" / "countdown-moe"
NUM_PROMPTS = 6


@pytest.fixture(scope="module")
def prompts() -> list[str]:
    lines = (MODEL / "prompts.jsonl").read_text().splitlines()[:NUM_PROMPTS]
    return [json.loads(line)["prompt"] for line in lines]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return transformers.AutoTokenizer.from_pretrained(MODEL)


@pytest.fixture(scope="module")
def rollout(prompts: list[str], tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Greedy decoding with a key-value cache, one request at a time, recorded as a rollout."""
    model = transformers.AutoModelForCausalLM.from_pretrained(MODEL, dtype="auto")
    directory = tmp_path_factory.mktemp("bundled") / "rollout"
    with (
        torch.no_grad(),
        record(
            model, directory, path="rollout", model_id=str(MODEL), tokenizer=tokenizer
        ) as recording,
    ):
        for place, prompt in enumerate(prompts):
            ids = tokenizer(prompt, return_tensors="pt").input_ids
            recording.requests([f"c{place}"], prompt_lengths=[ids.shape[1]])
            model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=24)
    return directory


def test_the_trainer_replays_what_was_generated(rollout: Path, tmp_path: Path) -> None:
    out = capture_trainer(MODEL, tmp_path / "trainer", like=rollout, batch=4)
    a, b = open_capture(rollout), open_capture(out, verify=True)
    assert a.complete
    assert b.complete
    assert a.manifest.model == b.manifest.model
    assert a.manifest.weights == b.manifest.weights
    assert set(a.sites) == set(b.sites)
    rows = a.tokens.join(b.tokens, on=["request", "position"], suffix="_b", validate="1:1")
    assert rows.height == a.num_rows == b.num_rows
    for column in ("token_id", "text", "phase"):
        assert rows[column].equals(rows[f"{column}_b"].alias(column))
    generated = rows.filter(rows["phase"] == "generated")
    gap = (generated["logprob"] - generated["logprob_b"]).abs()
    assert gap.null_count() == 0
    # A trained model in bfloat16: small on average, with a flip now and then.
    assert 0 < float(np.mean(gap.to_numpy())) < 0.05


def test_in_float32_both_ways_agree_to_rounding(rollout: Path, tmp_path: Path) -> None:
    captures = [
        open_capture(
            capture_trainer(
                MODEL, tmp_path / layout, like=rollout, dtype="float32", layout=layout, batch=3
            )
        )
        for layout in ("padded", "packed")
    ]
    a, b = (capture.tokens.sort("request", "position") for capture in captures)
    assert float(np.abs(a["logprob"].drop_nulls() - b["logprob"].drop_nulls()).max()) < 1e-4
    assert captures[0].manifest.weights["head"].dtype == "float32"
    low = open_capture(rollout).manifest.weights
    for name, high in captures[0].manifest.weights.items():
        assert (high.sum, high.numel) == (low[name].sum, low[name].numel)


def test_the_texts_can_be_read(rollout: Path, prompts: list[str]) -> None:
    tokens = open_capture(rollout).tokens
    for place, prompt in enumerate(prompts):
        rows = tokens.filter(tokens["request"] == f"c{place}").sort("position")
        text = "".join(rows["text"].to_list())
        assert text.startswith(prompt)
        assert "=" in text[len(prompt) :]


def test_the_live_fingerprint_is_the_checkpoints_own(rollout: Path) -> None:
    saved = fingerprint(load_file(MODEL / "model.safetensors").items())
    assert open_capture(rollout).manifest.weights == saved


def test_every_row_selects_two_of_eight_experts(rollout: Path) -> None:
    capture = open_capture(rollout)
    assert capture.manifest.contracts["renormalise"] is True
    for _, ids_TK in capture.iterate("layers.3.topk_ids"):
        assert ids_TK.shape[1] == 2
        assert int(ids_TK.min()) >= 0
        assert int(ids_TK.max()) < 8
