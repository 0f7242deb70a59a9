"""What two correct implementations may differ by: budgets derived from rounding, by profile.

A value that went through n roundings to a type of unit roundoff u carries, for random rounding
errors, a relative error of about r*sqrt(n)*u, where r = 0.425 is the root mean square of one
rounding error in units of u over log-uniformly spread significands: sqrt(1/3 * (1 - 1/4) / (2 ln
2)). Two paths that round independently differ by sqrt(2) times as much. Inner products of length m
that accumulate in float32 add m roundings of 2**-24. The budget is LAMBDA times that: Higham &
Mary (2019), "A new approach to probabilistic rounding error analysis", Theorem 2.4, bounds the
error of n operations by lambda*sqrt(n)*u with failure probability 2*exp(-lambda**2/2) each, 3e-8
for lambda = 6; what it leaves unspent pays for amplification by norms and cancellation.

Operations counted (roundings in the path's type; inner products of the hidden size) are in
`_OPERATIONS`, one entry per site in execution order, everything upstream counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import numpy as np

from workbench.comparison.columns import NUMERIC_SITES
from workbench.errors import UsageError, did_you_mean
from workbench.store.dtypes import DTYPE_NAMES, coarser, unit_roundoff

RMS_ROUNDING: Final = math.sqrt(1 / 3 * (3 / 4) / (2 * math.log(2)))
LAMBDA: Final = 6.0
U32: Final = 2.0**-24

PROFILES: Final = ("auto", "bitwise", "fp32", "bf16", "fp16", "fp8")
_PROFILE_DTYPE: Final = {
    "fp32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp8": "float8_e4m3fn",
}
_DTYPE_PROFILE: Final = {
    "float64": "fp32",
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
}

PRACTICE: Final[dict[str, float]] = {
    "max_abs_dlogp.pass": 0.01,
    "max_abs_dlogp.marginal": 0.1,
    "k3.pass": 1e-3,
}
"""Gates in use among practitioners, printed beside the derived ones and deciding nothing."""

_OPERATIONS: Final[dict[str, tuple[float, float]]] = {
    # norm: the reciprocal root applied, then the gain; one inner product for the mean square
    "attn_in": (2, 1),
    # projections 1, head norm 2, rotary 2, scores 1, softmax 1, weighted sum 1, output projection 1
    "attn_out": (9, 3),
    # residual add 1, norm 2
    "mlp_in": (3, 1),
    "router_logits": (1, 1),
    # up/gate 1, activation 1, product 1, down 1, gate weight 3; combining adds top_k - 1
    "routed_out": (7, 2),
    # up/gate 1, activation 1, product 1, down 1, shared gate 1
    "shared_out": (5, 2),
    "mlp_out": (1, 0),
    "output": (1, 0),
    "final_norm": (2, 1),
    "logits": (1, 1),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """What the budgets depend on.

    Attributes:
        dtype: The coarser element type of both paths and of their hidden sites.
        router_dtype: The coarser stored type of `router_logits`, or "" when unknown.
        log_vocab: ln V, a floor for how far the logits of a row spread.
    """

    num_layers: int
    hidden_size: int
    top_k: int
    dtype: str
    router_dtype: str = ""
    log_vocab: float = 1.0

    def to_json(self) -> dict[str, Any]:
        """As a comparison stores it."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """Budgets of one profile.

    Attributes:
        profile: Resolved: never `auto`; with a factor other than 1, as in `bf16*4`.
        reason: Why this profile, in one sentence.
        roundoff: Unit roundoff the budgets stand on; 0.0 for `bitwise`.
        layer: Relative L2 budget of the total error per layer site, shape (L,) each.
        local: Relative L2 that the roundings inside one module alone may add, per layer site.
        model: Relative L2 budget of `embed`, `final_norm`, `logits`.
        log_vocab: As in `Precision`.
    """

    profile: str
    reason: str
    roundoff: float
    layer: Mapping[str, np.ndarray]
    local: Mapping[str, float]
    model: Mapping[str, float]
    log_vocab: float

    def logprob(self, logprob_a_T: np.ndarray, logprob_b_T: np.ndarray) -> np.ndarray:
        """Tolerance of |dlogp| per row, nats: the relative budget of the logits times their spread.

        The spread of a row's logits is at least ln V for a flat start and at least |logp|.
        """
        spread = np.fmax(np.abs(logprob_a_T), np.abs(logprob_b_T))
        tolerance_T: np.ndarray = self.model["logits"] * np.fmax(spread, self.log_vocab)
        return tolerance_T

    @property
    def kl(self) -> float:
        """Gate of the mean KL, nats: to second order, half the variance of the logit errors."""
        typical = self.model["logits"] / LAMBDA * self.log_vocab
        return LAMBDA * 0.5 * typical**2


def resolve_profile(name: str, dtype: str) -> tuple[str, str]:
    """Profile and the reason for it.

    Args:
        name: One of `PROFILES`, or a multiple of one, such as `bf16*4`.
        dtype: The coarser type of both paths, which `auto` goes by.

    Raises:
        UsageError: Unknown profile, or a factor that is not a positive number.

    >>> resolve_profile("bf16*4", "float32")[0], resolve_profile("auto*0.5", "float16")[0]
    ('bf16*4', 'fp16*0.5')
    """
    base, factor = split_profile(name)
    if base != "auto":
        return _with_factor(base, factor), "chosen by the caller"
    profile = _DTYPE_PROFILE.get(dtype, "fp32")
    reason = f"{dtype or 'an unknown type'} is the coarser type of both paths"
    return _with_factor(profile, factor), reason


def split_profile(name: str) -> tuple[str, float]:
    """A profile's base and the factor on its budgets.

    Raises:
        UsageError: Unknown base, or a factor that is not a positive number.
    """
    base, times, written = (part.strip() for part in name.partition("*"))
    if base not in PROFILES:
        raise UsageError(f"unknown tolerance profile {base!r}", do=did_you_mean(base, PROFILES))
    try:
        factor = float(written) if times else 1.0
    except ValueError:
        factor = math.nan
    if not 0 < factor < math.inf:
        raise UsageError(
            f"no factor on a tolerance: {written!r}", expected="a positive number, as in bf16*4"
        )
    return base, factor


def _with_factor(base: str, factor: float) -> str:
    return base if factor == 1.0 or base == "bitwise" else f"{base}*{factor:g}"


def budgets(precision: Precision, profile: str = "auto") -> Budgets:
    """Budgets of a profile for a model of this size.

    Raises:
        UsageError: Unknown profile.
    """
    resolved, reason = resolve_profile(profile, precision.dtype)
    base, factor = split_profile(resolved)
    u = 0.0 if base == "bitwise" else unit_roundoff(_PROFILE_DTYPE[base])
    accumulate = 0.0 if base == "bitwise" else U32
    counts = _cumulated(precision)

    def bound(roundings: float, products: float) -> float:
        variance = roundings * u**2 + products * precision.hidden_size * accumulate**2
        return factor * LAMBDA * RMS_ROUNDING * math.sqrt(2 * variance)

    layer = {
        site: np.array([bound(*counts[f"{index}.{site}"]) for index in range(precision.num_layers)])
        for site in NUMERIC_SITES
    }
    return Budgets(
        profile=resolved,
        reason=reason,
        roundoff=u,
        layer=layer,
        local={site: bound(*_operations(site, precision)) for site in NUMERIC_SITES},
        model={name: bound(*counts[name]) for name in ("embed", "final_norm", "logits")},
        log_vocab=precision.log_vocab,
    )


def _operations(site: str, precision: Precision) -> tuple[float, float]:
    roundings, products = _OPERATIONS.get(site, (1.0, 0.0))
    return roundings + (max(precision.top_k - 1, 0) if site == "routed_out" else 0), products


def _cumulated(precision: Precision) -> dict[str, tuple[float, float]]:
    """Roundings and inner products upstream of every site, itself included."""
    counts = {"embed": (1.0, 0.0)}
    roundings, products = counts["embed"]
    for index in range(precision.num_layers):
        for site in NUMERIC_SITES:
            if site != "input":
                more = _operations(site, precision)
                roundings, products = roundings + more[0], products + more[1]
            counts[f"{index}.{site}"] = (roundings, products)
    for site in ("final_norm", "logits"):
        more = _operations(site, precision)
        roundings, products = roundings + more[0], products + more[1]
        counts[site] = (roundings, products)
    return counts


def coarsest(dtypes: list[str]) -> str:
    """The type with the largest unit roundoff among known float types, or ""."""
    known = [d for d in dtypes if d in DTYPE_NAMES and unit_roundoff(d) > 0]
    return reduce(coarser, known) if known else ""
