"""What can be made wrong: the names of faults, where each must first show, how large it is.

Owns the vocabulary of faults. Imports neither torch nor transformers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from workbench.errors import UsageError, did_you_mean
from workbench.store.dtypes import unit_roundoff

Kind = Literal[
    "input_norm",
    "attention",
    "post_attention_norm",
    "router_logits",
    "top_k",
    "gate_weights",
    "routed_experts",
    "one_expert",
    "shared_expert",
    "combine",
    "residual_add",
    "final_norm",
    "lm_head",
    "combine-order",
    "batch-floor",
    "softmax-order",
]

Size = Literal["2u", "1e-2", "gross"]
SIZES: Final[tuple[Size, ...]] = get_args(Size)
GROSS: Final = 0.5

CombineOrder = Literal["cast_each", "float32", "round_weights"]
"""How gate weights and expert outputs become one sum.

`cast_each`: multiply in float32, round each product to the path's type, add in the path's type.
`float32`: multiply and add in float32, round once at the end. `round_weights`: round the gate
weight to the path's type first, multiply and add in the path's type.
"""
COMBINE_ORDERS: Final[tuple[CombineOrder, ...]] = get_args(CombineOrder)
CANDIDATE_OF_ORDER: Final[dict[CombineOrder, str]] = {
    "cast_each": "i",
    "float32": "ii",
    "round_weights": "iii",
}
"""Number by which attribution names each way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultInfo:
    """What is known about a kind of fault.

    Attributes:
        site: Site where it must first show; "" for what may show anywhere.
        per_layer: Whether it sits in one layer.
        is_fault: False for what is equally right, and must be called rounding and nothing more.
        about: One line for people.
    """

    site: str
    per_layer: bool = True
    is_fault: bool = True
    about: str


FAULTS: Final[dict[Kind, FaultInfo]] = {
    "input_norm": FaultInfo(site="attn_in", about="the norm before attention"),
    "attention": FaultInfo(site="attn_out", about="attention's output"),
    "post_attention_norm": FaultInfo(site="mlp_in", about="the norm before router and experts"),
    "router_logits": FaultInfo(site="router_logits", about="the router's raw scores"),
    "top_k": FaultInfo(
        site="topk_ids", about="the (k+1)-th expert instead of the k-th where their scores are near"
    ),
    "gate_weights": FaultInfo(site="topk_weights", about="the weights that multiply the experts"),
    "routed_experts": FaultInfo(site="routed_out", about="every routed expert"),
    "one_expert": FaultInfo(site="routed_out", about="one routed expert alone"),
    "shared_expert": FaultInfo(site="shared_out", about="the shared expert"),
    "combine": FaultInfo(site="mlp_out", about="the sum of routed and shared experts"),
    "residual_add": FaultInfo(site="output", about="the residual stream leaving a layer"),
    "final_norm": FaultInfo(site="final_norm", per_layer=False, about="the norm before the head"),
    "lm_head": FaultInfo(site="logits", per_layer=False, about="the LM head"),
    "combine-order": FaultInfo(
        site="routed_out",
        about="experts added up in another precision, which is no more wrong",
    ),
    "batch-floor": FaultInfo(
        site="",
        per_layer=False,
        is_fault=False,
        about="inner products split in two, as kernels do for another batch size",
    ),
    "softmax-order": FaultInfo(
        site="topk_weights",
        is_fault=False,
        about="softmax over the selected scores instead of softmax, selection, renormalising",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One mistake.

    Attributes:
        kind: What is wrong.
        layer: In which layer, from 0; None for kinds that have no layer.
        size: How wrong: a relative error per value, or `2u`, two rounding units of the tensor's own
            type; `gross` is 0.5. For `top_k` the gap, relative to the k-th score, below which the
            (k+1)-th expert is taken; `gross` takes it always.
        expert: Which expert, for `one_expert`.
        order: Which sum, for `combine-order`.
    """

    kind: Kind
    layer: int | None = None
    size: Size | float = "gross"
    expert: int = 0
    order: CombineOrder = "float32"

    def __post_init__(self) -> None:
        if self.kind not in FAULTS:
            raise UsageError(f"unknown fault {self.kind!r}", do=did_you_mean(self.kind, FAULTS))
        if isinstance(self.size, str) and self.size not in SIZES:
            raise UsageError(f"unknown size {self.size!r}", do=did_you_mean(self.size, SIZES))
        if self.order not in COMBINE_ORDERS:
            raise UsageError(
                f"unknown order {self.order!r}", do=did_you_mean(self.order, COMBINE_ORDERS)
            )
        if FAULTS[self.kind].per_layer != (self.layer is not None):
            raise UsageError(
                f"the fault {self.kind} sits in "
                + ("one layer" if FAULTS[self.kind].per_layer else "no layer"),
                expected="layer=N" if FAULTS[self.kind].per_layer else "layer=None",
                got=f"layer={self.layer}",
            )

    @property
    def info(self) -> FaultInfo:
        """What is known about its kind."""
        return FAULTS[self.kind]

    def __str__(self) -> str:
        place = "" if self.layer is None else f" in layer {self.layer}"
        what = self.order if self.kind == "combine-order" else self.size
        return f"{self.kind}{place}, {what}" if self.info.is_fault else f"{self.kind}{place}"


def relative_size(size: Size | float, dtype: str) -> float:
    """The size as a relative error, for a tensor of type `dtype`.

    >>> relative_size("2u", "bfloat16")
    0.0078125
    """
    if size == "2u":
        return 2 * unit_roundoff(dtype)
    return GROSS if size == "gross" else float(size)
