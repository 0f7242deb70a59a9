import math

import ml_dtypes
import numpy as np

from workbench.view.inspector import margin, match_experts


def ids(*experts: int) -> np.ndarray:
    return np.array(experts, np.int32)


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_experts_are_matched_by_id_and_never_by_slot() -> None:
    rows = match_experts(ids(1, 5), ids(3, 1), floats(0.6, 0.4), floats(0.45, 0.55), None, None)
    assert [(r.expert, r.on, r.rank_a, r.rank_b) for r in rows] == [
        (1, "both", 1, 1),
        (5, "A", 2, None),
        (3, "B", None, 2),
    ]
    assert rows[0].gate_a == np.float32(0.6)
    assert rows[0].gate_b == np.float32(0.55)
    assert rows[1].gate_b is None


def test_ranks_follow_the_scores_when_there_are_scores() -> None:
    logits = floats(0.0, 3.0, 0.0, 0.0, 0.0, 9.0)
    rows = match_experts(ids(1, 5), ids(5, 1), floats(0.9, 0.1), floats(0.9, 0.1), logits, logits)
    assert [(r.expert, r.rank_a, r.rank_b) for r in rows] == [(5, 1, 1), (1, 2, 2)]
    assert rows[0].logit_a == 9.0


def test_an_expert_that_a_side_rejected_still_shows_its_score_there() -> None:
    logits_a, logits_b = floats(2.0, 1.0, 0.9), floats(2.0, 0.9, 1.0)
    rows = match_experts(ids(0, 1), ids(0, 2), None, None, logits_a, logits_b)
    only_a = next(r for r in rows if r.on == "A")
    assert (only_a.expert, only_a.logit_a, only_a.logit_b) == (1, 1.0, float(np.float32(0.9)))


def test_equal_gates_keep_the_slot_order() -> None:
    rows = match_experts(ids(4, 2), ids(2, 4), floats(0.5, 0.5), floats(0.5, 0.5), None, None)
    assert [(r.expert, r.rank_a, r.rank_b) for r in rows] == [(4, 1, 2), (2, 2, 1)]


def test_a_nan_gate_ranks_last_and_stays_visible() -> None:
    rows = match_experts(ids(1, 2), ids(1, 2), floats(math.nan, 0.1), floats(0.9, 0.1), None, None)
    by_id = {r.expert: r for r in rows}
    assert by_id[1].rank_a == 2
    assert by_id[1].gate_a is not None
    assert math.isnan(by_id[1].gate_a)


def test_empty_slots_and_missing_sides_are_left_out() -> None:
    rows = match_experts(ids(3, -1), None, floats(1.0, 0.0), None, None, None)
    assert [(r.expert, r.on, r.rank_b) for r in rows] == [(3, "A", None)]
    assert match_experts(None, None, None, None, None, None) == ()


def test_bfloat16_vectors_are_read_as_they_are_stored() -> None:
    weights = np.array([0.25, 0.75], ml_dtypes.bfloat16)
    logits = np.array([0.0, 1.0, 2.5], ml_dtypes.bfloat16)
    rows = match_experts(ids(1, 2), ids(1, 2), weights, weights, logits, logits)
    assert [(r.expert, r.gate_a, r.logit_a) for r in rows] == [(2, 0.75, 2.5), (1, 0.25, 1.0)]


def test_a_margin_is_counted_in_units_of_the_last_place_of_its_type() -> None:
    # At 1.0 a bfloat16 step is 2**-7.
    logits = np.array([3.0, 1.0, 0.984375], np.float32)
    found = margin(0.015625, logits, [0, 1], "bfloat16")
    assert found.ulps == 2.0


def test_a_margin_without_scores_has_no_ulps() -> None:
    assert math.isnan(margin(0.1, None, [0], "").ulps)
    assert math.isnan(margin(0.1, np.array([1, 2], np.int32), [0], "int32").ulps)
    assert margin(None, np.array([1.0], np.float32), [0], "float32").gap is None
