"""Words for modules and for who is wrong there, the same in every face. Stdlib only."""

from __future__ import annotations

from typing import Final

SHORT_TITLES: Final[dict[str, str]] = {
    "post_attention_norm": "post-attn norm",
    "gate_weights": "gate weights",
    "top_k": "top-k",
    "dense_mlp": "dense MLP",
    "lm_head": "LM head",
}
"""Modules whose plain name is too long for a table, or is written otherwise."""

WHO: Final[dict[str, str]] = {
    "neither": "neither side is outside its rounding budget",
    "A": "A (rollout) is wrong: B agrees with the exact result, A does not",
    "B": "B (trainer) is wrong: A agrees with the exact result, B does not",
    "both": "both sides are outside their rounding budget",
    "unknown": "not judged: no arbiter",
}
"""The arbiter's verdict as a sentence."""

WRONG: Final[dict[str, str]] = {
    "neither": "neither side wrong by the arbiter",
    "A": "A wrong by the arbiter",
    "B": "B wrong by the arbiter",
    "both": "A and B wrong by the arbiter",
    "unknown": "no arbiter saw it",
}
"""The same in a few words."""


def short_title(module: str) -> str:
    """A module in at most 14 columns.

    >>> short_title("routed_experts"), short_title("post_attention_norm")
    ('routed experts', 'post-attn norm')
    """
    return SHORT_TITLES.get(module, module.replace("_", " "))


def module_text(layer: int | None, module: str) -> str:
    """A module as people call it.

    >>> module_text(3, "routed_experts")
    'L3 routed experts'
    """
    name = module.replace("_", " ")
    return name if layer is None else f"L{layer} {name}"
