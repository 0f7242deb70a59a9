"""Who is outside: decided on columns worked by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from workbench.attribution.columns import Scratch
from workbench.attribution.judge import Finding, is_biased, judge
from workbench.attribution.mapping import Map, Scale, Tally

U = 2.0**-8
ROWS = 200
PLACE = (1, "routed_experts")


def judged(
    tmp_path: Path,
    *,
    a: np.ndarray | float,
    b: np.ndarray | float,
    local: np.ndarray | float | None = None,
    unit: float = U,
    alike: bool = True,
    scale_a: float = 1.0,
    scale_b: float = 1.0,
    seen: bool = True,
) -> Finding:
    scratch = Scratch(tmp_path, num_layers=2, num_rows=ROWS)
    rows = np.arange(ROWS)
    units_a, units_b = np.broadcast_to(a, ROWS), np.broadcast_to(b, ROWS)
    error = np.maximum(units_a, units_b) * unit if local is None else np.broadcast_to(local, ROWS)
    scratch.put(PLACE[1], "local", 1, rows, error)
    if seen:
        scratch.put(PLACE[1], "units_a", 1, rows, units_a)
        scratch.put(PLACE[1], "units_b", 1, rows, units_b)
    tally = Tally(unit=unit, alike=alike, a=Scale(scale_a, 1.0), b=Scale(scale_b, 1.0))
    found = Map(scratch, {PLACE: tally})
    (finding,) = judge(found, hidden_size=64, top_k=2, includes={})
    return finding


def one_row(usual: float, odd: float) -> np.ndarray:
    values = np.full(ROWS, usual)
    values[7] = odd
    return values


def test_two_sides_near_one_unit_are_both_fine(tmp_path: Path) -> None:
    finding = judged(tmp_path, a=1.4, b=0.9)
    assert (finding.over, finding.who) == (0, "neither")
    assert finding.limit == pytest.approx(2.25)
    assert finding.first_row is None


@pytest.mark.parametrize(("a", "b", "who"), [(9.0, 0.9, "A"), (0.9, 9.0, "B")])
def test_the_side_far_above_the_other_is_outside(
    a: float, b: float, who: str, tmp_path: Path
) -> None:
    finding = judged(tmp_path, a=a, b=b)
    assert (finding.over, finding.who) == (ROWS, who)
    assert finding.first_row == 0


def test_one_bad_row_is_found_and_named(tmp_path: Path) -> None:
    finding = judged(tmp_path, a=one_row(1.0, 50.0), b=1.0)
    assert (finding.over, finding.who, finding.first_row, finding.worst_row) == (1, "A", 7, 7)


def test_a_row_that_is_hard_for_both_is_nobodys_fault(tmp_path: Path) -> None:
    finding = judged(tmp_path, a=one_row(1.0, 60.0), b=one_row(1.0, 30.0))
    assert (finding.over, finding.who) == (0, "neither")


def test_both_can_be_outside(tmp_path: Path) -> None:
    a, b = np.full(ROWS, 1.0), np.full(ROWS, 1.0)
    a[2], b[5] = 40.0, 40.0
    assert judged(tmp_path, a=a, b=b).who == "both"


def test_equal_bits_are_never_beyond_even_when_far_from_the_truth(tmp_path: Path) -> None:
    assert judged(tmp_path, a=500.0, b=500.0, local=0.0).over == 0


def test_without_an_arbiter_the_derived_budget_decides_and_nobody_is_named(tmp_path: Path) -> None:
    quiet = judged(tmp_path, a=0.0, b=0.0, local=0.03, seen=False)
    assert (quiet.over, quiet.who, quiet.limit) == (0, "neither", None)
    loud = judged(tmp_path, a=0.0, b=0.0, local=0.05, seen=False)
    assert (loud.over, loud.who) == (ROWS, "unknown")
    # 6 * 0.4246 * sqrt(2 * (7 + 2 - 1)) units, and two inner products of 64 in float32 beside it.
    assert quiet.budget == pytest.approx(0.0398, rel=1e-2)


def test_nan_on_one_side_is_beyond(tmp_path: Path) -> None:
    bad = one_row(1.0, np.inf)
    finding = judged(tmp_path, a=bad, b=1.0, local=bad * U)
    assert (finding.over, finding.who, finding.worst_row) == (1, "A", 7)
    assert finding.largest == pytest.approx(U)


def test_a_finer_type_on_one_side_does_not_sharpen_the_other(tmp_path: Path) -> None:
    """A in bfloat16 beside B in float32: B's error in A's units says nothing of A."""
    assert judged(tmp_path, a=4.0, b=1e-5, alike=False).who == "neither"
    assert judged(tmp_path, a=4.0, b=1e-5, alike=True).who == "A"


def test_a_factor_on_one_side_is_outside(tmp_path: Path) -> None:
    finding = judged(tmp_path, a=2.2, b=0.9, scale_a=1 + 2 * U)
    assert (finding.who, finding.systematic, finding.over) == ("A", True, ROWS)


def test_cutting_digits_off_leans_and_is_no_fault(tmp_path: Path) -> None:
    finding = judged(tmp_path, a=1.6, b=0.9, scale_a=1 - 1.44 * U)
    assert (finding.who, finding.systematic, finding.over) == ("neither", False, 0)
    assert finding.bias_a == pytest.approx(-1.44)


def test_a_bias_counts_only_beyond_what_so_few_rows_leave_over() -> None:
    assert is_biased(-1.44, 1000)
    assert not is_biased(-1.44, 10)
    assert not is_biased(0.2, 10**6)
    assert not is_biased(None, 1000)
