"""Bisection: the smallest enough set, in about log2 n questions, resumable from its log."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.attribution.matrix import Subject, capture, subject
from workbench.attribution.bench import Bench
from workbench.attribution.bisect import LOG_NAME, Bisection, bisect_modules
from workbench.attribution.experiments import bisect
from workbench.attribution.minimise import smallest_enough
from workbench.capture.structure import find_parts
from workbench.comparison.result import Comparison
from workbench.comparison.run import compare
from workbench.errors import CaptureError
from workbench.faults import Fault, inject


class Questions:
    """Answers whether a set holds every culprit, and counts."""

    def __init__(self, culprits: set[int]) -> None:
        self.culprits, self.count = culprits, 0

    def __call__(self, kept: frozenset[int]) -> bool:
        self.count += 1
        return self.culprits <= kept


@pytest.mark.parametrize("num_items", [1, 2, 3, 39, 64, 1000])
def test_one_culprit_takes_log2_n_questions_and_one_more(num_items: int) -> None:
    for culprit in {0, num_items // 3, num_items - 1}:
        enough = Questions({culprit})
        assert smallest_enough(range(num_items), enough) == [culprit]
        assert enough.count <= math.ceil(math.log2(num_items)) + 1


@given(
    st.integers(1, 60).flatmap(
        lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1), min_size=1, max_size=4))
    )
)
def test_exactly_the_culprits_are_found(case: tuple[int, set[int]]) -> None:
    num_items, culprits = case
    enough = Questions(culprits)
    assert smallest_enough(range(num_items), enough) == sorted(culprits)
    per_culprit = math.ceil(math.log2(max(2, num_items))) + 2
    assert enough.count <= len(culprits) * per_culprit


@given(st.integers(2, 9), st.randoms(use_true_random=False))
def test_what_comes_out_is_enough_whatever_the_answers(num_items: int, random: object) -> None:
    """Swaps interact: a larger set may leave more than a smaller one."""
    whole = frozenset(range(num_items))
    answers = {whole: True}

    def enough(kept: frozenset[int]) -> bool:
        return answers.setdefault(kept, random.random() < 0.5)  # type: ignore[attr-defined]

    found = smallest_enough(range(num_items), enough)
    assert answers[frozenset(found)]


def test_a_culprit_that_another_makes_superfluous_is_dropped() -> None:
    def enough(kept: frozenset[int]) -> bool:
        # 5 alone is enough; without it, 2 and 7 together are.
        return 5 in kept or {2, 7} <= kept

    assert smallest_enough(range(8), enough) == [5]


@pytest.fixture(scope="module")
def tried() -> Subject:
    return subject("qwen2_moe", torch.bfloat16)


@pytest.fixture(scope="module")
def captures(tried: Subject, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Every module of A rounds otherwise, and the attention of layer 1 is wrong."""
    scratch = tmp_path_factory.mktemp("bisect")
    fault = Fault(kind="attention", layer=1, size="gross")
    with inject(tried.model, Fault(kind="batch-floor")):
        context = inject(tried.model, fault)
        a = capture(tried, scratch / "a", path="rollout", context=context)
    return a, capture(tried, scratch / "b")


@pytest.fixture
def comparison(captures: tuple[Path, Path], tmp_path: Path) -> Comparison:
    return compare(*captures, out=tmp_path / "comparison")


def search(
    comparison: Comparison, tried: Subject, threshold: float, *, fresh: bool = False
) -> Bisection:
    with torch.no_grad():
        bench = Bench(comparison, find_parts(tried.model))
        log = comparison.directory / LOG_NAME
        return bisect_modules(bench, threshold=threshold, log=log, fresh=fresh)


@pytest.mark.slow
def test_a_single_fault_among_rounding_is_found_in_log_passes(
    comparison: Comparison, tried: Subject
) -> None:
    found = search(comparison, tried, threshold=comparison.summary["kl"]["exact_mean"] / 10)
    assert found.state == "found"
    assert found.modules == ((1, "attention"),)
    assert found.candidates >= 8
    # One pass for the KL as it is, one with everything swapped, one for the answer alone.
    assert found.forward_passes <= math.ceil(math.log2(found.candidates)) + 3
    assert found.kl_everything == 0.0


@pytest.mark.slow
def test_an_interrupted_search_goes_on_where_it_stopped(
    comparison: Comparison, tried: Subject
) -> None:
    threshold = comparison.summary["kl"]["exact_mean"] / 10
    whole = search(comparison, tried, threshold)
    log = comparison.directory / LOG_NAME
    lines = log.read_text().splitlines()
    # Killed in the middle of writing the fourth answer.
    log.write_text("\n".join(lines[:4]) + "\n" + lines[4][:10])
    again = search(comparison, tried, threshold)
    assert again.modules == whole.modules
    assert again.asked == whole.asked
    assert again.forward_passes == whole.forward_passes - 3
    assert all(isinstance(json.loads(line), dict) for line in log.read_text().splitlines())
    # With all answers known, nothing is run: another threshold costs only what is new.
    assert search(comparison, tried, threshold).forward_passes == 0
    assert search(comparison, tried, threshold, fresh=True).forward_passes > 3


@pytest.mark.slow
def test_below_the_threshold_one_pass_is_enough(comparison: Comparison, tried: Subject) -> None:
    found = search(comparison, tried, threshold=1e9)
    assert (found.state, found.modules, found.forward_passes) == ("below", (), 1)


@pytest.mark.slow
def test_the_log_of_another_comparison_is_refused(
    comparison: Comparison, captures: tuple[Path, Path], tried: Subject, tmp_path: Path
) -> None:
    search(comparison, tried, threshold=1e9)
    other = compare(captures[1], captures[1], out=tmp_path / "other")
    (comparison.directory / LOG_NAME).rename(other.directory / LOG_NAME)
    with pytest.raises(CaptureError, match="another model or other rows"):
        search(other, tried, threshold=1e9)


@pytest.mark.slow
def test_the_result_is_kept_in_the_summary(comparison: Comparison, tried: Subject) -> None:
    steps: list[str] = []
    threshold = comparison.summary["kl"]["exact_mean"] / 10
    found = bisect(comparison, tried.model, threshold=threshold, progress=steps.append)
    summary = json.loads((comparison.directory / "comparison.json").read_text())
    assert summary["bisection"]["modules"] == [{"layer": 1, "module": "attention"}]
    assert summary["bisection"]["forward_passes"] == found.forward_passes
    assert sum(step.startswith("step ") for step in steps) == found.asked
