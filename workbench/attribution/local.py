"""The local error map: each module of the trainer on the rollout's inputs, in one forward.

At every site the module's own result is measured against A's value and then replaced by A's, so the
next module starts from A again, residual adds included. The invariant: a row is measured only where
A has the module's output and all its inputs; attention also needs every earlier row of the
sequence. What is not measured is missing, never 0.

Axis legend: B sequence, S column, N = B * S flat place, X element, E expert, K slot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import torch

from workbench.attribution import rowerrors
from workbench.attribution.intercept import Spot
from workbench.attribution.kinds import MODULES, Module, module_of
from workbench.attribution.rollout_rows import Batch, Held, SideRows
from workbench.attribution.substitute import Place, merge, merge_choices, merge_gates

ModulePlace = tuple[int | None, str]
"""Layer (None for a module of the model) and module name."""


class Seen(NamedTuple):
    """One module of one batch, measured.

    Attributes:
        place: Layer and module.
        own_NX: What B's module made of A's inputs; choices for `top_k`, dense over the experts for
            `gate_weights`.
        a_NX: A's value, in the same form.
        mask_N: Rows that can be measured.
        scores_NE: For `top_k`, what B's selection looked at; else None.
        largest_N: For `top_k`, the largest |score| of A per row, at least 1; else None.
    """

    place: ModulePlace
    own_NX: torch.Tensor
    a_NX: torch.Tensor
    mask_N: torch.Tensor
    scores_NE: torch.Tensor | None = None
    largest_N: torch.Tensor | None = None

    def error_N(self) -> torch.Tensor:
        """The local error per row, float64, NaN where it was not measured.

        ‖A - own‖ / ‖own‖; for `top_k` how much better B's choices score than A's, relative, over
        the largest score (rounding of a softmax grows with it).
        """
        if self.scores_NE is not None and self.largest_N is not None:
            gap_N = rowerrors.choice_gap(self.scores_NE, self.a_NX, self.own_NX, self.mask_N)
            return gap_N / self.largest_N
        return rowerrors.relative(self.a_NX, self.own_NX, self.mask_N)


class Sink(Protocol):
    """Takes what a local pass sees, module by module, while the forward runs."""

    def seen(self, seen: Seen) -> None:
        """Takes one module."""
        ...


class Shape(NamedTuple):
    """What a local pass must know of the model: experts per layer, 0 in a dense layer."""

    num_experts: Mapping[int, int]

    def is_dense(self, layer: int | None) -> bool:
        """Whether a layer has no experts."""
        return layer is not None and self.num_experts.get(layer, 0) == 0


@dataclass(slots=True)
class LocalPass:
    """Visitor of one forward: measures each module, then puts A's value in its place.

    Attributes:
        source: Side A, turned to the batch of the forward.
        batch: The batch.
        shape: Of the model.
        sink: Takes what is seen.
        masks: Rows that A has, by place; filled as the forward goes.
    """

    source: SideRows
    batch: Batch
    shape: Shape
    sink: Sink
    masks: dict[Place, torch.Tensor] = field(default_factory=dict)
    _last_layer: int | None = None

    def visit(self, spot: Spot) -> torch.Tensor | None:
        """Measures what passes, and gives A's value for it."""
        if spot.layer is not None:
            self._last_layer = spot.layer
        held = self.source.values(spot.layer, spot.site)
        if held is None:
            return None
        held = Held(held.values_NX, self._mask(held.mask_N, spot))
        self.masks[spot.layer, spot.site] = held.mask_N
        other = self._merged(spot, held)
        module = module_of(spot.site, dense=self.shape.is_dense(spot.layer))
        if module is not None:
            self.sink.seen(self._seen(spot, held, module))
        return other

    def _mask(self, mask_N: torch.Tensor, spot: Spot) -> torch.Tensor:
        """Gate weights count only where the choices they belong to are known."""
        ids = self.masks.get((spot.layer, "topk_ids")) if spot.site == "topk_weights" else None
        return mask_N if ids is None else mask_N & ids

    def _merged(self, spot: Spot, held: Held) -> torch.Tensor:
        if spot.site == "topk_ids":
            return merge_choices(spot.tensor, held)
        if spot.site == "topk_weights" and spot.beside is not None:
            ids = self.source.values(spot.layer, "topk_ids")
            return spot.tensor if ids is None else merge_gates(spot.tensor, spot.beside, ids, held)
        return merge(spot.tensor, held)

    def _seen(self, spot: Spot, held: Held, module: Module) -> Seen:
        own_NX = spot.tensor.reshape(-1, spot.tensor.shape[-1])
        mask_N = (held.mask_N & self._inputs(spot.layer, module)).to(own_NX.device)
        place: ModulePlace = (spot.layer, module.name)
        if module.name == "top_k":
            return self._seen_choice(place, spot, held, mask_N)
        if module.name == "gate_weights" and spot.beside is not None:
            return self._seen_gates(place, spot, held, mask_N)
        width = min(own_NX.shape[1], held.values_NX.shape[1])
        a_NX = held.values_NX[:, :width].to(own_NX.device)
        return Seen(place, own_NX[:, :width], a_NX, mask_N)

    def _seen_choice(
        self, place: ModulePlace, spot: Spot, held: Held, mask_N: torch.Tensor
    ) -> Seen:
        assert spot.beside is not None
        scores_NE = spot.beside.reshape(-1, spot.beside.shape[-1])
        a_NK = held.values_NX.to(scores_NE.device, torch.int64)
        a_NK = torch.where(mask_N[:, None], a_NK, 0)
        logits = self.source.values(spot.layer, "router_logits")
        largest_N = torch.ones(len(scores_NE), dtype=torch.float64, device=scores_NE.device)
        if logits is not None:
            top_N = logits.values_NX.double().abs().amax(-1).to(scores_NE.device)
            largest_N = torch.where(top_N.isfinite(), top_N, 1.0).clamp(min=1.0)
        own_NK = spot.tensor.reshape(-1, spot.tensor.shape[-1])
        return Seen(place, own_NK, a_NK, mask_N, scores_NE, largest_N)

    def _seen_gates(self, place: ModulePlace, spot: Spot, held: Held, mask_N: torch.Tensor) -> Seen:
        """Both sides' gate weights over all experts, so that slots do not matter."""
        assert spot.beside is not None
        assert spot.layer is not None
        ids = self.source.values(spot.layer, "topk_ids")
        own_ids_NK = spot.beside.reshape(-1, spot.beside.shape[-1]).long()
        num_experts = max(self.shape.num_experts[spot.layer], int(own_ids_NK.max()) + 1)
        own_NE = dense_gates(own_ids_NK, spot.tensor.reshape(own_ids_NK.shape), num_experts)
        a_ids_NK = own_ids_NK if ids is None else ids.values_NX.to(own_NE.device).long()
        a_ids_NK = a_ids_NK.clamp(0, num_experts - 1)
        a_NE = dense_gates(a_ids_NK, held.values_NX.to(own_NE.device), num_experts)
        return Seen(place, own_NE, a_NE, mask_N)

    def _inputs(self, layer: int | None, module: Module) -> torch.Tensor:
        """Rows whose every input is A's; inputs that A did not record at all are B's own."""
        mask_N = torch.ones(self.batch.rows_N.size, dtype=torch.bool)
        for site in module.inputs:
            place: Place = (layer, site)
            if module.name == "final_norm":
                place = (self._last_layer, site)
            mask_N &= self.masks.get(place, mask_N)
        if module.name == "attention":
            mask_N = whole_before(mask_N.reshape(self.batch.rows_BS.shape)).reshape(-1)
        return mask_N


def dense_gates(ids_NK: torch.Tensor, weights_NK: torch.Tensor, num_experts: int) -> torch.Tensor:
    """Gate weights over all experts, 0 where an expert was not chosen, [N, E]."""
    dense_NE = torch.zeros(
        len(ids_NK), num_experts, dtype=weights_NK.dtype, device=weights_NK.device
    )
    return dense_NE.scatter_add(1, ids_NK, weights_NK)


def whole_before(mask_BS: torch.Tensor) -> torch.Tensor:
    """Columns with no hole in their sequence up to and including themselves."""
    return mask_BS.long().cummin(dim=1).values.bool()


def attention_gaps(source: SideRows, batch: Batch) -> dict[str, int]:
    """Sequences whose attention cannot be attributed from some row on: name to that position.

    A row that A did not compute at the end of a sequence takes nothing away.
    """
    there_BS = torch.from_numpy(source.has_rows(batch.rows_N).reshape(batch.rows_BS.shape))
    whole_BS = whole_before(there_BS)
    lost_BS = there_BS & ~whole_BS
    return {
        name: int(torch.nonzero(~there_BS[place])[0, 0])
        for place, name in enumerate(batch.requests)
        if bool(lost_BS[place].any())
    }


def charged_with(
    layer: int | None, module: Module, has: Callable[[int | None, str], bool], *, num_layers: int
) -> list[str]:
    """Other modules whose errors a module's local error holds too, because A lacks a site between.

    Args:
        layer: Of the module.
        module: The module.
        has: Whether A recorded a site.
        num_layers: L.
    """
    found: list[str] = []
    for site in module.inputs:
        here: int | None = num_layers - 1 if module.name == "final_norm" else layer
        if site == "input":
            # The stream entering a layer is the one that left the layer before.
            before = (None, "embed") if layer in (0, None) else (int(layer) - 1, "output")
            if has(layer, "input") or has(*before):
                continue
            here, site = before  # noqa: PLW2901 - the stream has two names
        elif has(here, site):
            continue
        maker = next((m for m in MODULES if m.site == site and m.name != "dense_mlp"), None)
        if site == "shared_out" or maker is None:
            continue
        found += [maker.name, *charged_with(here, maker, has, num_layers=num_layers)]
    return list(dict.fromkeys(found))


def rows_of(batch: Batch, mask_N: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Places of the mask and the rows of the comparison that they are."""
    places = np.flatnonzero(mask_N.cpu().numpy() & (batch.rows_N >= 0))
    return places, batch.rows_N[places]
