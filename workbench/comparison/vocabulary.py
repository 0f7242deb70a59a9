"""Full-vocabulary metrics, where both sides recorded logits. numpy only, float64.

Logits at position p score the token at p+1, so what is computed from them belongs to the next row
of the request. Vocabularies that the sides pad differently are compared over their real, common
part.

NaN or +Inf logits give NaN, which means missing; -Inf is a masked token of probability 0.

Axis legend: T row, V vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from workbench.comparison.routing import log_softmax
from workbench.store.dtypes import to_float32


class Distributions(NamedTuple):
    """Per row whose logits were recorded, shape (T,), about the next token's distribution.

    Attributes:
        kl: KL(A || B), nats; Inf where B excludes what A allows.
        kl_reverse: KL(B || A).
        tv: Total variation, 0.5 * sum |p_A - p_B|.
        entropy_a: Nats.
        entropy_b: Nats.
        argmax_equal: Whether both sides put the same token first (the lowest id among ties).
    """

    kl: np.ndarray
    kl_reverse: np.ndarray
    tv: np.ndarray
    entropy_a: np.ndarray
    entropy_b: np.ndarray
    argmax_equal: np.ndarray


def compare_distributions(logits_a_TV: np.ndarray, logits_b_TV: np.ndarray) -> Distributions:
    """Exact divergences between two softmax distributions.

    Args:
        logits_a_TV: Any float type, shape (T, V).
        logits_b_TV: The same shape.
    """
    with np.errstate(all="ignore"):
        log_a_TV = log_softmax(to_float32(logits_a_TV))
        log_b_TV = log_softmax(to_float32(logits_b_TV))
        p_a_TV, p_b_TV = np.exp(log_a_TV), np.exp(log_b_TV)
        gap_TV = log_a_TV - log_b_TV
        return Distributions(
            kl=_expected(p_a_TV, gap_TV),
            kl_reverse=_expected(p_b_TV, -gap_TV),
            tv=0.5 * np.abs(p_a_TV - p_b_TV).sum(axis=1),
            entropy_a=_expected(p_a_TV, -log_a_TV),
            entropy_b=_expected(p_b_TV, -log_b_TV),
            argmax_equal=log_a_TV.argmax(axis=1) == log_b_TV.argmax(axis=1),
        )


def _expected(p_TV: np.ndarray, values_TV: np.ndarray) -> np.ndarray:
    """Sum of p * value with 0 * anything = 0, at least 0 up to rounding; NaN stays NaN."""
    products_TV = np.where(p_TV == 0, 0.0, p_TV * values_TV)
    total_T: np.ndarray = products_TV.sum(axis=1)
    negative_T = total_T < 0
    total_T[negative_T] = 0.0
    return total_T
