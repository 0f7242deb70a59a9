"""The part of `comparison.json` that is worked out from the two tables: numbers, firsts, outcome.

Axis legend: L layer, T row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from workbench.comparison import verdict
from workbench.comparison.classes import beyond_sites, logprob_rows
from workbench.comparison.columns import MEASURED_LAYER_SITES
from workbench.comparison.first import first_divergences
from workbench.comparison.jump import find_jump
from workbench.comparison.probability import Over, sampled_rows, summarise
from workbench.comparison.result import Comparison
from workbench.comparison.statistics import routing_statistics, site_statistics
from workbench.comparison.tolerance import PRACTICE
from workbench.comparison.weights import Weights
from workbench.names import (
    DIVERGENCE_CLASSES,
    MODEL_SITES,
)


def judged(
    draft: Comparison, weights: Weights, *, incomplete: str, other_tokens: str
) -> dict[str, Any]:
    """The part of the summary that is worked out from the two tables."""
    budgets, excused = draft.budgets(), draft.excuses()
    jump = find_jump(draft, budgets, excused)
    counts = {klass: int(draft.class_mask(klass).sum()) for klass in DIVERGENCE_CLASSES}
    probability, over, mean_kl = _probability(draft)
    outcome = verdict.decide(
        verdict.Findings(
            incomplete=incomplete,
            other_tokens=other_tokens,
            num_compared=int(compared_rows(draft).sum()),
            num_scored=int((_both_logprobs(draft) | _scored_exactly(draft)).sum()),
            num_excused=int(excused.after[-1].sum()),
            weights=weights.status,
            weights_text=weights.text,
            one_sided_nonfinite=_one_sided_nonfinite(draft),
            counts=counts,
            jump=jump,
            mean_kl=mean_kl,
            kl_gate=budgets.kl,
            same_dtype=draft.summary["a"]["dtype"] == draft.summary["b"]["dtype"],
            all_equal=counts["bit"] == 0 and _logprobs_equal(draft),
            fits_coarser=_fits_coarser(draft, budgets.profile),
        )
    )
    return {
        "status": outcome.status,
        "reason": outcome.reason,
        "verdict": outcome.verdict,
        "weights": weights.status,
        "rows": _row_counts(draft),
        "kl": {"exact_mean": _exact_mean(draft), **{k: probability[k] for k in ("k1", "k2", "k3")}},
        "max_abs_dlogp": _max_abs_dlogp(draft),
        "first": first_divergences(draft),
        "jump": None if jump is None else jump.to_json(),
        "counts": counts,
        "excused": _excused_counts(draft),
        "probability": {"over": over, **probability},
        "practice": _practice(draft, probability),
        "routing": routing_statistics(draft),
        "sites": site_statistics(draft),
    }


def compared_rows(draft: Comparison) -> np.ndarray:
    """Rows with arrays on both sides or a log-probability on both, bool (T,)."""
    rows = draft.rows
    arrays = rows["offset_a"].is_not_null() & rows["offset_b"].is_not_null()
    logprobs = rows["logprob_a"].is_not_null() & rows["logprob_b"].is_not_null()
    found: np.ndarray = (arrays | logprobs).to_numpy()
    return found


def _row_counts(draft: Comparison) -> dict[str, int]:
    rows = draft.rows
    return {
        **draft.summary["rows"],
        "compared": int(compared_rows(draft).sum()),
        "with_arrays": int((rows["offset_a"].is_not_null() & rows["offset_b"].is_not_null()).sum()),
        "with_logprobs": int(_both_logprobs(draft).sum()),
    }


def _both_logprobs(draft: Comparison) -> np.ndarray:
    rows = draft.rows
    both: np.ndarray = (
        rows["logprob_a"].is_not_null() & rows["logprob_b"].is_not_null()
    ).to_numpy()
    return both


def _scored_exactly(draft: Comparison) -> np.ndarray:
    scored: np.ndarray = draft.rows["kl_exact"].is_not_null().to_numpy()
    return scored


def _logprobs_equal(draft: Comparison) -> bool:
    both = _both_logprobs(draft)
    a, b = draft.rows["logprob_a"].to_numpy()[both], draft.rows["logprob_b"].to_numpy()[both]
    return bool((a == b).all())


def _probability(draft: Comparison) -> tuple[dict[str, Any], Over, float | None]:
    """The sampled-token family, what it averages over, and the mean KL of rows not excused."""
    rows = draft.rows
    a, b = rows["logprob_a"].to_numpy(), rows["logprob_b"].to_numpy()
    generated = (rows["phase"] == "generated").to_numpy()
    use, over = sampled_rows(generated, _both_logprobs(draft))
    request = rows["request"].rle_id().to_numpy()
    family = summarise(a, b, use, request)
    free = ~draft.excuses().logprob
    exact = rows["kl_exact"].to_numpy()
    exact = exact[free & np.isfinite(exact)]
    if len(exact):
        return family, over, float(exact.astype(np.float64).mean())
    return family, over, summarise(a, b, use & free, request)["k3"]


def _exact_mean(draft: Comparison) -> float | None:
    exact = draft.rows["kl_exact"].drop_nulls().to_numpy().astype(np.float64)
    exact = exact[np.isfinite(exact)]
    return float(exact.mean()) if len(exact) else None


def _max_abs_dlogp(draft: Comparison) -> float | None:
    gaps = np.abs(draft.rows["dlogp"].drop_nulls().to_numpy().astype(np.float64))
    gaps = gaps[np.isfinite(gaps)]
    return float(gaps.max()) if len(gaps) else None


def _practice(draft: Comparison, family: Mapping[str, Any]) -> dict[str, Any]:
    """The gates that practitioners use, beside the derived ones; they decide nothing here."""
    largest, k3 = _max_abs_dlogp(draft), family["k3"]
    grade = None
    if largest is not None:
        passed = largest < PRACTICE["max_abs_dlogp.pass"]
        marginal = largest < PRACTICE["max_abs_dlogp.marginal"]
        grade = "pass" if passed else "marginal" if marginal else "fail"
    return {
        **PRACTICE,
        "max_abs_dlogp": grade,
        "k3": None if k3 is None else "pass" if k3 < PRACTICE["k3.pass"] else "fail",
    }


def _excused_counts(draft: Comparison) -> dict[str, Any]:
    budgets, excused = draft.budgets(), draft.excuses()
    above = np.zeros((draft.num_layers, draft.num_rows), np.bool_)
    for _, beyond in beyond_sites(draft, budgets, None):
        above |= beyond
    logprobs = logprob_rows(draft, budgets, None)
    return {
        "rounding": int(above.sum()) - int((above & draft.class_mask("rounding")).sum()),
        "logprob": int((logprobs & excused.logprob).sum()),
        "flips": int(excused.flips.sum()),
        "rows": int(excused.after[-1].sum()),
    }


def _one_sided_nonfinite(draft: Comparison) -> int:
    count = 0
    for site in MEASURED_LAYER_SITES:
        if draft.has_column(f"{site}.nonfinite_a"):
            a = draft.column(f"{site}.nonfinite_a")
            count += int((a != draft.column(f"{site}.nonfinite_b")).sum())
    for site in MODEL_SITES:
        if f"{site}.nonfinite_a" in draft.rows.columns and site != "logits":
            rows = draft.rows
            count += int((rows[f"{site}.nonfinite_a"] != rows[f"{site}.nonfinite_b"]).sum())
    a_T = draft.rows["logprob_a"].is_nan().fill_null(value=False)
    b_T = draft.rows["logprob_b"].is_nan().fill_null(value=False)
    return count + int((a_T != b_T).sum())


def _fits_coarser(draft: Comparison, profile: str) -> bool:
    coarser = verdict.coarser_profile(profile)
    if coarser is None:
        return False
    budgets, excused = draft.budgets(coarser), draft.excuses(coarser)
    empty = not any(draft.class_mask(k, coarser).any() for k in ("rounding", "logprob"))
    return empty and find_jump(draft, budgets, excused) is None
