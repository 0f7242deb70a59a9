"""The sampled-token family: how both sides score the token that was emitted.

Direction: dlogp = logp_A - logp_B; ratio r = exp(logp_B - logp_A), the importance ratio of trainer
over rollout. On tokens sampled from A, k1 = dlogp, k2 = dlogp^2/2 and k3 = r - 1 + dlogp estimate
KL(A || B) (Schulman, "Approximating KL divergence"). Names in use elsewhere stand beside each
number in `SampledTokens`. Exponents are clamped to +-20 and what was clamped is counted. Float64
throughout.

A row takes part when both log-probabilities are finite; the others are counted, not averaged.

Axis legend: T row, S request.
"""

from __future__ import annotations

import math
from typing import Any, Final, Literal, NamedTuple

import numpy as np

CLAMP: Final = 20.0
EXTREME: Final = math.log(2)

Over = Literal["tokens sampled from A", "all rows with both log-probabilities"]


class RowTerms(NamedTuple):
    """Per row, float64 (T,), NaN where a side has no log-probability."""

    dlogp: np.ndarray
    ratio: np.ndarray
    k1: np.ndarray
    k2: np.ndarray
    k3: np.ndarray
    reverse_k3: np.ndarray


def row_terms(logprob_a_T: np.ndarray, logprob_b_T: np.ndarray) -> RowTerms:
    """Difference, ratio and estimators per row.

    >>> terms = row_terms(np.array([-1.0]), np.array([-1.5]))
    >>> float(terms.dlogp[0]), round(float(terms.k3[0]), 6)
    (0.5, 0.106531)
    """
    a_T, b_T = logprob_a_T.astype(np.float64), logprob_b_T.astype(np.float64)
    with np.errstate(invalid="ignore"):
        dlogp_T = a_T - b_T
    clamped_T = np.clip(dlogp_T, -CLAMP, CLAMP)
    return RowTerms(
        dlogp=dlogp_T,
        ratio=np.exp(-clamped_T),
        k1=dlogp_T,
        k2=0.5 * dlogp_T**2,
        # expm1 keeps the digits that exp(x) - 1 - x loses for small x.
        k3=np.maximum(np.expm1(-clamped_T) + clamped_T, 0.0),
        reverse_k3=np.maximum(np.expm1(clamped_T) - clamped_T, 0.0),
    )


def sampled_rows(is_generated_T: np.ndarray, both_T: np.ndarray) -> tuple[np.ndarray, Over]:
    """Rows the estimators average over: those sampled from A where there are any, else all."""
    sampled_T: np.ndarray = is_generated_T & both_T
    if sampled_T.any():
        return sampled_T, "tokens sampled from A"
    return both_T, "all rows with both log-probabilities"


def summarise(
    logprob_a_T: np.ndarray, logprob_b_T: np.ndarray, rows_T: np.ndarray, request_T: np.ndarray
) -> dict[str, Any]:
    """The sampled-token family over `rows_T`, as JSON values; None where there is no row.

    Args:
        logprob_a_T: Natural log-probabilities of the row's own token on A, NaN where missing.
        logprob_b_T: The same on B.
        rows_T: Rows to average over.
        request_T: Index of each row's request.
    """
    known_T = np.isfinite(logprob_a_T) & np.isfinite(logprob_b_T) & rows_T
    a, b = logprob_a_T[known_T].astype(np.float64), logprob_b_T[known_T].astype(np.float64)
    terms = row_terms(a, b)
    absolute = np.abs(terms.dlogp)
    p_a, p_b = np.exp(a), np.exp(b)
    gap_S = _per_request_means(terms.dlogp, request_T[known_T])
    return {
        "n": len(a),
        "nonfinite": int((rows_T & ~known_T).sum()),
        "overflow": int((absolute > CLAMP).sum()),
        "abs_dlogp": _spread(absolute),
        "abs_dprob": _spread(np.abs(p_a - p_b)),
        "mean_dlogp": _mean(terms.dlogp),
        "pearson": pearson(p_a, p_b),
        "k1": _mean(terms.k1),
        "k2": _mean(terms.k2),
        "k3": _mean(terms.k3),
        "reverse_k3": _mean(terms.reverse_k3),
        "mult_prob_error": _mean(np.exp(np.minimum(absolute, CLAMP))),
        "log_ppl_gap": {**_spread(np.abs(gap_S)), "signed_mean": _mean(gap_S), "n": len(gap_S)},
        "ratio": _ratio(terms.ratio),
        "ess_fraction": ess_fraction(terms.ratio),
        "extreme_fraction": _mean((absolute > EXTREME).astype(np.float64)),
    }


def pearson(x: np.ndarray, y: np.ndarray) -> float | None:
    """Correlation; None for fewer than two rows or when a side is constant."""
    if len(x) < 2:
        return None
    dx, dy = x - x.mean(), y - y.mean()
    norm = float(np.sqrt((dx @ dx) * (dy @ dy)))
    return float(dx @ dy) / norm if norm > 0 else None


def ess_fraction(ratio: np.ndarray) -> float | None:
    """Effective sample size over n: (sum r)^2 / (n * sum r^2)."""
    if len(ratio) == 0:
        return None
    return float(ratio.sum() ** 2 / (len(ratio) * (ratio @ ratio)))


def _per_request_means(values: np.ndarray, request: np.ndarray) -> np.ndarray:
    if len(values) == 0:
        return np.zeros(0)
    counts = np.bincount(request)
    sums = np.bincount(request, weights=values)
    means: np.ndarray = sums[counts > 0] / counts[counts > 0]
    return means


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if len(values) else None


def _spread(values: np.ndarray) -> dict[str, float | None]:
    if len(values) == 0:
        return dict.fromkeys(("mean", "max", "p95", "p99"))
    p95, p99 = np.percentile(values, [95, 99])
    return {
        "mean": float(values.mean()),
        "max": float(values.max()),
        "p95": float(p95),
        "p99": float(p99),
    }


def _ratio(ratio: np.ndarray) -> dict[str, float | None]:
    if len(ratio) == 0:
        return dict.fromkeys(("mean", "min", "max", "std"))
    return {
        "mean": float(ratio.mean()),
        "min": float(ratio.min()),
        "max": float(ratio.max()),
        "std": float(ratio.std()),
    }
