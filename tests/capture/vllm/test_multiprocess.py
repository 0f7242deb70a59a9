"""The engine in a process of its own, as it runs by default: the same bits.

It is recorded by the command a person would type, because two engines do not live in one process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.capture.vllm.conftest import (
    MODEL,
    TOKEN_BUDGET,
    assert_same_bits,
    random_requests,
    rows_of,
)
from workbench.capture.vllm.engine import RolloutSettings, record_requests
from workbench.store import open_capture

pytestmark = pytest.mark.slow


def test_an_engine_in_its_own_process_records_the_same_bits(llm: Any, tmp_path: Path) -> None:
    requests = random_requests(6, seed=21)
    prompts = tmp_path / "prompts.jsonl"
    lines = [{"request": r.name, "token_ids": list(r.prompt_token_ids or ())} for r in requests]
    prompts.write_text("\n".join(json.dumps(line) for line in lines))
    settings = RolloutSettings(max_tokens=8, logits=True)
    inside = record_requests(llm, requests, tmp_path / "inside", settings=settings)
    own = tmp_path / "own"
    options = ["--prompts", str(prompts), "--dtype", "float32", "--max-model-len", "128"]
    options += ["--max-num-batched-tokens", str(TOKEN_BUDGET), "--max-num-seqs", "16"]
    options += ["--max-tokens", "8", "--logits", "--multiprocess"]
    subprocess.run(
        [sys.executable, "-m", "workbench", "capture", "rollout", str(MODEL), *options, "-o", own],
        check=True,
    )
    assert_same_bits(rows_of(inside), rows_of(own))
    a, b = open_capture(inside).manifest, open_capture(own).manifest
    assert a.weights == b.weights
    assert (a.knobs["env.VLLM_ENABLE_V1_MULTIPROCESSING"], b.knobs["multiprocess"]) == ("0", True)
