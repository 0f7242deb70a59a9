"""Where the two paths place the same mathematics differently, and one convention for both.

Reads the `contracts` of both manifests. A difference of contract is listed, and converted where
that is exact; it is never a fault. A scaling factor that differs in size is no contract, so it is
left to show.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from workbench.comparison.routing import Scoring
from workbench.store import Manifest

# The two engines read the factor from one configuration, so it agrees but for its own rounding.
_SAME_FACTOR: Final = 2.0**-6
_COMPARED_KEYS: Final[tuple[str, ...]] = (
    "scoring",
    "renormalise",
    "selection_bias",
    "routed_scaling",
    "routed_scaling_at",
    "gate_weights_on",
    "gate_weight_dtype",
    "router_logits_dtype",
    "shared_expert",
    "topk_sorted",
    "logits_dtype",
)
_ALIASES: Final = {"topk_weights_dtype": "gate_weight_dtype"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contracts:
    """How the two manifests relate.

    Attributes:
        differences: By key, what A says and what B says; only keys that both name.
        converted: What was brought to one convention, in words.
        gate_factor_a: Factor for A's gate weights before comparing.
        gate_factor_b: Factor for B's.
        scoring: What the router's logits pass before selection.
        declared_bias: Whether a side says that selection adds a bias to the scores.
    """

    differences: Mapping[str, tuple[Any, Any]]
    converted: tuple[str, ...]
    gate_factor_a: float = 1.0
    gate_factor_b: float = 1.0
    scoring: Scoring = "softmax"
    declared_bias: bool = False

    def to_json(self) -> dict[str, Any]:
        """As `comparison.json` lists it."""
        return {
            "differences": {key: list(pair) for key, pair in self.differences.items()},
            "converted": list(self.converted),
            "skipped": {},
        }


def relate(a: Manifest, b: Manifest) -> Contracts:
    """The contracts of two manifests, and the conversions they call for."""
    terms_a, terms_b = _terms(a), _terms(b)
    differences = {
        key: (terms_a[key], terms_b[key])
        for key in _COMPARED_KEYS
        if key in terms_a and key in terms_b and terms_a[key] != terms_b[key]
    }
    factor_a, factor_b, converted = _gate_factors(terms_a, terms_b)
    scoring = terms_a.get("scoring", terms_b.get("scoring", "softmax"))
    return Contracts(
        differences=differences,
        converted=converted,
        gate_factor_a=factor_a,
        gate_factor_b=factor_b,
        scoring="sigmoid" if scoring == "sigmoid" else "softmax",
        declared_bias=_has_bias(a, terms_a) or _has_bias(b, terms_b),
    )


def _terms(manifest: Manifest) -> dict[str, Any]:
    terms = {_ALIASES.get(key, key): value for key, value in manifest.contracts.items()}
    # JSON may hold anything here; only plain values are compared.
    return {k: v for k, v in terms.items() if isinstance(v, (str, int, float, bool))}


def _has_bias(manifest: Manifest, terms: Mapping[str, Any]) -> bool:
    named = any(name.endswith("router.selection_bias") for name in manifest.weights)
    return named or terms.get("selection_bias") is True


def _gate_factors(
    terms_a: Mapping[str, Any], terms_b: Mapping[str, Any]
) -> tuple[float, float, tuple[str, ...]]:
    """Routed scaling sits in the gate weights or on the output: the weights then differ by it."""
    at_a, at_b = terms_a.get("routed_scaling_at"), terms_b.get("routed_scaling_at")
    if {at_a, at_b} != {"output", "gate_weights"}:
        return 1.0, 1.0, ()
    factor_a, factor_b = _factor(terms_a), _factor(terms_b)
    if not math.isclose(factor_a, factor_b, rel_tol=_SAME_FACTOR):
        return 1.0, 1.0, ()
    side, factor = ("A", factor_a) if at_a == "output" else ("B", factor_b)
    text = (
        f"{side} applies the routed scaling of {factor:g} to the experts' output, the other side "
        f"inside the gate weights: {side}'s gate weights were multiplied by it before comparing"
    )
    return (factor, 1.0, (text,)) if side == "A" else (1.0, factor, (text,))


def _factor(terms: Mapping[str, Any]) -> float:
    value = terms.get("routed_scaling", 1.0)
    plain = isinstance(value, (int, float)) and math.isfinite(value) and value > 0
    return float(value) if plain else math.nan
