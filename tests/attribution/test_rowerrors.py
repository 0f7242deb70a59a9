"""Row errors in float64: worked by hand, and what NaN, Inf, zeros and ties count as."""

from __future__ import annotations

import math

import pytest
import torch

from workbench.attribution import rowerrors

EVERY = torch.ones(1, dtype=torch.bool)


def row(*values: float, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.tensor([values], dtype=dtype)


def test_relative_error_by_hand() -> None:
    # ‖(3, 4) - (0, 4)‖ / ‖(0, 4)‖ = 3/4
    assert rowerrors.relative(row(3, 4), row(0, 4), EVERY).item() == 0.75


def test_one_rounding_of_bfloat16_is_at_most_one_unit() -> None:
    # Between 1 and 1 + 2**-7 lies nothing: 1 + 2**-8 rounds to 1, off by 2**-8 / (1 + 2**-8).
    exact = row(1 + 2.0**-8)
    rounded = exact.to(torch.bfloat16)
    units = rowerrors.relative(rounded, exact, EVERY).item() / rowerrors.unit_of(torch.bfloat16)
    assert units == pytest.approx(1 / (1 + 2.0**-8))


def test_zero_against_zero_is_no_error_and_something_against_zero_has_no_bound() -> None:
    assert rowerrors.relative(row(0, 0), row(0, 0), EVERY).item() == 0
    assert rowerrors.relative(row(1, 0), row(0, 0), EVERY).item() == math.inf


def test_equal_nan_is_no_error_and_nan_on_one_side_is_infinite() -> None:
    nan, inf = math.nan, math.inf
    assert rowerrors.relative(row(nan, inf, 1), row(nan, inf, 1), EVERY).item() == 0
    assert rowerrors.relative(row(nan, 1), row(1, 1), EVERY).item() == math.inf
    assert rowerrors.relative(row(inf, 1), row(-inf, 1), EVERY).item() == math.inf


def test_rows_outside_the_mask_are_missing() -> None:
    assert rowerrors.relative(row(1), row(1), ~EVERY).isnan().item()


def test_blocks_of_a_wide_tensor_give_what_the_whole_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = torch.randn(7, 5), torch.randn(7, 5)
    mask = torch.tensor([True, False, True, True, True, False, True])
    whole, sums = rowerrors.relative(x, y, mask), rowerrors.projection(x, y, mask)
    monkeypatch.setattr(rowerrors, "_BLOCK", 10)
    assert torch.equal(rowerrors.relative(x, y, mask).nan_to_num(), whole.nan_to_num())
    assert rowerrors.projection(x, y, mask) == pytest.approx(sums)


def test_projection_gives_the_best_fit_scale() -> None:
    y = torch.randn(4, 8)
    xy, yy = rowerrors.projection(1.5 * y, y, torch.ones(4, dtype=torch.bool))
    assert xy / yy == pytest.approx(1.5)


def test_choice_gap_is_zero_for_the_same_set_in_another_order() -> None:
    scores = row(0.4, 0.3, 0.2, 0.1)
    assert rowerrors.choice_gap(scores, torch.tensor([[1, 0]]), torch.tensor([[0, 1]]), EVERY) == 0


def test_choice_gap_by_hand() -> None:
    # B chose 0 and 1, A chose 0 and 2: (0.3 - 0.2) / 0.3.
    scores = row(0.4, 0.3, 0.2, 0.1)
    gap = rowerrors.choice_gap(scores, torch.tensor([[0, 2]]), torch.tensor([[0, 1]]), EVERY)
    assert gap.item() == pytest.approx(1 / 3)


def test_choice_gap_of_a_tie_is_zero() -> None:
    scores = row(0.4, 0.3, 0.3, 0.1)
    assert rowerrors.choice_gap(scores, torch.tensor([[0, 2]]), torch.tensor([[0, 1]]), EVERY) == 0


def test_a_choice_that_was_masked_out_has_no_bound() -> None:
    scores = row(0.4, 0.3, -math.inf, 0.1)
    gap = rowerrors.choice_gap(scores, torch.tensor([[0, 2]]), torch.tensor([[0, 1]]), EVERY)
    assert gap.item() == math.inf


def test_float32_that_holds_only_bfloat16_values_counts_as_bfloat16() -> None:
    rounded = torch.randn(3, 4).to(torch.bfloat16).float()
    assert rowerrors.effective_unit(rounded, torch.bfloat16) == 2.0**-8
    assert rowerrors.effective_unit(rounded + 1e-4, torch.bfloat16) == 2.0**-24
    assert rowerrors.effective_unit(rounded, torch.float32) == 2.0**-24
