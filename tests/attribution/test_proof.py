"""Proof: proved only when the swap removes the divergence and everything else does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.attribution.matrix import Subject, attributed, capture, proof_of, subject
from workbench.attribution.bench import Bench
from workbench.attribution.local import ModulePlace
from workbench.attribution.proof import prove, threshold_of
from workbench.capture.structure import find_parts
from workbench.comparison.run import compare
from workbench.faults import Fault, inject


@pytest.fixture(scope="module")
def tried() -> Subject:
    return subject("qwen3_moe")


@pytest.fixture(scope="module")
def trainer(tried: Subject, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return capture(tried, tmp_path_factory.mktemp("proof") / "b")


def tried_proof(
    tried: Subject, trainer: Path, scratch: Path, suspects: list[ModulePlace], *faults: Fault
) -> dict[str, Any]:
    contexts = [inject(tried.model, fault) for fault in faults]
    for context in contexts:
        context.__enter__()
    try:
        a = capture(tried, scratch / "a", path="rollout")
    finally:
        for context in reversed(contexts):
            context.__exit__(None, None, None)
    comparison = compare(a, trainer, out=scratch / "comparison")
    with torch.no_grad():
        bench = Bench(comparison, find_parts(tried.model))
        return prove(bench, suspects, kl_gate=comparison.summary["tolerance"]["kl_gate"])


ATTENTION = Fault(kind="attention", layer=0, size=0.2)
EXPERTS = Fault(kind="routed_experts", layer=2, size=0.2)


@pytest.mark.slow
def test_the_one_cause_is_proved(tried: Subject, trainer: Path, tmp_path: Path) -> None:
    found = tried_proof(tried, trainer, tmp_path, [(0, "attention")], ATTENTION)
    assert found["state"] == "proved"
    assert found["cause"] == {"layer": 0, "module": "attention"}
    assert found["kl_after_swap"] == 0.0
    assert found["kl_after_everything_else"] == found["kl_before"] > 0
    assert found["missing"] is None


@pytest.mark.slow
def test_the_wrong_suspect_is_not_proved(tried: Subject, trainer: Path, tmp_path: Path) -> None:
    """Experts after the fault get a wrong input; swapped, they still get it."""
    found = tried_proof(tried, trainer, tmp_path, [(2, "routed_experts")], ATTENTION)
    assert found["state"] == "suspected"
    assert "something else takes part" in found["missing"]


@pytest.mark.slow
def test_two_causes_are_proved_together(tried: Subject, trainer: Path, tmp_path: Path) -> None:
    suspects: list[ModulePlace] = [(0, "attention"), (1, "input_norm"), (2, "routed_experts")]
    found = tried_proof(tried, trainer, tmp_path, suspects, ATTENTION, EXPERTS)
    assert found["state"] == "proved"
    assert found["causes"] == [
        {"layer": 0, "module": "attention"},
        {"layer": 2, "module": "routed_experts"},
    ]


@pytest.mark.slow
def test_one_of_two_causes_is_only_suspected(tried: Subject, trainer: Path, tmp_path: Path) -> None:
    found = tried_proof(tried, trainer, tmp_path, [(0, "attention")], ATTENTION, EXPERTS)
    assert found["state"] == "suspected"


@pytest.mark.slow
def test_without_a_difference_nothing_is_proved(
    tried: Subject, trainer: Path, tmp_path: Path
) -> None:
    found = tried_proof(tried, trainer, tmp_path, [(0, "attention")])
    assert found["state"] == "suspected"
    assert "same probabilities" in found["missing"]
    a = capture(tried, tmp_path / "same", path="rollout")
    clean = proof_of(attributed(a, trainer, tmp_path / "clean", tried.model), tried.model)
    assert (clean["state"], clean["cause"]) == ("none", None)


def test_a_divergence_inside_the_gate_must_still_shrink_to_a_tenth() -> None:
    assert threshold_of(kl_before=1.0, kl_gate=1e-4) == 1e-4
    assert threshold_of(kl_before=1e-5, kl_gate=1e-4) == pytest.approx(1e-6)
