"""The trainer's model as side B ran it: loaded from disk, or checked when it is at hand.

Type, attention and experts implementation come from side B's manifest, because another of them is
another arithmetic. What cannot be had the same way is said, never swallowed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import nn

from workbench.capture.arrays import dtype_by_name
from workbench.capture.structure import ModelParts, find_parts
from workbench.capture.trainer.facts import (
    live_knobs,
    model_dtype,
    weights_fingerprint,
)
from workbench.capture.trainer.loading import load_causal_lm
from workbench.comparison.weights import Weights, compare_weights
from workbench.errors import UsageError
from workbench.store import Manifest
from workbench.store.manifest import with_changes

_IMPLEMENTATIONS = ("attn_implementation", "experts_implementation")
_NOT_A_CHOICE = ("none", "own", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """The model that attribution runs.

    Attributes:
        parts: Taken apart.
        weights_a: Its weights against A's fingerprint.
        weights_b: Its weights against B's.
        notes: Where it does not run as side B did.
    """

    parts: ModelParts
    weights_a: Weights
    weights_b: Weights
    notes: tuple[str, ...]


def open_trainer(model: str | os.PathLike[str] | nn.Module, a: Manifest, b: Manifest) -> Trainer:
    """Side B's model, loaded as B's manifest says, or the one at hand.

    Raises:
        UsageError: It cannot be loaded, or is of another size than the captures.
        MissingDependencyError: transformers, or a package the model needs, is not installed.
        RecordingError: It cannot be taken apart.
    """
    live = model if isinstance(model, nn.Module) else _load(model, b)
    parts = find_parts(live)
    _check_size(parts, b)
    weights = weights_fingerprint(parts.model)
    here = with_changes(b, {"weights": weights})
    return Trainer(
        parts=parts,
        weights_a=compare_weights(a, here),
        weights_b=compare_weights(with_changes(a, {"weights": b.weights}), here),
        notes=tuple(_differences(parts, b)),
    )


def _load(model: str | os.PathLike[str], b: Manifest) -> nn.Module:
    options: dict[str, Any] = {"dtype": dtype_by_name(b.dtype) if b.dtype else "auto"}
    for name in _IMPLEMENTATIONS:
        choice = str(b.knobs.get(name, ""))
        if choice not in _NOT_A_CHOICE and "+" not in choice:
            options[name] = choice
    return load_causal_lm(
        model,
        purpose="to run the trainer's model",
        expected="the causal language model of both captures, on disk",
        do="give --model the directory that the trainer was loaded from",
        **options,
    )


def _check_size(parts: ModelParts, b: Manifest) -> None:
    for name, got, expected in (
        ("layers", len(parts.layers), b.model.num_layers),
        ("hidden size", parts.hidden_size, b.model.hidden_size),
    ):
        if expected and got != expected:
            raise UsageError(
                "this is not the model of the captures",
                expected=f"{name} {expected}, as side B recorded",
                got=f"{name} {got}",
                do="give the model that both sides ran",
            )


def _differences(parts: ModelParts, b: Manifest) -> Iterator[str]:
    knobs = live_knobs(parts)
    for name in _IMPLEMENTATIONS:
        then = b.knobs.get(name)
        if then is not None and then != knobs[name]:
            yield f"{name} is {knobs[name]} here and was {then} when side B was recorded"
    if b.dtype and model_dtype(parts.model) != b.dtype:
        yield f"the model is {model_dtype(parts.model)} here and was {b.dtype} on side B"
    if b.engine != "transformers":
        yield f"side B was made by {b.engine or 'an unknown engine'}, not by transformers"


@contextmanager
def as_evaluated(model: nn.Module) -> Iterator[None]:
    """The model in eval mode, and back in its own at the end."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
