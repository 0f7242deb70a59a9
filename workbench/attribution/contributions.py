"""What single experts add at a few cells: the norm of g × E(x) on both sides.

No capture holds an expert's own output. Here the trainer's experts run on each side's captured
input of the block, one slot at a time at weight 1, and are weighed by that side's recorded gates.
Both sides use B's arithmetic, so what differs is what the inputs, the choices and the gates made
different. Only the first divergences and the first flips are done: the rest would cost a forward.

Axis legend: N cell of a layer, K slot, D hidden.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from workbench.attribution.combine import slot_outputs
from workbench.capture.layers import takes_choices
from workbench.capture.structure import ModelParts
from workbench.comparison.result import Comparison
from workbench.store.dtypes import to_float32

MAX_CELLS: Final = 48
Cell = tuple[int, int]


def contributions(
    comparison: Comparison, parts: ModelParts, first_local: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """One entry per cell: `layer`, `row`, and by expert the norm on `a` and `b`.

    A side that did not select an expert, or whose vectors are not there, has None.

    Args:
        comparison: The comparison.
        parts: The trainer.
        first_local: The first local error, where there is one.
    """
    experts = {
        layer.index: layer.experts
        for layer in parts.layers
        if layer.experts is not None and takes_choices(layer.experts)
    }
    found = []
    for layer, row in chosen_cells(comparison, first_local):
        module = experts.get(layer)
        if module is None:
            continue
        norms = [_norms(comparison, module, layer, row, side) for side in (0, 1)]
        if any(norms):
            found.append({"layer": layer, "row": row, "experts": _by_expert(*norms)})
    return found


def chosen_cells(
    comparison: Comparison, first_local: Mapping[str, Any] | None = None
) -> list[Cell]:
    """The first divergence of every class, then flips in token order, at most `MAX_CELLS`."""
    firsts = [first_local, *comparison.summary["first"].values()]
    cells = [
        (int(entry["layer"]), int(entry["row"]))
        for entry in firsts
        if entry is not None and entry.get("layer") is not None and entry.get("row") is not None
    ]
    flips = comparison.divergences("flip")
    pairs = zip(flips.layers[:MAX_CELLS].tolist(), flips.rows[:MAX_CELLS].tolist(), strict=True)
    return list(dict.fromkeys((*cells, *pairs)))[:MAX_CELLS]


def _norms(
    comparison: Comparison, experts: nn.Module, layer: int, row: int, side: int
) -> dict[int, float | None]:
    """Norm of g × E(x) by expert on one side; {} without its input, choices or gates."""
    vectors = [
        comparison.cell(layer, row, site)[side] for site in ("mlp_in", "topk_ids", "topk_weights")
    ]
    hidden_D, ids_K, gates_K = vectors
    if hidden_D is None or ids_K is None or gates_K is None:
        return {}
    num_experts = next(p.shape[0] for p in experts.parameters() if p.ndim == 3)
    chosen_K = (ids_K >= 0) & (ids_K < num_experts)
    ids_K, gates_K = ids_K[chosen_K], gates_K[chosen_K]
    if not len(ids_K):
        return {}
    weight = next(experts.parameters())
    hidden_1D = torch.from_numpy(to_float32(hidden_D).copy())[None].to(weight.device, weight.dtype)
    ids_1K = torch.from_numpy(ids_K.astype(np.int64))[None].to(weight.device)
    norms_K = slot_outputs(experts, hidden_1D, ids_1K)[0].double().norm(dim=-1).cpu().numpy()
    sizes_K = norms_K * np.abs(gates_K.astype(np.float64))
    return {
        int(expert): float(size) if math.isfinite(size) else None
        for expert, size in zip(ids_K, sizes_K, strict=True)
    }


def _by_expert(
    a: Mapping[int, float | None], b: Mapping[int, float | None]
) -> list[dict[str, Any]]:
    return [
        {"expert": expert, "a": a.get(expert), "b": b.get(expert)} for expert in sorted({*a, *b})
    ]
