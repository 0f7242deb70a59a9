"""Budgets: what they are derived from, and that they order as rounding does."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from workbench.comparison.tolerance import (
    LAMBDA,
    RMS_ROUNDING,
    U32,
    Precision,
    budgets,
    coarsest,
    resolve_profile,
)
from workbench.errors import UsageError

SMALL = Precision(num_layers=3, hidden_size=64, top_k=2, dtype="bfloat16", log_vocab=math.log(50))


def test_the_mean_rounding_error_is_as_stated() -> None:
    rng = np.random.default_rng(0)
    values = np.exp2(rng.uniform(-8, 8, 200_000))
    error = values.astype(ml_dtypes.bfloat16).astype(np.float64) / values - 1
    rms = math.sqrt((error**2).mean()) / 2.0**-8
    assert rms == pytest.approx(RMS_ROUNDING, rel=0.01)


def test_a_budget_by_hand() -> None:
    # mlp_in of layer 0 in bfloat16: embed 1, attn_in 2, attn_out 9, mlp_in 3 roundings;
    # inner products 1 + 3 + 1, of length 64, accumulated in float32.
    variance = 15 * (2.0**-8) ** 2 + 5 * 64 * U32**2
    expected = LAMBDA * RMS_ROUNDING * math.sqrt(2 * variance)
    assert budgets(SMALL).layer["mlp_in"][0] == pytest.approx(expected, rel=1e-12)


def test_experts_add_one_rounding_per_further_slot() -> None:
    local = [
        budgets(Precision(num_layers=1, hidden_size=1, top_k=k, dtype="bfloat16"), "bf16").local[
            "routed_out"
        ]
        for k in (1, 8)
    ]
    assert local[1] / local[0] == pytest.approx(math.sqrt(14 / 7), rel=1e-6)


def test_budgets_grow_along_the_model_and_with_the_roundoff() -> None:
    found = budgets(SMALL)
    assert (np.diff(found.layer["output"]) > 0).all()
    assert found.layer["input"][1] == found.layer["output"][0]
    fine, coarse = budgets(SMALL, "fp32"), budgets(SMALL, "fp8")
    for site in found.layer:
        assert (fine.layer[site] < found.layer[site]).all()
        assert (found.layer[site] < coarse.layer[site]).all()


def test_bitwise_allows_nothing() -> None:
    found = budgets(SMALL, "bitwise")
    assert max(values.max() for values in found.layer.values()) == 0
    assert found.model == {"embed": 0.0, "final_norm": 0.0, "logits": 0.0}
    assert found.logprob(np.array([-1.0]), np.array([-1.0])).tolist() == [0.0]
    assert found.kl == 0


def test_logprob_tolerance_grows_with_how_unlikely_a_token_is() -> None:
    found = budgets(SMALL)
    likely, unlikely = found.logprob(np.array([-0.1, -9.0]), np.array([-0.1, -20.0]))
    assert likely == pytest.approx(found.model["logits"] * math.log(50))
    assert unlikely == pytest.approx(found.model["logits"] * 20)


@pytest.mark.parametrize(
    ("dtype", "profile"),
    [("float32", "fp32"), ("bfloat16", "bf16"), ("float16", "fp16"), ("float8_e4m3fn", "fp8")],
)
def test_auto_follows_the_coarser_type(dtype: str, profile: str) -> None:
    assert resolve_profile("auto", dtype) == (profile, f"{dtype} is the coarser type of both paths")


def test_an_unknown_profile_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean bf16"):
        resolve_profile("bf61", "")


def test_coarsest_ignores_what_does_not_round() -> None:
    assert coarsest(["float32", "int32", "", "bfloat16", "strange"]) == "bfloat16"
    assert coarsest(["int32"]) == ""
