"""`kldive demo`: the whole story on the bundled model, for real."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from workbench.cli.main import main
from workbench.cli.sample import bundled_sample
from workbench.comparison.run import compare
from workbench.errors import ExitCode

needs_vllm = pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")


def demo(out: Path, *options: str) -> dict[str, Any]:
    """The summary of a demo run in a process of its own, as from a shell."""
    command = [sys.executable, "-m", "workbench", "demo", "--headless", "--json", "-o", str(out)]
    ended = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    summary: dict[str, Any] = json.loads(ended.stdout)
    assert {entry.name for entry in out.iterdir()} == {"rollout", "trainer", "comparison"}
    return summary


@pytest.mark.slow
@needs_vllm
def test_bfloat16_differs_by_rounding_alone(tmp_path: Path) -> None:
    summary = demo(tmp_path / "demo")
    assert summary["status"] == "equal"
    assert summary["verdict"] == "rounding"
    assert summary["weights"] == "equal"
    assert summary["rows"]["compared"] == summary["rows"]["expected"] > 1000
    # bf16 keeps 8 bits: 2**-8 relative on logits of size 10 is 0.04 nats, its square half the KL.
    assert 0 < summary["kl"]["exact_mean"] < 0.04**2
    first = summary["first"]["bit"]
    assert first["layer"] == 0
    assert first["size"] > 0
    assert summary["attribution"]["arbiter"]["who"] == "neither"
    assert summary["first"]["local_error"] is None


@pytest.mark.slow
@needs_vllm
def test_float32_is_zero_to_rounding(tmp_path: Path) -> None:
    summary = demo(tmp_path / "demo", "--dtype", "float32")
    assert summary["status"] == "equal"
    assert summary["routing"]["flips"] == 0
    # 2**-24 relative on logits of size 10, some tens of operations: 1e-5 nats; KL is its square.
    assert summary["max_abs_dlogp"] < 1e-4
    assert abs(summary["kl"]["exact_mean"]) < 1e-9


@pytest.mark.slow
def test_the_recorded_rollout_stands_in_for_a_missing_engine(tmp_path: Path) -> None:
    summary = demo(tmp_path / "demo", "--recorded")
    assert summary["status"] == "equal"
    assert "attribution" in summary
    assert summary["weights"] == "equal"


def test_the_recorded_pair_compares(tmp_path: Path) -> None:
    recorded = bundled_sample().recorded
    summary = compare(recorded / "rollout", recorded / "trainer", out=tmp_path / "out").summary
    assert (summary["status"], summary["verdict"]) == ("equal", "rounding")
    assert summary["rows"]["compared"] == summary["rows"]["expected"] > 100


@pytest.mark.slow
def test_a_trainer_with_scaled_experts_is_placed_against_the_recorded_rollout(
    tmp_path: Path,
) -> None:
    from transformers import AutoModelForCausalLM

    from workbench.capture.trainer import capture_trainer

    sample = bundled_sample()
    rollout = sample.recorded / "rollout"
    model = AutoModelForCausalLM.from_pretrained(sample.model, local_files_only=True)
    experts = model.model.layers[2].mlp.experts
    experts.register_forward_hook(lambda _module, _args, output: output * 1.02)
    capture_trainer(model, tmp_path / "trainer", like=rollout, logits=True)
    summary = compare(rollout, tmp_path / "trainer", out=tmp_path / "out").summary
    assert summary["status"] == "diverged"
    assert (summary["jump"]["layer"], summary["jump"]["site"]) == (2, "routed_out")
    # 1 / 1.02, less the half percent by which this engine's products truncate.
    assert 0.97 < summary["jump"]["gain"] < 0.985


def test_the_demo_does_not_write_over_something_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    assert main(["demo", "--headless", "-o", str(tmp_path)]) == ExitCode.USAGE
    assert "precious.txt" in capsys.readouterr().err
    assert (tmp_path / "precious.txt").read_text() == "mine"
