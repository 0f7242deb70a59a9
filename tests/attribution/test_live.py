"""The real engine against the trainer on the bundled model: nothing is wrong, and it says why not.

The rollouts come from vLLM through the command line, each in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.attribution.recorded import beyond
from workbench.attribution.run import attribute
from workbench.comparison.result import Comparison
from workbench.comparison.run import compare

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "sample_data" / "countdown-moe"
NUM_PROMPTS = 16

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (MODEL / "model.safetensors").exists(), reason="no bundled model"),
]


def kldive(*arguments: object) -> None:
    command = [sys.executable, "-m", "workbench", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.fixture(scope="module", params=["bfloat16", "float32"])
def live(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    dtype = request.param
    tmp_path = tmp_path_factory.mktemp(dtype)
    prompts = tmp_path / "prompts.jsonl"
    lines = (MODEL / "prompts.jsonl").read_text().splitlines()[:NUM_PROMPTS]
    prompts.write_text("\n".join(lines) + "\n")
    settings = ("--dtype", dtype, "--logits")
    kldive(
        *("capture", "rollout", MODEL, "--prompts", prompts, "-o", tmp_path / "a"),
        *("--temperature", 1, "--max-tokens", 48, "--max-model-len", 256, *settings),
    )
    kldive("capture", "trainer", MODEL, "--like", tmp_path / "a", "-o", tmp_path / "b", *settings)
    comparison = compare(tmp_path / "a", tmp_path / "b", out=tmp_path / "c")
    return attribute(comparison, MODEL, swaps=False)


def test_no_module_is_beyond_its_budget(live: Comparison) -> None:
    found = live.summary["attribution"]
    assert found["model"]["weights_a"]["status"] == "equal"
    assert found["model"]["notes"] == []
    assert beyond(live) == []
    assert found["arbiter"]["who"] == "neither"
    assert live.summary["first"]["local_error"] is None


def test_every_flip_is_explained_and_follows_the_input(live: Comparison) -> None:
    flips = live.summary["attribution"]["flips"]
    assert flips["unexplained"] == 0
    assert flips["follows"]["input"] == flips["flips"]


def test_every_module_was_judged_at_every_row(live: Comparison) -> None:
    modules = live.summary["attribution"]["modules"]
    computed = int(live.rows["offset_a"].is_not_null().sum())
    assert {m["module"] for m in modules} == set(live.local_modules)
    # The engine scores the rows that it samples from, and no others.
    assert all(m["rows"] == computed for m in modules if m["module"] != "lm_head")
    assert all(m["rows"] > 0 and m["includes"] == [] for m in modules)
    assert all(m["units_a"] is not None for m in modules)
    assert json.dumps(live.summary)
