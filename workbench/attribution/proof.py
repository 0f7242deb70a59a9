"""Proof by experiment: is what looks guilty the cause?

A cause is proved only when its swap removes the divergence and the swap of everything else does
not. Both swaps are of modules, A's arithmetic on B's own inputs, so that neither carries what lies
upstream. Otherwise it is suspected, with what is missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

from workbench.attribution.bench import Bench, Swap
from workbench.attribution.local import ModulePlace
from workbench.attribution.minimise import smallest_enough
from workbench.attribution.swappable import name_of

State = Literal["proved", "suspected", "none"]
"""`none`: no module is beyond its budget, so there is nothing to prove."""

REMOVED: Final = 0.1
"""A divergence is removed when at most this share of it is left, and it is inside the gate."""

Progress = Callable[[str], None]


def threshold_of(kl_before: float, kl_gate: float) -> float:
    """KL under which a divergence counts as removed: the comparison's gate, and a tenth of it."""
    return min(kl_gate, REMOVED * kl_before)


def prove(
    bench: Bench,
    suspects: Sequence[ModulePlace],
    *,
    kl_gate: float,
    say: Progress | None = None,
) -> dict[str, Any]:
    """Tries the first suspect, then the smallest set of suspects that is enough.

    Args:
        bench: The trainer on the bench.
        suspects: Modules beyond their budget, the first one to be tried in front.
        kl_gate: The comparison's gate of the mean KL.
        say: Told what runs.
    """
    if not suspects:
        text = "no module is beyond its rounding budget: there is nothing to prove"
        return _result("none", (), bench, text=text)
    known = [module for module in suspects if module in bench.modules]
    if not known:
        text = f"{name_of(suspects[0])} cannot be swapped"
        return _result("suspected", suspects[:1], bench, text=text, missing=text)
    trial = _Trial(bench, say)
    before = trial.kl(frozenset())
    threshold = threshold_of(before, kl_gate)
    cause = _cause(trial, known, threshold)
    after = trial.kl(frozenset(cause))
    rest = trial.kl(frozenset(bench.modules) - set(cause))
    missing = _missing(before, after, rest, threshold)
    names = ", ".join(name_of(module) for module in cause)
    facts = (
        f"KL {before:.3g} before, {after:.3g} with {names} swapped, {rest:.3g} with everything "
        f"else swapped; threshold {threshold:.3g}"
    )
    return _result(
        "suspected" if missing else "proved",
        cause,
        bench,
        text=f"{names} {'is suspected' if missing else 'is the cause'}: {missing or facts}",
        missing=missing,
        numbers={
            "estimator": trial.estimator,
            "kl_before": before,
            "kl_after_swap": after,
            "kl_after_everything_else": rest,
            "threshold": threshold,
        },
    )


def _cause(trial: _Trial, suspects: list[ModulePlace], threshold: float) -> list[ModulePlace]:
    """The first suspect when it is enough, else the smallest set of suspects that is, else it."""
    first = suspects[:1]
    if len(suspects) == 1 or trial.kl(frozenset(first)) <= threshold:
        return first
    if not trial.kl(frozenset(suspects)) <= threshold:
        return first
    in_order = [module for module in trial.bench.modules if module in set(suspects)]
    return smallest_enough(in_order, lambda kept: trial.kl(kept) <= threshold)


def _missing(before: float, after: float, rest: float, threshold: float) -> str | None:
    if math.isnan(before):
        return "no row has probabilities on both sides"
    if not before > 0:
        return "both sides give the same probabilities here, so no swap can change them"
    if not after <= threshold:
        return f"its swap leaves a KL of {after:.3g} of {before:.3g}: something else takes part"
    if rest <= threshold:
        return f"swapping everything else removes the KL too ({rest:.3g}): it is not needed"
    return None


class _Trial:
    """KL by set of modules, each measured once."""

    def __init__(self, bench: Bench, say: Progress | None) -> None:
        self.bench, self._say = bench, say
        self._known: dict[frozenset[ModulePlace], float] = {}
        self.estimator = ""

    def kl(self, modules: frozenset[ModulePlace]) -> float:
        if modules not in self._known:
            swap = Swap(name=f"{len(modules)} modules for the proof", modules=modules)
            outcome = self.bench.run([swap], self._say)[0]
            self._known[modules], self.estimator = outcome.kl, outcome.estimator
        return self._known[modules]


def _result(
    state: State,
    cause: Sequence[ModulePlace],
    bench: Bench,
    *,
    text: str,
    missing: str | None = None,
    numbers: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    causes = [{"layer": layer, "module": name} for layer, name in cause]
    blank = ("estimator", "kl_before", "kl_after_swap", "kl_after_everything_else", "threshold")
    return {
        "state": state,
        "cause": causes[0] if causes else None,
        "causes": causes,
        **dict.fromkeys(blank),
        **(numbers or {}),
        "rows": bench.num_rows,
        "missing": missing,
        "text": text,
    }
