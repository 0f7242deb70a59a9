"""Two vectors compared: hand-worked sizes, ULPs, shares, and what has no size."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.captures import ROLLOUT, TRAINER, Toy, make_pair
from workbench.comparison.result import Comparison, open_comparison
from workbench.comparison.run import compare
from workbench.names import LAYER_SITES, LOGPROBS
from workbench.view.drill.vectors import (
    MOST_COMPONENTS,
    compare_vectors,
    gate_facts,
    vector_facts,
)
from workbench.view.walk import Stop

BF16 = ml_dtypes.bfloat16


def floats(*values: float, dtype: type = np.float32) -> np.ndarray:
    return np.array(values, dtype)


def test_sizes_and_shares_are_a_minus_b() -> None:
    found = compare_vectors(floats(1.0, 5.0, 2.0), floats(1.0, 2.0, 6.0))
    assert not found.bit_equal
    assert (found.size, found.differing) == (3, 2)
    assert found.max_abs == 4.0
    assert found.rel_l2 == pytest.approx(5 / math.sqrt(41))
    assert found.norm_a == pytest.approx(math.sqrt(30))
    first, second = found.components
    assert (first.place, first.a - first.b) == (2, -4.0)
    assert (second.place, second.a - second.b) == (1, 3.0)
    assert [first.share, second.share] == pytest.approx([16 / 25, 9 / 25])


def test_equal_vectors_are_equal_and_have_no_components() -> None:
    found = compare_vectors(floats(1.0, -0.5), floats(1.0, -0.5))
    assert found.bit_equal
    assert found.components == ()
    assert [(b.label, b.num) for b in found.histogram] == [("0", 2)]
    assert (found.rel_l2, found.cosine) == (0.0, 1.0)


def test_ulps_are_counted_and_binned() -> None:
    # At 1.0 a bfloat16 step is 2**-7.
    b = np.ones(6, BF16)
    steps = np.array([0, 1, 2, 3, 5, 9])
    found = compare_vectors((1 + steps / 128).astype(BF16), b)
    assert [c.ulps for c in found.components] == [9, 5, 3, 2, 1]
    bins = {b.label: b.num for b in found.histogram}
    assert bins == {"0": 1, "1": 1, "2": 1, "3–4": 1, "5–8": 1, "9–16": 1}


@pytest.mark.parametrize(
    ("ulps", "label"), [(4, "3–4"), (8, "5–8"), (16, "9–16"), (1024, "513–1024"), (1025, "more")]
)
def test_the_upper_end_of_a_bin_belongs_to_it(ulps: int, label: str) -> None:
    a = np.array([1.0 + ulps * 2.0**-23], np.float32)
    found = compare_vectors(a, floats(1.0))
    assert found.components[0].ulps == ulps
    assert found.histogram[-1] == (label, 1)


def test_ulps_are_of_the_coarser_type() -> None:
    a = np.array([1.0 + 2.0**-7, 1.0 + 2.0**-20], np.float32)
    found = compare_vectors(a, np.ones(2, BF16))
    assert found.coarser == "bfloat16"
    assert {c.place: c.ulps for c in found.components} == {0: 1, 1: 0}


def test_widened_bfloat16_is_counted_in_its_own_steps() -> None:
    a, b = floats(1.0 + 3 / 128, -0.0, -1.0), floats(1.0, 0.0, 1.0)
    found = compare_vectors(a, b, ("bfloat16", "bfloat16"))
    stored = compare_vectors(a.astype(BF16), b.astype(BF16))
    assert [c.ulps for c in found.components] == [c.ulps for c in stored.components]
    assert found.coarser == "bfloat16"
    assert found.components[1].ulps == 3
    mixed = compare_vectors(floats(1.0 + 2.0**-20), floats(1.0), ("float32", "bfloat16"))
    assert mixed.components[0].ulps == 0


def test_types_that_differ_are_equal_when_every_value_is() -> None:
    assert compare_vectors(floats(1.5, -2.0), floats(1.5, -2.0, dtype=BF16)).bit_equal


def test_the_two_zeros_differ_in_bits_alone() -> None:
    found = compare_vectors(floats(0.0, 1.0), floats(-0.0, 1.0))
    assert not found.bit_equal
    assert found.differing == 1
    assert (found.components[0].ulps, found.components[0].share) == (1, None)
    assert found.rel_l2 == 0.0


def test_nan_and_inf_come_first_and_take_no_share() -> None:
    a = floats(1.0, math.nan, math.inf, math.inf, 3.0)
    b = floats(2.0, math.nan, math.inf, 1.0, math.nan)
    found = compare_vectors(a, b)
    assert (found.nonfinite_a, found.nonfinite_b) == (3, 3)
    assert found.rel_l2 == math.inf
    # NaN on both and Inf on both differ by nothing.
    assert [c.place for c in found.components] == [3, 4, 0]
    assert [c.ulps for c in found.components[:2]] == [None, None]
    assert found.components[2].share == 1.0
    assert found.histogram[-1] == ("NaN/Inf", 4)


def test_one_factor_is_found_where_it_explains_the_error() -> None:
    b = floats(1.0, -2.0, 3.0, 0.5)
    found = compare_vectors(b * np.float32(1.02), b)
    assert found.scale_hint == pytest.approx(1.02, rel=1e-6)
    assert found.scale_share > 0.999
    noise = compare_vectors(b + floats(0.1, 0.1, 0.0, -0.2), b)
    assert noise.scale_hint is None


def test_a_zero_vector_has_no_factor() -> None:
    found = compare_vectors(floats(1.0, 1.0), floats(0.0, 0.0))
    assert (found.scale, found.scale_hint) == (None, None)
    assert (found.rel_l2, found.cosine) == (math.inf, 0.0)
    assert compare_vectors(floats(0.0), floats(0.0)).cosine == 1.0


def test_empty_vectors_are_equal() -> None:
    found = compare_vectors(floats(), floats())
    assert found.bit_equal
    assert found.size == 0


def test_what_one_side_has_alone_is_left_out_and_counted() -> None:
    found = compare_vectors(floats(1.0, 2.0, 3.0), floats(1.0, 2.0))
    assert (found.size, found.left_out, found.differing) == (2, 1, 0)
    assert not found.bit_equal


def test_ids_have_no_distance() -> None:
    found = compare_vectors(np.array([3, 1], np.int32), np.array([3, 5], np.int32))
    assert found.integer
    assert found.differing == 1
    assert [c.ulps for c in found.components] == [None, None]


def test_gates_are_matched_by_expert_and_not_by_slot() -> None:
    found = gate_facts(
        np.array([4, 2, -1]), floats(0.75, 0.25, 0.0), np.array([2, 4, 7]), floats(0.25, 0.5, 0.25)
    )
    assert found.by_expert
    assert [(c.place, c.a, c.b) for c in found.components] == [(4, 0.75, 0.5), (7, 0.0, 0.25)]
    assert found.size == 3


def test_a_long_vector_lists_the_largest_and_counts_the_rest() -> None:
    size = MOST_COMPONENTS + 50
    found = compare_vectors(np.arange(size, dtype=np.float32) + 1, np.zeros(size, np.float32))
    assert found.differing == size
    assert len(found.components) == MOST_COMPONENTS
    assert found.components[0].place == size - 1


@given(
    st.lists(st.tuples(st.floats(width=32), st.floats(width=32)), min_size=1, max_size=40),
)
def test_every_component_is_in_one_bin(values: list[tuple[float, float]]) -> None:
    a, b = (np.array(side, np.float32) for side in zip(*values, strict=True))
    found = compare_vectors(a, b)
    assert sum(b.num for b in found.histogram) == len(values)
    shares = [c.share for c in found.components if c.share is not None]
    assert sum(shares) <= 1 + 1e-9


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    directory: Path = tmp_path_factory.mktemp("vectors")
    toy = Toy(num_layers=2, hidden=32, lengths=(5, 4), prompt=2)
    a = replace(ROLLOUT, dtype="bfloat16", rounding="often", sampled_last=True)
    pair = make_pair(directory, toy=toy, a=a, b=replace(TRAINER, dtype="bfloat16"))
    return compare(pair.a, pair.b, out=directory / "comparison")


def test_what_is_drilled_into_agrees_with_what_was_measured(comparison: Comparison) -> None:
    line = comparison.metrics(1, 3)
    for site in LAYER_SITES:
        if site in ("topk_ids", "shared_out"):
            continue
        found = vector_facts(comparison, Stop(1, 3, site))
        assert found.rel_l2 == pytest.approx(line[f"{site}.rel_l2"], rel=1e-5, abs=1e-9)
        assert found.max_abs == pytest.approx(line[f"{site}.max_abs"], rel=1e-6)
        assert max((c.ulps or 0 for c in found.components), default=0) == line[f"{site}.max_ulp"]
    found = vector_facts(comparison, Stop(1, 3, "logits"))
    assert found.rel_l2 == pytest.approx(comparison.rows["logits.rel_l2"][3], rel=1e-5)


def test_a_row_that_a_side_did_not_compute_says_which_side(comparison: Comparison) -> None:
    assert vector_facts(comparison, Stop(1, 4, "output")).problem.startswith("side A recorded no")


def test_a_logprob_is_no_vector(comparison: Comparison) -> None:
    assert "one number" in vector_facts(comparison, Stop(1, 3, LOGPROBS)).problem


def test_a_moved_capture_is_said_and_what_to_do(tmp_path: Path) -> None:
    pair = make_pair(tmp_path, toy=Toy(num_layers=1, hidden=32, lengths=(4,), prompt=2))
    compare(pair.a, pair.b, out=tmp_path / "comparison")
    opened = open_comparison(tmp_path / "comparison")
    pair.a.rename(tmp_path / "elsewhere")
    problem = vector_facts(opened, Stop(0, 1, "output")).problem
    assert "the capture of side A is not where it was compared; move it back" in problem
