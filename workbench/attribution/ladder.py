"""The routing ladder: how much KL is left as B's routing comes closer to A's, rung by rung.

Every rung keeps what the ones before it took: the same expert set, the same slots, the same gate
weights, the same way of adding the experts up, and last A's whole feed-forward output. What the
last rung leaves does not come from the experts.

Axis legend: N row, K slot, D hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn

from workbench.attribution.bench import Bench, Setup, Swap
from workbench.attribution.combine import CANDIDATES, Candidate, slot_outputs, weigh_and_add
from workbench.attribution.substitute import Place, Plan
from workbench.capture.layers import takes_choices
from workbench.capture.structure import ModelParts
from workbench.capture.taps import hidden_argument

Progress = Callable[[str], None]


class Rung(NamedTuple):
    """One step: its name, what runs, and why it cannot be climbed ("" when it can)."""

    name: str
    about: str
    swap: Swap | None
    reason: str = ""


def ladder(
    bench: Bench, combine: Mapping[str, Any] | None, say: Progress | None = None
) -> list[dict[str, Any]]:
    """KL, k3 and max |dlogp| at every rung, and the share of the live KL that is left.

    Args:
        bench: The trainer on the bench.
        combine: What attribution found about A's way of adding up (`attribution.combine`).
        say: Told what runs.
    """
    rungs = _rungs(bench, combine)
    outcomes = iter(bench.run([rung.swap for rung in rungs if rung.swap is not None], say))
    found: list[dict[str, Any]] = []
    live = 0.0
    for rung in rungs:
        line: dict[str, Any] = {"rung": rung.name, "about": rung.about, "reason": rung.reason}
        if rung.swap is not None:
            outcome = next(outcomes)
            live = live if found else outcome.kl
            line |= outcome.to_json() | {
                "kl": outcome.kl,
                "left": outcome.kl / live if live > 0 else None,
            }
        found.append(line)
    return found


def _rungs(bench: Bench, combine: Mapping[str, Any] | None) -> list[Rung]:
    ids, weights, out = (
        _places(bench, site) for site in ("topk_ids", "topk_weights", "routed_out")
    )
    block = _places(bench, "mlp_out") or out
    no_ids = "" if ids else "side A has no expert choices, or this model does not show them"
    no_weights = no_ids or ("" if weights else "side A has no gate weights")
    candidates, no_order = _orders(combine)
    setups: tuple[Setup, ...] = (lambda parts: recombined(parts, candidates),)
    plan_b = Plan(places=frozenset(ids), slot_order="b")
    plan_a = Plan(places=frozenset(ids))
    plan_weights = Plan(places=frozenset(ids | weights))
    steps = [
        ("same set", "A's experts in B's slots", Swap(name="same set", values=plan_b), no_ids),
        ("same slot order", "A's experts in A's slots", Swap(name="slots", values=plan_a), no_ids),
        (
            "same gate weights",
            "A's gate weights, to the bit",
            Swap(name="gate weights", values=plan_weights),
            no_weights,
        ),
        (
            "same combine order",
            _order_text(combine),
            Swap(name="combine order", values=plan_weights, setups=setups),
            no_weights or no_order,
        ),
        (
            "reference module",
            "A's whole feed-forward output",
            Swap(name="reference module", values=Plan(places=frozenset(ids | weights | block))),
            "" if block else "side A has no feed-forward outputs",
        ),
    ]
    live = Rung("live", "nothing taken from A", Swap(name="live"))
    return [live, *(Rung(n, about, None if why else swap, why) for n, about, swap, why in steps)]


def _places(bench: Bench, site: str) -> set[Place]:
    return {
        (layer.index, site)
        for layer in bench.parts.layers
        if layer.experts is not None and bench.is_there(layer.index, site)
    }


def _orders(combine: Mapping[str, Any] | None) -> tuple[dict[int, Candidate], str]:
    """A's way of adding up per layer, and why there is none."""
    if combine is None:
        return {}, "in this type the order of adding up is far below rounding"
    by_name = {candidate.name: candidate for candidate in CANDIDATES}
    found = {
        int(line["layer"]): by_name[line["a"]["candidate"]]
        for line in combine["by_layer"]
        if line["a"]["candidate"] in by_name
    }
    if not found:
        return {}, "A's sums match none of the known ways of adding up"
    return found, ""


def _order_text(combine: Mapping[str, Any] | None) -> str:
    return "A's way of adding the experts up" if combine is None else str(combine["a"]["text"])


@contextmanager
def recombined(parts: ModelParts, candidates: Mapping[int, Candidate]) -> Iterator[None]:
    """Experts are added up in a named way, from the experts' own outputs, while the block runs."""
    with ExitStack() as stack:
        for layer in parts.layers:
            candidate = candidates.get(layer.index)
            if candidate is None or layer.experts is None or not takes_choices(layer.experts):
                continue
            handle = layer.experts.register_forward_hook(_hook(candidate), with_kwargs=True)
            stack.callback(handle.remove)
        yield


def _hook(candidate: Candidate) -> Callable[..., torch.Tensor]:
    def hook(module: nn.Module, args: Any, kwargs: Any, output: torch.Tensor) -> torch.Tensor:
        given = [v for v in (*args, *kwargs.values()) if isinstance(v, torch.Tensor)]
        ids_NK = next(v for v in given if not v.is_floating_point())
        weights_NK = next(v for v in given if v.is_floating_point() and v.shape == ids_NK.shape)
        hidden_ND = hidden_argument(args, kwargs)
        assert hidden_ND is not None
        experts_NKD = slot_outputs(module, hidden_ND.reshape(len(ids_NK), -1), ids_NK)
        total_ND = weigh_and_add(experts_NKD, weights_NK, ids_NK, candidate, output.dtype)
        return total_ND.reshape(output.shape)

    return hook
