"""In which order a side adds up its experts: candidates, recomputed and laid beside both sides.

In 16-bit types the sum of the experts' outputs depends on where it is rounded. Every candidate is
recomputed from the experts' own outputs on A's input, with A's gate weights, and compared bit for
bit with A's recorded sum and with what B's module makes of the same input. Slot order is the order
of A's choices; expert order ascends by expert id.

Axis legend: N row of a batch, K slot, D hidden.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import torch
from torch import nn

from workbench.attribution.local import Seen
from workbench.attribution.rollout_rows import Batch, SideRows
from workbench.capture.layers import takes_choices
from workbench.capture.structure import ModelParts

MAX_ROWS: Final = 1024
"""Rows per layer that candidates are recomputed for."""
MATCH_SHARE: Final = 0.99
"""Elements that must agree for a side to be said to use a candidate."""


class Candidate(NamedTuple):
    """One way to weigh and add.

    Attributes:
        name: Short.
        gates: Whether gate weights are rounded to the path's type first.
        products: Whether each contribution is rounded.
        sums: Whether every partial sum is rounded.
        order: `slot` or `expert`.
        text: In words; `{dtype}` is the path's type.
    """

    name: str
    gates: bool
    products: bool
    sums: bool
    order: str
    text: str


_WAYS: Final = (
    (
        "i",
        False,
        True,
        True,
        "multiply in float32, round each contribution to {dtype}, add in {dtype}",
    ),
    ("ii", False, False, False, "multiply and add in float32, round once at the end"),
    (
        "iii",
        True,
        True,
        True,
        "round the gate weight to {dtype} first, multiply and add in {dtype}",
    ),
    (
        "iv",
        True,
        True,
        False,
        "round the gate weight to {dtype} first, multiply in {dtype}, add in float32, round once",
    ),
    ("v", False, True, False, "multiply in float32, round each contribution, add in float32"),
    (
        "vi",
        True,
        False,
        False,
        "round the gate weight to {dtype} first, multiply and add in float32",
    ),
)
CANDIDATES: Final[tuple[Candidate, ...]] = tuple(
    Candidate(f"{name}-{order}", gates, products, sums, order, f"{text}, in {order} order")
    for name, gates, products, sums, text in _WAYS
    for order in ("slot", "expert")
)
NAMED: Final = ("i", "ii", "iii")
"""The three ways that engines and trainers are known to differ by; the rest are their mixtures."""


def weigh_and_add(
    experts_NKD: torch.Tensor,
    weights_NK: torch.Tensor,
    ids_NK: torch.Tensor,
    candidate: Candidate,
    dtype: torch.dtype,
) -> torch.Tensor:
    """The weighted sum of the experts' outputs by one candidate, in `dtype`, [N, D]."""
    if candidate.order == "expert":
        order_NK = ids_NK.argsort(dim=1, stable=True)
        weights_NK = weights_NK.gather(1, order_NK)
        experts_NKD = experts_NKD.take_along_dim(order_NK[:, :, None], dim=1)
    gates_NK = weights_NK.float()
    if candidate.gates:
        gates_NK = gates_NK.to(dtype).float()
    products_NKD = experts_NKD.float() * gates_NK[:, :, None]
    if candidate.products:
        products_NKD = products_NKD.to(dtype).float()
    total_ND = products_NKD[:, 0]
    if candidate.sums:
        total_ND = total_ND.to(dtype).float()
    for slot in range(1, products_NKD.shape[1]):
        total_ND = total_ND + products_NKD[:, slot]
        if candidate.sums:
            total_ND = total_ND.to(dtype).float()
    return total_ND.to(dtype)


@dataclass(slots=True)
class Agreement:
    """How often each candidate gave a side's very bits."""

    elements: dict[str, int] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    num_elements: int = 0
    num_rows: int = 0

    def add(self, own_ND: torch.Tensor, made: dict[str, torch.Tensor]) -> None:
        """Counts one batch of rows."""
        self.num_rows += own_ND.shape[0]
        self.num_elements += own_ND.numel()
        for name, made_ND in made.items():
            same_ND = made_ND == own_ND
            self.elements[name] = self.elements.get(name, 0) + int(same_ND.sum())
            self.rows[name] = self.rows.get(name, 0) + int(same_ND.all(-1).sum())

    def share(self, name: str) -> float:
        """Share of elements that agree."""
        return self.elements.get(name, 0) / self.num_elements if self.num_elements else 0.0

    def to_json(self) -> dict[str, Any]:
        """Best candidates and all shares."""
        best = max((self.share(c.name) for c in CANDIDATES), default=0.0)
        names = [c.name for c in CANDIDATES if self.share(c.name) == best]
        return {
            "candidate": names[0] if best >= MATCH_SHARE else None,
            "closest": names[0] if names else None,
            "same_as": names[1:],
            "elements": best,
            "rows": self.rows.get(names[0], 0) / self.num_rows if names and self.num_rows else 0.0,
            "shares": {c.name: self.share(c.name) for c in CANDIDATES},
        }


class CombineWatcher:
    """Recomputes the candidates for rows of the sampled batches.

    Args:
        parts: The trainer; its experts are run with one slot at a time, at weight 1.
        source: Side A.
    """

    def __init__(self, parts: ModelParts, source: SideRows) -> None:
        self._source = source
        self._layers = {
            layer.index: layer
            for layer in parts.layers
            if layer.experts is not None and takes_choices(layer.experts)
        }
        self.a: dict[int, Agreement] = {}
        self.b: dict[int, Agreement] = {}
        self.dtypes: dict[int, torch.dtype] = {}
        self._inputs: dict[int, torch.Tensor] = {}
        self._sampled = False
        self.handles = [
            layer.experts.register_forward_pre_hook(self._hook(index), with_kwargs=True)
            for index, layer in self._layers.items()
            if layer.experts is not None
        ]

    def close(self) -> None:
        """Removes the hooks."""
        for handle in self.handles:
            handle.remove()

    def _hook(self, index: int) -> Any:
        def hook(_module: nn.Module, args: Any, kwargs: Any) -> None:
            if self._sampled:
                given = kwargs.get("hidden_states", args[0] if args else None)
                if isinstance(given, torch.Tensor):
                    self._inputs[index] = given

        return hook

    def begin(self, batch: Batch, *, sampled: bool) -> None:
        """Before a batch."""
        del batch
        self._sampled = sampled
        self._inputs.clear()

    def seen(self, seen: Seen) -> None:
        """Looks at the routed output."""
        layer, name = seen.place
        if not self._sampled or name != "routed_experts" or layer not in self._inputs:
            return
        assert layer is not None
        dtype = seen.own_NX.dtype
        if torch.finfo(dtype).bits > 16 or seen.a_NX.dtype != dtype:
            return
        a, b = self.a.setdefault(layer, Agreement()), self.b.setdefault(layer, Agreement())
        rows = torch.nonzero(seen.mask_N)[: MAX_ROWS - a.num_rows, 0]
        ids = self._source.values(layer, "topk_ids")
        weights = self._source.values(layer, "topk_weights")
        if not len(rows) or ids is None or weights is None:
            return
        self.dtypes[layer] = dtype
        hidden_ND = self._inputs[layer].reshape(len(seen.mask_N), -1)[rows]
        ids_NK = ids.values_NX.long().to(hidden_ND.device)[rows]
        experts_NKD = slot_outputs(self._layers[layer].experts, hidden_ND, ids_NK)
        made = {
            c.name: weigh_and_add(
                experts_NKD, weights.values_NX.to(hidden_ND.device)[rows], ids_NK, c, dtype
            )
            for c in CANDIDATES
        }
        a.add(seen.a_NX[rows], made)
        b.add(seen.own_NX[rows], made)


def slot_outputs(
    experts: nn.Module | None, hidden_ND: torch.Tensor, ids_NK: torch.Tensor
) -> torch.Tensor:
    """Each slot's expert on its row, unweighted, [N, K, D]: the experts run once per slot."""
    assert experts is not None
    ones_N1 = torch.ones(len(ids_NK), 1, dtype=hidden_ND.dtype, device=hidden_ND.device)
    return torch.stack(
        [
            experts.forward(hidden_ND, ids_NK[:, slot : slot + 1].contiguous(), ones_N1)
            for slot in range(ids_NK.shape[1])
        ],
        dim=1,
    )


def text_of(name: str, dtype: torch.dtype) -> str:
    """A candidate in words."""
    text = next(c.text for c in CANDIDATES if c.name == name)
    return text.format(dtype=str(dtype).removeprefix("torch."))
