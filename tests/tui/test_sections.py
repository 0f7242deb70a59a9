from dataclasses import replace

import numpy as np
import pytest

from tests.view.synthetic import make_source
from tui import sections
from workbench.view.inspector import CellFacts, match_experts
from workbench.view.model import ViewModel


def facts_with(ids_a: list[int], ids_b: list[int]) -> CellFacts:
    facts = ViewModel(make_source(flips=((1, 5),))).cell_facts()
    assert facts.router is not None
    scores = np.linspace(9, 0, 128, dtype=np.float32)
    a, b = np.array(ids_a, np.int32), np.array(ids_b, np.int32)
    experts = match_experts(a, b, scores[a], scores[b], scores, scores)
    return replace(facts, router=replace(facts.router, experts=experts))


def texts(lines: list[sections.Line]) -> list[str]:
    return ["".join(segment.text for segment in line) for line in lines]


@pytest.mark.parametrize("height", [6, 8, 12, 20])
def test_experts_on_one_side_only_are_never_left_out(height: int) -> None:
    shared = list(range(7))
    lines = texts(sections.experts(facts_with([*shared, 100], [*shared, 101]), 43, height))
    assert any(line.startswith(" A 100") for line in lines)
    assert any(line.startswith(" B 101") for line in lines)
    shown = sum(line[:6].strip().isdigit() for line in lines)
    left_out = next((int(line.split()[1]) for line in lines if "more on both" in line), 0)
    assert shown + left_out == len(shared)


@pytest.mark.parametrize("width", [35, 43, 60])
def test_no_line_is_wider_than_its_section(width: int) -> None:
    facts = facts_with([1, 100], [1, 101])
    for part in (sections.sites(facts, width), sections.logprob(facts, width)):
        assert all(len(line) <= width for line in texts(part))
    if width >= 43:
        assert all(len(line) <= width for line in texts(sections.experts(facts, width, 20)))


def test_a_profile_longer_than_the_line_is_pooled_by_the_largest() -> None:
    facts = replace(facts_with([1, 2], [1, 2]), profile_L=(1e-6,) * 95 + (1.0,), layer=95)
    line = texts(sections.profile(facts, 43))[1]
    assert line.endswith("█ L95")
    assert len(line) <= 43


def test_nan_in_a_profile_survives_pooling() -> None:
    values = (1e-6,) * 50 + (float("nan"),) + (1e-6,) * 45
    facts = replace(facts_with([1, 2], [1, 2]), profile_L=values)
    assert "×" in texts(sections.profile(facts, 43))[1]
