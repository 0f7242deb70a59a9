"""Swaps: the trainer again on the same tokens, with chosen parts of the rollout.

Two kinds, told apart in every result. `values`: what A computed there, with everything upstream
that it carries; "everything up to layer 3" is A's stream leaving layer 3. `modules`: A's arithmetic
in some modules on B's own inputs (`transplant.py`); only these can tell a cause from what it
causes, so the map and the proof stand on them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

from workbench.attribution.bench import Bench, Outcome, Swap
from workbench.attribution.kinds import MODULE_BY_NAME
from workbench.attribution.local import ModulePlace
from workbench.attribution.substitute import Place, Plan
from workbench.attribution.swappable import LM_HEAD, name_of, site_of

_EVERY_LAYER: Final[tuple[tuple[str, tuple[str, ...], str], ...]] = (
    ("routing ids", ("topk_ids",), "A's expert choices, gate weights B's own"),
    ("routing", ("topk_ids", "topk_weights"), "A's expert choices and gate weights"),
    ("attention outputs", ("attn_out",), "A's attention outputs in every layer"),
    ("MoE outputs", ("mlp_out", "routed_out"), "A's feed-forward outputs in every layer"),
)

Progress = Callable[[str], None]


def named_swaps(bench: Bench) -> list[Swap]:
    """The swaps that every attribution runs, those that both sides' sites allow."""
    swaps = []
    for name, sites, about in _EVERY_LAYER:
        places = _places(bench, sites)
        if name == "MoE outputs":
            places = _one_per_layer(places)
        if {site for _, site in places} >= set(sites[:1]) or name == "MoE outputs":
            swaps += [Swap(name=name, about=about, values=_plan(places))] if places else []
    num_layers = len(bench.parts.layers)
    for layer in range(num_layers):
        members = frozenset(m for m in bench.modules if m[0] == layer)
        about = f"A's arithmetic in layer {layer} alone, on B's own input"
        swaps += [Swap(name=f"layer {layer}", about=about, modules=members)] if members else []
    for layer in range(num_layers):
        if bench.is_there(layer, "output"):
            about = f"A's residual stream leaving layer {layer}"
            values = _plan({(layer, "output")})
            swaps.append(Swap(name=f"up to layer {layer}", about=about, values=values))
    if bench.is_there(None, "final_norm"):
        about = "A's input of the LM head"
        swaps.append(Swap(name="LM head input", about=about, values=_plan({(None, "final_norm")})))
    about = "A's arithmetic in every module: what is left is what no swap can remove"
    return [*swaps, Swap(name="everything", about=about, modules=frozenset(bench.modules))]


def run_swaps(bench: Bench, say: Progress | None = None) -> list[dict[str, Any]]:
    """Every named swap with KL, k3 and max |dlogp| before and after, by phase and modality."""
    swaps = named_swaps(bench)
    before, *after = bench.run([Swap(name="nothing"), *swaps], say)
    return [swap_json(swap, before, outcome) for swap, outcome in zip(swaps, after, strict=True)]


def swap_json(swap: Swap, before: Outcome, after: Outcome) -> dict[str, Any]:
    """One swap as `comparison.json` lists it."""
    kind: Literal["values", "modules"] = "modules" if swap.modules else "values"
    return {
        "name": swap.name,
        "about": swap.about,
        "kind": kind,
        "places": [list(place) for place in _sorted(swap)],
        "before": before.to_json(),
        "after": after.to_json(),
        "kl_before": before.kl,
        "kl_after": after.kl,
        "estimator": before.estimator,
    }


def swap_map(bench: Bench, say: Progress | None = None) -> dict[str, Any]:
    """KL removed by each module's swap alone, and KL left when everything but it is swapped.

    A module that makes of A's inputs what A made of them, bit for bit, changes nothing when it is
    swapped; it is listed without being run.
    """
    differing = bench.local_differences()
    active = [m for m in bench.modules if _is_active(m, differing)]
    everything = frozenset(bench.modules)
    fixed = [Swap(name="nothing"), Swap(name="everything", modules=everything)]
    alone = [Swap(name=f"{name_of(m)} alone", modules=frozenset([m])) for m in active]
    without = [Swap(name=f"all but {name_of(m)}", modules=everything - {m}) for m in active]
    outcomes = bench.run([*fixed, *alone, *without], say)
    before, after_all = outcomes[0].kl, outcomes[1].kl
    kl_alone = {m: o.kl for m, o in zip(active, outcomes[2 : 2 + len(active)], strict=True)}
    kl_without = {m: o.kl for m, o in zip(active, outcomes[2 + len(active) :], strict=True)}
    return {
        "estimator": outcomes[0].estimator,
        "kl_before": before,
        "kl_everything": after_all,
        "sequences": bench.num_sequences,
        "rows": bench.num_rows,
        "rows_scored": max(
            outcomes[0].groups["all"].num_exact, outcomes[0].groups["all"].num_sampled
        ),
        "cells": [
            {
                "layer": module[0],
                "module": module[1],
                "differing_rows": differing.get(site_of(module)),
                "kl_alone": kl_alone.get(module, before),
                "kl_removed": before - kl_alone.get(module, before),
                "kl_without": kl_without.get(module, after_all),
            }
            for module in bench.modules
        ],
    }


def _is_active(module: ModulePlace, differing: dict[Place, int]) -> bool:
    place = site_of(module)
    # Without logits of A nothing says that the heads agree.
    return differing.get(place, 0) > 0 or (module == LM_HEAD and place not in differing)


def _places(bench: Bench, sites: tuple[str, ...]) -> set[Place]:
    return {
        (layer.index, site)
        for layer in bench.parts.layers
        for site in sites
        if bench.is_there(layer.index, site)
    }


def _one_per_layer(places: set[Place]) -> set[Place]:
    """The whole block where it is there, else its routed part."""
    whole = {layer for layer, site in places if site == "mlp_out"}
    return {(layer, site) for layer, site in places if site == "mlp_out" or layer not in whole}


def _plan(places: set[Place]) -> Plan:
    return Plan(places=frozenset(places))


def _sorted(swap: Swap) -> list[tuple[int | None, str]]:
    if swap.modules:
        order = {name: place for place, name in enumerate(MODULE_BY_NAME)}
        return sorted(swap.modules, key=lambda m: (m[0] is None, m[0] or 0, order[m[1]]))
    return sorted(swap.values.places, key=lambda p: (p[0] is None, p[0] or 0, p[1]))
