"""The vocabulary: sides, sites, states, classes of divergence. Stdlib only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, get_args

Path = Literal["rollout", "trainer"]
"""Which software path made a capture: `rollout` (side A) or `trainer` (side B)."""

Phase = Literal["prompt", "generated"]
"""Whether a row's token was given or sampled."""

RowState = Literal["computed", "cached", "sampled"]
"""`computed`: the path ran this row, arrays exist. `cached`: served from a prefix cache, nothing
was computed. `sampled`: the last token of a request, sampled but never fed back: only a logprob."""

Status = Literal["equal", "diverged", "not_comparable"]
"""How a comparison ends. Missing data is never `equal`."""

Verdict = Literal["identical", "rounding", "precision", "semantic", "state", "alignment", "capture"]
"""The kind of difference found."""

WeightsStatus = Literal["equal", "different", "unknown"]
"""What the weight fingerprints of both sides say."""

DivergenceClass = Literal["bit", "rounding", "flip", "unexplained_flip", "local_error", "logprob"]
"""What "first divergence" can mean; each class has its own first."""

DIVERGENCE_CLASSES: Final[tuple[DivergenceClass, ...]] = get_args(DivergenceClass)
DEFAULT_CLASS_ORDER: Final[tuple[DivergenceClass, ...]] = (
    "local_error",
    "unexplained_flip",
    "logprob",
    "rounding",
    "flip",
    "bit",
)
"""Which class leads a report: the first of these that has an entry."""

Axis = Literal["hidden", "experts", "slots", "vocab"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A named place in the forward pass where a tensor is recorded, one vector per row.

    Attributes:
        name: Without the layer prefix, for example `router_logits`.
        per_layer: Whether it occurs once per layer.
        axis: What the vector runs over.
        integer: Whether it holds ids, not numbers.
        about: One line for people.
    """

    name: str
    per_layer: bool
    axis: Axis
    integer: bool = False
    about: str


SITES: Final[tuple[Site, ...]] = (
    Site(name="embed", per_layer=False, axis="hidden", about="input embeddings"),
    Site(name="input", per_layer=True, axis="hidden", about="residual stream entering the layer"),
    Site(name="attn_in", per_layer=True, axis="hidden", about="after the input norm"),
    Site(name="attn_out", per_layer=True, axis="hidden", about="attention output, before the add"),
    Site(name="mlp_in", per_layer=True, axis="hidden", about="what router and experts see"),
    Site(name="router_logits", per_layer=True, axis="experts", about="raw router scores"),
    Site(
        name="topk_ids",
        per_layer=True,
        axis="slots",
        integer=True,
        about="selected experts, logical ids",
    ),
    Site(
        name="topk_weights",
        per_layer=True,
        axis="slots",
        about="gate weights as they multiply the experts",
    ),
    Site(name="routed_out", per_layer=True, axis="hidden", about="routed experts, combined"),
    Site(name="shared_out", per_layer=True, axis="hidden", about="shared expert after its gate"),
    Site(name="mlp_out", per_layer=True, axis="hidden", about="the whole MoE or dense block"),
    Site(name="output", per_layer=True, axis="hidden", about="residual stream leaving the layer"),
    Site(name="final_norm", per_layer=False, axis="hidden", about="input of the LM head"),
    Site(name="logits", per_layer=False, axis="vocab", about="scores of the next token"),
)
"""Canonical sites in execution order; those with `per_layer` once for each layer."""

SITE_BY_NAME: Final[dict[str, Site]] = {site.name: site for site in SITES}
LAYER_SITES: Final[tuple[str, ...]] = tuple(s.name for s in SITES if s.per_layer)
MODEL_SITES: Final[tuple[str, ...]] = tuple(s.name for s in SITES if not s.per_layer)
LOGPROBS: Final = "logprobs"
"""Stands for the row's log-probability where a site is named; it is a column, not a tensor."""
HIDDEN_LAYER_SITES: Final[tuple[str, ...]] = tuple(
    s.name for s in SITES if s.per_layer and s.axis == "hidden"
)
ROUTER_SITES: Final[tuple[str, ...]] = ("router_logits", "topk_ids", "topk_weights")

_LAYER_SITE = re.compile(r"layers\.(0|[1-9]\d{0,5})\.([a-z_]+)")


def layer_site(layer: int, name: str) -> str:
    """The full site name of a layer's site.

    >>> layer_site(7, "router_logits")
    'layers.7.router_logits'
    """
    return f"layers.{layer}.{name}"


def split_site(full: str) -> tuple[int | None, str]:
    """Layer (None for a model-level site) and short name of a full site name.

    Raises:
        ValueError: The name is not a canonical site.

    >>> split_site("layers.7.router_logits")
    (7, 'router_logits')
    >>> split_site("embed")
    (None, 'embed')
    """
    if full in MODEL_SITES:
        return None, full
    match = _LAYER_SITE.fullmatch(full)
    if match is None or match[2] not in LAYER_SITES:
        raise ValueError(f"{full!r} is not a site; sites are {', '.join(SITE_BY_NAME)}")
    return int(match[1]), match[2]


def execution_order(num_layers: int) -> list[str]:
    """Every full site name of a model in execution order."""
    names = ["embed"]
    names += [layer_site(layer, name) for layer in range(num_layers) for name in LAYER_SITES]
    return [*names, "final_norm", "logits"]


SIDE_A: Final = "A (rollout)"
SIDE_B: Final = "B (trainer)"
DIRECTION: Final = "A minus B: dlogp = logp_rollout - logp_trainer"
SAMPLING_SIDE: Final = "tokens sampled from A (rollout); KL is KL(rollout || trainer)"
LOGPROB_CONVENTION: Final = (
    "logits at position p score the token at p+1; a row's logprob is the log-probability of the "
    "row's own token given the tokens before it, from raw logits (float32 log_softmax, before "
    "temperature and any processor)"
)
