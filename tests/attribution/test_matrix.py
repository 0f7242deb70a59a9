"""Faults are placed at their exact layer and module, and clean pairs report nothing.

A sample of what `tests/benchmarks/attribution.py` runs in full.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import torch

from tests.attribution.matrix import MODULE_OF_KIND, Subject, capture, faults_of, run_case, subject
from tests.attribution.pairs import clean_pairs
from workbench.faults import Fault, Size
from workbench.faults.kinds import Kind

FAMILIES = ("qwen3_moe", "mixtral", "qwen2_moe", "glm4_moe")
WITH_SHARED = ("qwen2_moe", "glm4_moe")
SIZES: tuple[Size, ...] = ("1e-2", "gross")
KINDS = tuple(MODULE_OF_KIND)


def sample() -> list[tuple[str, Kind]]:
    """Every kind in two families, one family after the other."""
    chosen = [
        (family, kind)
        for place, kind in enumerate(KINDS)
        for family in (
            WITH_SHARED
            if kind == "shared_expert"
            else (FAMILIES[place % 4], FAMILIES[(place + 1 + place // 4) % 4])
        )
    ]
    return sorted(set(chosen), key=lambda case: (FAMILIES.index(case[0]), case[1]))


@cache
def subject_of(family: str) -> Subject:
    """Each family's model is made once."""
    return subject(family)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("matrix")


@pytest.mark.slow
@pytest.mark.parametrize(("family", "kind"), sample())
def test_a_fault_is_placed_and_proved(
    family: str, kind: Kind, scratch: Path, tmp_path: Path
) -> None:
    """Layer and size go round: first, middle and last, 1e-2 and gross."""
    tried = subject_of(family)
    trainer = scratch / family
    if not trainer.exists():
        capture(tried, trainer)
    turn = KINDS.index(kind) + FAMILIES.index(family)
    size: Size = "gross" if kind == "top_k" else SIZES[turn % 2]
    faults = list(faults_of(tried, trainer, kinds=[kind], sizes=(size,)))
    result = run_case(tried, faults[turn % len(faults)], trainer, tmp_path)
    assert result.above
    assert (result.found, result.proof) == (result.expected, "proved"), result.proof_text


@pytest.mark.slow
def test_two_rounding_units_are_nothing(tmp_path: Path) -> None:
    tried = subject("qwen2_moe")
    trainer = capture(tried, tmp_path / "b")
    for kind in ("attention", "gate_weights", "routed_experts"):
        result = run_case(tried, Fault(kind=kind, layer=1, size="2u"), trainer, tmp_path)
        assert (result.word, result.above) == ("below", False)
        assert result.rows > 30


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_clean_pairs_report_nothing(dtype: torch.dtype, tmp_path: Path) -> None:
    pairs = list(clean_pairs("qwen3_moe", dtype, tmp_path))
    assert {pair.name: pair.found for pair in pairs} == {pair.name: "" for pair in pairs}
    assert {"batch-floor", "softmax-order"} <= {pair.name for pair in pairs}
    # They do differ: a pair of equal bits would show nothing.
    assert sum((pair.kl or 0) > 0 for pair in pairs) >= 3
    assert {pair.comparison.summary["status"] for pair in pairs} == {"equal"}
