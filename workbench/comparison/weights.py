"""Whether both sides hold the same weights, from their fingerprints.

A fingerprint is a sum of bit patterns per group of parameters. Groups that one engine names
otherwise are compared by their total within a layer. Nothing is called equal that was not seen on
both sides.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from workbench.names import WeightsStatus
from workbench.store import Manifest, ParameterSum
from workbench.store.dtypes import unit_roundoff

_MODULUS: Final = 1 << 64
_SHOWN: Final = 4
_LAYER: Final = re.compile(r"layers\.(\d{1,6})\.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """What the fingerprints say.

    Attributes:
        status: `equal`, `different` or `unknown`.
        text: One sentence for people.
        different: Groups whose sums differ, model level first, then by layer.
        only_a: Groups that A alone has and that could not be matched by their layer's total.
        only_b: The same for B.
        other_dtype: Groups with equal values that the sides store in different types: (A, B).
    """

    status: WeightsStatus
    text: str
    different: tuple[str, ...] = ()
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()
    other_dtype: Mapping[str, tuple[str, str]]

    def to_json(self) -> dict[str, Any]:
        """As `comparison.json` lists it."""
        return {
            "text": self.text,
            "different": list(self.different),
            "only_a": list(self.only_a),
            "only_b": list(self.only_b),
            "other_dtype": {name: list(pair) for name, pair in self.other_dtype.items()},
        }


def compare_weights(a: Manifest, b: Manifest) -> Weights:
    """Compares the fingerprints of two manifests."""
    if not a.weights or not b.weights:
        sides = [side for side, m in (("A", a), ("B", b)) if not m.weights]
        text = f"no fingerprint was taken on {' and '.join(sides)}"
        return Weights(status="unknown", text=text, other_dtype={})
    both = sorted(a.weights.keys() & b.weights.keys(), key=_in_model_order)
    different = tuple(name for name in both if a.weights[name].sum != b.weights[name].sum)
    other_dtype = {
        name: (a.weights[name].dtype, b.weights[name].dtype)
        for name in both
        if name not in different and a.weights[name].dtype != b.weights[name].dtype
    }
    only_a, only_b = _unmatched(a.weights, b.weights)
    if different:
        status: WeightsStatus = "different"
        text = f"{len(different)} of {len(both)} groups differ: {_few(different)}"
        text += _rounding_hint(different, a.weights, b.weights)
    elif only_a or only_b or not both:
        status = "unknown"
        text = _one_sided(only_a, only_b)
    else:
        status = "equal"
        text = f"all {len(both)} groups have the same values" + _stored_as(other_dtype)
    return Weights(
        status=status,
        text=text,
        different=different,
        only_a=only_a,
        only_b=only_b,
        other_dtype=other_dtype,
    )


def _in_model_order(name: str) -> tuple[int, str]:
    match = _LAYER.match(name)
    return (int(match[1]) if match else -1, name)


def _unmatched(
    a: Mapping[str, ParameterSum], b: Mapping[str, ParameterSum]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Groups of one side alone, but for layers whose leftovers have one total on both sides."""
    left_a, left_b = _by_layer(a.keys() - b.keys()), _by_layer(b.keys() - a.keys())
    only_a: list[str] = []
    only_b: list[str] = []
    for layer in sorted(left_a.keys() | left_b.keys()):
        names_a, names_b = left_a.get(layer, []), left_b.get(layer, [])
        both = bool(names_a) and bool(names_b)
        if not (both and _total(a, names_a) == _total(b, names_b)):
            only_a += names_a
            only_b += names_b
    return tuple(only_a), tuple(only_b)


def _by_layer(names: Iterable[str]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = defaultdict(list)
    for name in sorted(names, key=_in_model_order):
        found[_in_model_order(name)[0]].append(name)
    return found


def _total(sums: Mapping[str, ParameterSum], names: list[str]) -> int:
    return sum(sums[name].sum for name in names) % _MODULUS


def _few(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _one_sided(only_a: tuple[str, ...], only_b: tuple[str, ...]) -> str:
    parts = [f"{side} alone has {_few(n)}" for side, n in (("A", only_a), ("B", only_b)) if n]
    return "; ".join(parts) or "the sides have no group in common"


def _stored_as(other_dtype: Mapping[str, tuple[str, str]]) -> str:
    kinds = sorted(set(other_dtype.values()))
    return "".join(f", {len(other_dtype)} stored as {x} in A and {y} in B" for x, y in kinds[:1])


def _rounding_hint(
    different: tuple[str, ...], a: Mapping[str, ParameterSum], b: Mapping[str, ParameterSum]
) -> str:
    """Other types on the two sides may be all there is to it: a master copy and its rounding."""
    pairs = {(a[name].dtype, b[name].dtype) for name in different}
    if any(unit_roundoff(x) == unit_roundoff(y) for x, y in pairs):
        return ""
    x, y = min(pairs)
    return f"; all of them are {x} in A and {y} in B, so one may be the rounding of the other"
