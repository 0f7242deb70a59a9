"""Routing metrics and the judgement of flips, worked by hand and against sets."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.comparison import flips
from workbench.comparison.flips import RouterFacts, judge
from workbench.comparison.routing import (
    Decisions,
    compare_scores,
    compare_sets,
    flip_evidence,
    is_own_top_k,
    match_gates,
    match_slots,
)

FACTS = RouterFacts(
    pair_norm=2.0, hidden_size=16, roundoff=2.0**-24, scoring="softmax", by_logits=True
)


def ids(*rows: list[int]) -> np.ndarray:
    return np.array(rows, np.int32)


def f32(*rows: list[float]) -> np.ndarray:
    return np.array(rows, np.float32)


def test_sets_orders_and_flips() -> None:
    found = compare_sets(ids([3, 1], [3, 1], [3, 1], [3, 1]), ids([3, 1], [1, 3], [3, 2], [5, 2]))
    assert found.set_equal.tolist() == [True, True, False, False]
    assert found.order_equal.tolist() == [True, False, False, False]
    assert found.num_flips.tolist() == [0, 0, 1, 2]


def test_empty_slots_are_no_experts() -> None:
    found = compare_sets(ids([3, -1], [3, -1]), ids([3, -1], [3, 4]))
    assert found.set_equal.tolist() == [True, False]
    assert found.num_flips.tolist() == [0, 1]


def test_sides_may_have_other_numbers_of_slots() -> None:
    found = compare_sets(ids([3, 1]), ids([1, 3, -1]))
    assert found.set_equal.tolist() == [True]
    assert found.order_equal.tolist() == [False]


experts = st.lists(st.integers(0, 9), min_size=4, max_size=4, unique=True)


@given(experts, experts)
def test_matching_agrees_with_python_sets(a: list[int], b: list[int]) -> None:
    found = compare_sets(ids(a), ids(b))
    assert found.set_equal[0] == (set(a) == set(b))
    assert found.num_flips[0] == len(set(a) - set(b))
    assert found.order_equal[0] == (a == b)
    expected = [b.index(e) if e in b else -1 for e in a]
    assert match_slots(ids(a), ids(b))[0].tolist() == expected


@given(experts, st.permutations(range(4)))
def test_order_of_slots_never_changes_gates(a: list[int], order: list[int]) -> None:
    weights = f32([0.4, 0.3, 0.2, 0.1])
    found = match_gates(ids(a), weights, ids([a[i] for i in order]), weights[:, order])
    assert found.mass_moved[0] == 0
    assert found.a.tolist() == found.b.tolist()


def test_gates_are_matched_by_expert_id() -> None:
    found = match_gates(ids([7, 2]), f32([0.6, 0.4]), ids([2, 5]), f32([0.5, 0.5]))
    # expert 7: 0.6 against 0, expert 2: 0.4 against 0.5, expert 5: 0 against 0.5
    assert found.mass_moved[0] == pytest.approx(0.5 * (0.6 + 0.1 + 0.5), rel=1e-6)
    assert found.a[0].tolist() == pytest.approx([0.6, 0.4, 0, 0])
    assert found.b[0].tolist() == pytest.approx([0, 0.5, 0, 0.5])


def test_margin_is_between_the_last_selected_and_the_first_rejected() -> None:
    found = compare_scores(f32([5, 1, 4, 2]), f32([5, 4, 4, 2]), 2)
    assert found.margin_a.tolist() == [2]
    assert found.margin_b.tolist() == [0]


def test_no_margin_without_a_rejected_expert_or_with_nan() -> None:
    assert np.isnan(compare_scores(f32([5, 1]), f32([5, 1]), 2).margin_a[0])
    assert np.isnan(compare_scores(f32([5, 1, 0]), f32([5, 1, 0]), 0).margin_a[0])
    nan = compare_scores(f32([np.nan, 1, 0]), f32([5, 1, 0]), 1)
    assert np.isnan(nan.margin_a[0])
    assert nan.margin_b[0] == 4


def test_router_kl_by_hand() -> None:
    # p = (1/2, 1/2), q = (3/4, 1/4): KL = 1/2 ln(2/3) + 1/2 ln 2
    found = compare_scores(f32([0, 0]), f32([math.log(3), 0]), 1)
    assert found.kl[0] == pytest.approx(0.5 * math.log(2 / 3) + 0.5 * math.log(2), rel=1e-6)
    assert compare_scores(f32([1, 2]), f32([1, 2]), 1).kl[0] == 0
    # A shift of all scores changes nothing but rounding.
    assert compare_scores(f32([1, 2]), f32([101, 102]), 1).kl[0] <= 1e-15


@pytest.mark.parametrize("size", [1e-7, 1e-4, 0.05, 0.2, 3.0])
def test_router_kl_agrees_with_its_definition_at_every_size(size: float) -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((50, 16)).astype(np.float32)
    b = (a + size * rng.standard_normal((50, 16))).astype(np.float32)
    exact = np.longdouble
    p, q = (np.exp(v.astype(exact)) for v in (a, b))
    p, q = p / p.sum(axis=1, keepdims=True), q / q.sum(axis=1, keepdims=True)
    expected = (p * np.log(p / q)).sum(axis=1).astype(np.float64)
    # Float32 weights and the series cost 1e-6; what extended precision cancels, 1e-18.
    np.testing.assert_allclose(compare_scores(a, b, 2).kl, expected, rtol=2e-6, atol=1e-18)


def flip(
    a: list[float], b: list[float], ids_a: list[int], ids_b: list[int], facts: RouterFacts = FACTS
) -> flips.Judgement:
    evidence = flip_evidence(
        Decisions(ids(ids_a), f32(a)), Decisions(ids(ids_b), f32(b)), facts.scoring
    )
    return judge(evidence, np.array([0.3]), facts)


def test_a_flip_within_reach_of_the_input_is_explained() -> None:
    # A: 1 over 2 by 0.1. B: 2 over 1 by 0.2. Needed 0.3; the input can move 2.0 * 0.3 = 0.6.
    found = flip([5, 1.1, 1.0], [5, 1.0, 1.2], [0, 1], [0, 2])
    assert found.needed[0] == pytest.approx(0.3, rel=1e-6)
    assert found.bound[0] == pytest.approx(0.6, rel=1e-4)
    assert found.explained.tolist() == [1]


def test_a_flip_out_of_reach_is_unexplained() -> None:
    found = flip([5, 2.1, 1.0], [5, 1.0, 1.2], [0, 1], [0, 2])
    assert found.needed[0] == pytest.approx(1.3, rel=1e-6)
    assert found.explained.tolist() == [0]
    assert found.reason.tolist() == [flips.TOO_FAR]


def test_the_worst_pair_counts() -> None:
    # Only A: experts 0 and 1; only B: 2 and 3. Largest move is 0 against 3: (4-0) + (4-0) = 8.
    found = flip([4, 1, 0.5, 0], [0, 0.5, 1, 4], [0, 1], [3, 2])
    assert found.needed[0] == pytest.approx(8)


def test_a_tie_needs_nothing_from_the_input() -> None:
    found = flip([5, 1, 1], [5, 1, 1], [0, 1], [0, 2], replace(FACTS, pair_norm=None))
    assert found.needed[0] == 0
    assert found.explained.tolist() == [1]


def test_without_a_norm_or_an_input_nothing_is_judged() -> None:
    found = flip([5, 1.1, 1.0], [5, 1.0, 1.2], [0, 1], [0, 2], replace(FACTS, pair_norm=None))
    assert (found.explained.tolist(), found.reason.tolist()) == ([-1], [flips.NO_NORM])
    evidence = flip_evidence(
        Decisions(ids([0, 1]), f32([5, 1.1, 1.0])),
        Decisions(ids([0, 2]), f32([5, 1.0, 1.2])),
        "softmax",
    )
    unknown = judge(evidence, np.array([np.nan]), FACTS)
    assert (unknown.explained.tolist(), unknown.reason.tolist()) == ([-1], [flips.NO_INPUT])


def test_a_side_that_ignores_its_own_scores_is_unexplained() -> None:
    found = flip([5, 1.1, 1.0], [5, 1.1, 1.0], [0, 1], [1, 2])
    assert (found.explained.tolist(), found.reason.tolist()) == ([0], [flips.NOT_OWN])


def test_with_a_selection_bias_only_proofs_of_the_contrary_count() -> None:
    biased = replace(FACTS, by_logits=False, scoring="sigmoid")
    within = flip([5, 1.0, 1.1], [5, 1.0, 1.2], [0, 1], [0, 2], biased)
    assert (within.explained.tolist(), within.reason.tolist()) == ([-1], [flips.NOT_BY_LOGITS])
    same = flip([5, 1.0, 1.1], [5, 1.0, 1.1], [0, 1], [0, 2], biased)
    assert (same.explained.tolist(), same.reason.tolist()) == ([0], [flips.SAME_SCORES])
    # Expert 1 fell on the side that chose it: with one bias on both sides that cannot be.
    against = flip([5, 1.0, 1.3], [5, 1.2, 1.1], [0, 1], [0, 2], biased)
    assert (against.explained.tolist(), against.reason.tolist()) == ([0], [flips.AGAINST])


def test_rounding_of_stored_scores_covers_a_near_tie() -> None:
    coarse = 2.0**-8
    found = flip(
        [5, 1.0, 0.999],
        [5, 0.999, 1.0],
        [0, 1],
        [0, 2],
        replace(FACTS, pair_norm=0.0, roundoff=coarse),
    )
    assert found.bound[0] >= 4 * coarse * 5
    assert found.explained.tolist() == [1]
    fine = flip([5, 1.0, 0.999], [5, 0.999, 1.0], [0, 1], [0, 2], replace(FACTS, pair_norm=0.0))
    assert fine.explained.tolist() == [0]


def test_own_top_k_allows_ties_and_never_nan() -> None:
    scores = f32([3, 2, 2, 1], [3, 2, 2, 1], [3, 2, 2, 1], [3, np.nan, 2, 1])
    chosen = ids([0, 1], [0, 2], [0, 3], [0, 1])
    assert is_own_top_k(Decisions(chosen, scores)).tolist() == [True, True, False, False]


def test_ids_out_of_range_select_nothing() -> None:
    evidence = flip_evidence(
        Decisions(ids([0, 99]), f32([1, 2, 3])), Decisions(ids([0, 2]), f32([1, 2, 3])), "softmax"
    )
    assert np.isnan(evidence.needed[0])


@pytest.mark.parametrize(("strange", "expected"), [(0, True), (1, True), (5, False)])
def test_what_unflipped_rows_select_tells_whether_logits_decide(
    strange: int, expected: bool
) -> None:
    own = np.ones(100, np.bool_)
    own[:strange] = False
    equal = np.ones(100, np.bool_)
    assert flips.follows_logits(equal, own, own, declared_bias=False) is expected
    assert flips.follows_logits(equal, own, own, declared_bias=True) is False
    # Strange on one side alone is a finding about that side, not about the model.
    assert flips.follows_logits(equal, own, np.ones(100, np.bool_), declared_bias=False) is True
