"""The modules that an error is charged to: what each makes, from what, and how far it may round.

A module here is a stretch of the forward between two sites that side A recorded, so the kinds cover
everything from the embeddings to the logits, residual adds included. The budgets count roundings as
the comparison's do, inside one module alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

from workbench.comparison.tolerance import LAMBDA, RMS_ROUNDING, U32

Kind = Literal[
    "embedding",
    "input_norm",
    "attention",
    "post_attention_norm",
    "router",
    "top_k",
    "gate_weights",
    "routed_experts",
    "shared_expert",
    "combine",
    "dense_mlp",
    "residual_add",
    "final_norm",
    "lm_head",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One kind of module.

    Attributes:
        name: As reports say it.
        site: The site it makes.
        inputs: Sites of A that it is given.
        roundings: Roundings in the path's type inside it, `top_k` - 1 more where `combines`.
        products: Inner products inside it, accumulated in float32.
        combines: Whether it adds up the experts.
        about: One line for people.
    """

    name: Kind
    site: str
    inputs: tuple[str, ...]
    roundings: float
    products: float = 0
    combines: bool = False
    about: str

    @property
    def of_model(self) -> bool:
        """Whether it stands once in the model, not once per layer."""
        return self.name in ("embedding", "final_norm", "lm_head")


MODULES: Final[tuple[Module, ...]] = (
    Module(name="embedding", site="embed", inputs=(), roundings=1, about="ids to vectors"),
    Module(
        name="input_norm",
        site="attn_in",
        inputs=("input",),
        roundings=2,
        products=1,
        about="norm before attention",
    ),
    Module(
        name="attention",
        site="attn_out",
        inputs=("attn_in",),
        roundings=9,
        products=3,
        about="attention over the whole sequence",
    ),
    Module(
        name="post_attention_norm",
        site="mlp_in",
        inputs=("input", "attn_out"),
        roundings=3,
        products=1,
        about="residual add after attention, and the norm after it",
    ),
    Module(
        name="router",
        site="router_logits",
        inputs=("mlp_in",),
        roundings=1,
        products=1,
        about="scores of the experts",
    ),
    Module(
        name="top_k",
        site="topk_ids",
        inputs=("router_logits",),
        roundings=3,
        about="the choice, given A's scores",
    ),
    Module(
        name="gate_weights",
        site="topk_weights",
        inputs=("router_logits", "topk_ids"),
        roundings=3,
        about="gate weights, given A's scores and choices",
    ),
    Module(
        name="routed_experts",
        site="routed_out",
        inputs=("mlp_in", "topk_ids", "topk_weights"),
        roundings=7,
        products=2,
        combines=True,
        about="experts and their weighted sum, given A's choices and gate weights",
    ),
    Module(
        name="shared_expert",
        site="shared_out",
        inputs=("mlp_in",),
        roundings=5,
        products=2,
        about="shared expert after its gate",
    ),
    Module(
        name="combine",
        site="mlp_out",
        inputs=("routed_out", "shared_out"),
        roundings=2,
        about="routed and shared output put together",
    ),
    Module(
        name="dense_mlp",
        site="mlp_out",
        inputs=("mlp_in",),
        roundings=4,
        products=2,
        about="feed-forward block without experts",
    ),
    Module(
        name="residual_add",
        site="output",
        inputs=("input", "attn_out", "mlp_out"),
        roundings=2,
        about="both residual adds",
    ),
    Module(
        name="final_norm",
        site="final_norm",
        inputs=("output",),
        roundings=2,
        products=1,
        about="norm before the LM head",
    ),
    Module(
        name="lm_head",
        site="logits",
        inputs=("final_norm",),
        roundings=1,
        products=1,
        about="logits, given A's input of the LM head",
    ),
)
"""In execution order."""

MODULE_BY_NAME: Final[dict[str, Module]] = {module.name: module for module in MODULES}
EXECUTION_ORDER: Final[dict[str, int]] = {m.name: place for place, m in enumerate(MODULES)}
_BY_SITE: Final[dict[str, Module]] = {
    m.site: m for m in MODULES if m.name not in ("combine", "dense_mlp")
}


def module_of(site: str, *, dense: bool) -> Module | None:
    """The module that makes a site; `dense` in a layer without experts. None for `input`."""
    if site == "mlp_out":
        return MODULE_BY_NAME["dense_mlp" if dense else "combine"]
    return _BY_SITE.get(site)


def rounding_budget(module: Module, roundoff: float, *, hidden_size: int, top_k: int) -> float:
    """Relative L2 error that rounding inside a module may make between two implementations.

    The formula of the comparison's local budgets (`comparison/tolerance.py`), for one module and
    the unit roundoff of the type its output is held in.
    """
    roundings = module.roundings + (max(top_k - 1, 0) if module.combines else 0)
    variance = roundings * roundoff**2 + module.products * hidden_size * U32**2
    return LAMBDA * RMS_ROUNDING * math.sqrt(2 * variance)
