"""Re-running the trainer with chosen values of the rollout: the mechanism behind every swap.

How to use it:

```python
source = rollout_source(comparison)  # side A's stored values, brought to B's contracts
plan = Plan.of((3, "topk_ids"), (None, "final_norm"))
for batch in find_sequences(comparison).batches():
    source.use(batch)
    with substitute(parts, plan, source) as report:
        logits_BSV = replay(parts, batch)  # B's forward, with A's values at the plan's sites
```

What a plan's entries mean, at the rows that A has (other rows keep B's own values):

- `embed`, `input`, `attn_in`, `attn_out`, `mlp_in`, `routed_out`, `shared_out`, `mlp_out`,
  `output`, `final_norm`, `logits`: the tensor there becomes A's, cast to the type B's module gives.
- `router_logits`: the router's projection gives A's scores; selection and gate weights are B's.
- `topk_ids`: A's choices, with gate weights that B computes for them from its own scores. With
  `slot_order="b"` experts that B chose too keep B's slots: the same set, B's order.
- `topk_weights`: A's gate weights, matched by expert id; an expert that A did not choose keeps B's.

Owns plans and the merge of both sides' values; where a value passes is `intercept.py`'s. The
invariant: with an empty plan, or at rows that A lacks, not one bit changes.

Axis legend: B sequence, S column, N = B * S flat place, K slot (J of A), X element, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch

from workbench.attribution.intercept import Spot, intercept, unreachable
from workbench.attribution.rollout_rows import Batch, Held, SideRows
from workbench.capture.structure import ModelParts
from workbench.comparison.contracts import relate
from workbench.comparison.result import Comparison
from workbench.errors import RecordingError, UsageError, did_you_mean
from workbench.names import LAYER_SITES, MODEL_SITES, layer_site

Place = tuple[int | None, str]
"""Layer (None for a site of the model) and short site name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which values to take from A.

    Attributes:
        places: Sites, each with its layer, None for `embed`, `final_norm` and `logits`.
        slot_order: Whose slots the choices of `topk_ids` come in.
    """

    places: frozenset[Place] = frozenset()
    slot_order: Literal["a", "b"] = "a"

    @classmethod
    def of(cls, *places: Place, slot_order: Literal["a", "b"] = "a") -> Plan:
        """A plan of some places.

        Raises:
            UsageError: No such site.
        """
        for layer, site in places:
            known = MODEL_SITES if layer is None else LAYER_SITES
            if site not in known:
                raise UsageError(f"unknown site {site!r}", do=did_you_mean(site, known))
        return cls(places=frozenset(places), slot_order=slot_order)

    def __or__(self, other: Plan) -> Plan:
        return Plan(places=self.places | other.places, slot_order=self.slot_order)

    def __len__(self) -> int:
        return len(self.places)

    @property
    def layers(self) -> list[int]:
        """Layers with an entry, ascending."""
        return sorted({layer for layer, _ in self.places if layer is not None})


class Source(Protocol):
    """Where A's values of the current batch come from."""

    def values(self, layer: int | None, site: str) -> Held | None:
        """Values by flat place, None when the site was not recorded."""
        ...


@dataclass(slots=True)
class Report:
    """What a substitution did.

    Attributes:
        replaced: Rows that took A's value, by place, over all forwards.
        rounded: Places where the cast to B's type rounds A's values.
    """

    replaced: dict[Place, int] = field(default_factory=dict)
    rounded: set[Place] = field(default_factory=set)


def rollout_source(comparison: Comparison) -> SideRows:
    """Side A's stored values, gate weights brought to side B's contract.

    Raises:
        UsageError: The sides place the gate weights differently and no conversion is exact.
        CaptureError: The capture was moved.
    """
    a, b = comparison.capture("a").manifest, comparison.capture("b").manifest
    on_a, on_b = (m.contracts.get("gate_weights_on", "output") for m in (a, b))
    if on_a != on_b:
        raise UsageError(
            "the sides apply their gate weights at different places",
            expected=f"gate weights on the experts' {on_b}, as on side B",
            got=f"on the {on_a} on side A",
            do="this pair can be compared, but not swapped",
        )
    contracts = relate(a, b)
    return SideRows(comparison, "a", gate_factor=contracts.gate_factor_a / contracts.gate_factor_b)


def check_plan(parts: ModelParts, plan: Plan, source: SideRows) -> None:
    """Refuses a plan that cannot be carried out.

    Raises:
        UsageError: A site that A did not record, or that this model does not show, with the reason.
    """
    hidden = unreachable(parts)
    for layer, site in sorted(plan.places, key=lambda place: (place[0] or 0, place[1])):
        name = site if layer is None else layer_site(layer, site)
        if layer is not None and not 0 <= layer < len(parts.layers):
            raise UsageError("no such layer", expected=f"0..{len(parts.layers) - 1}", got=layer)
        reason = None if layer is None else hidden.get((layer, site))
        if reason is None and not source.has(layer, site):
            reason = "side A did not record it"
        if reason is not None:
            raise UsageError(f"{name} cannot be taken from side A", got=reason)


@contextmanager
def substitute(parts: ModelParts, plan: Plan, source: Source) -> Iterator[Report]:
    """Every forward inside the block takes the plan's values from A.

    Raises:
        RecordingError: At the end: a place of the plan that no forward came by.
    """
    visitor = _Substitution(plan, source)
    with intercept(parts, visitor):
        yield visitor.report
    unseen = plan.places - visitor.report.replaced.keys()
    if unseen and visitor.num_visits:
        names = sorted(s if i is None else layer_site(i, s) for i, s in unseen)
        raise RecordingError(
            "a value was to be taken from side A, and the forward never came by its place",
            where=", ".join(names[:4]),
            expected="every place of the plan in every forward",
            do="leave these places out of the plan",
        )


def merge(own: torch.Tensor, held: Held) -> torch.Tensor:
    """B's tensor with A's values at the rows that A has, in B's shape and type.

    Columns that A lacks (a padded vocabulary) keep B's values; columns that B lacks are dropped.
    """
    width = own.shape[-1]
    flat_NX = own.reshape(-1, width)
    values_NX, mask_N = held
    if len(values_NX) != len(flat_NX):
        raise RecordingError(
            "a tensor of this forward has another number of rows than the batch",
            expected=f"{len(values_NX)} rows",
            got=f"{len(flat_NX)} rows",
            do="this architecture cannot be substituted at this site",
        )
    values_NX = values_NX[:, :width].to(own.device, own.dtype)
    if values_NX.shape[1] < width:
        values_NX = torch.cat([values_NX, flat_NX[:, values_NX.shape[1] :]], dim=1)
    return torch.where(mask_N.to(own.device)[:, None], values_NX, flat_NX).reshape(own.shape)


def merge_choices(
    own_ids: torch.Tensor, held: Held, *, slot_order: Literal["a", "b"] = "a"
) -> torch.Tensor:
    """A's choices at the rows that A has; with `slot_order` b in B's slots as far as B has them."""
    merged = merge(own_ids, held)
    if slot_order == "a":
        return merged
    own_NK, a_NK = own_ids.reshape(-1, own_ids.shape[-1]), merged.reshape(-1, own_ids.shape[-1])
    kept_NK = (own_NK[:, :, None] == a_NK[:, None, :]).any(-1)
    new_NK = ~(a_NK[:, :, None] == own_NK[:, None, :]).any(-1)
    # The experts that only A chose fill, in A's order, the slots of those that only B chose.
    result_NK = own_NK.clone()
    free = torch.nonzero(~kept_NK)
    result_NK[free[:, 0], free[:, 1]] = a_NK[new_NK]
    return result_NK.reshape(own_ids.shape)


def merge_gates(
    own: torch.Tensor, ids: torch.Tensor, held_ids: Held, held_weights: Held
) -> torch.Tensor:
    """A's gate weights at the slots of B, matched by expert id; others keep B's."""
    own_NK, ids_NK = own.reshape(-1, own.shape[-1]), ids.reshape(-1, ids.shape[-1])
    a_ids_NJ = held_ids.values_NX.to(ids.device, ids.dtype)
    a_weights_NJ = held_weights.values_NX.to(own.device, own.dtype)
    mask_N = (held_ids.mask_N & held_weights.mask_N).to(own.device)
    same_NKJ = (ids_NK[:, :, None] == a_ids_NJ[:, None, :]) & mask_N[:, None, None]
    found_NK = torch.take_along_dim(a_weights_NJ, same_NKJ.to(torch.int8).argmax(-1), dim=1)
    return torch.where(same_NKJ.any(-1), found_NK, own_NK).reshape(own.shape)


def rounds(values: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether a cast to `dtype` changes any finite value."""
    if values.dtype == dtype or not values.is_floating_point():
        return False
    wide = values.double()
    return bool(((wide.to(dtype).double() != wide) & wide.isfinite()).any())


class _Substitution:
    def __init__(self, plan: Plan, source: Source) -> None:
        self._plan, self._source = plan, source
        self.report = Report()
        self.num_visits = 0

    def visit(self, spot: Spot) -> torch.Tensor | None:
        self.num_visits += 1
        place = (spot.layer, spot.site)
        if place not in self._plan.places:
            return None
        held = self._source.values(*place)
        if held is None:
            return None
        count = int(held.mask_N.sum())
        self.report.replaced[place] = self.report.replaced.get(place, 0) + count
        if place not in self.report.rounded and rounds(held.values_NX, spot.tensor.dtype):
            self.report.rounded.add(place)
        if spot.site == "topk_ids":
            return merge_choices(spot.tensor, held, slot_order=self._plan.slot_order)
        if spot.site == "topk_weights":
            ids = self._source.values(spot.layer, "topk_ids")
            if ids is None or spot.beside is None:
                return None
            return merge_gates(spot.tensor, spot.beside, ids, held)
        return merge(spot.tensor, held)


def replay(parts: ModelParts, batch: Batch) -> torch.Tensor:
    """One forward of whole sequences, padded on the right; logits, [B, S, V], in B's type.

    The model must be in eval mode for its own values to be those of the capture.
    """
    device = next(parts.model.parameters()).device
    with torch.no_grad():
        output = parts.model(
            input_ids=batch.input_ids_BS.to(device),
            attention_mask=batch.mask_BS.to(device),
            use_cache=False,
        )
    logits: torch.Tensor = output.logits
    return logits


def token_logprobs(logits_BSV: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Log-probability of every token given those before it, float32 [B, S].

    NaN at position 0 and in the padding; logits at column s score the token at s + 1.
    """
    scored_BSV = torch.log_softmax(logits_BSV[:, :-1].float(), dim=-1)
    ids_BS = batch.input_ids_BS.to(logits_BSV.device)
    found_BS = torch.full(ids_BS.shape, torch.nan, device=logits_BSV.device)
    found_BS[:, 1:] = scored_BSV.gather(-1, ids_BS[:, 1:, None])[..., 0]
    return found_BS.masked_fill(batch.mask_BS.to(logits_BSV.device) == 0, torch.nan)


def all_places(parts: ModelParts, source: SideRows, sites: Iterable[str]) -> frozenset[Place]:
    """Places of some sites, in every layer that has them on both sides."""
    hidden = unreachable(parts)
    found: set[Place] = set()
    for site in sites:
        layers: list[int | None] = (
            [None] if site in MODEL_SITES else [layer.index for layer in parts.layers]
        )
        found |= {
            (layer, site)
            for layer in layers
            if (layer is None or (layer, site) not in hidden) and source.has(layer, site)
        }
    return frozenset(found)
