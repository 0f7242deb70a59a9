"""Pairs of the same mathematics in other arithmetic: nothing may be reported about them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tests.attribution.matrix import Subject, attributed, capture, reported, subject
from workbench.capture.structure import find_parts
from workbench.comparison.result import Comparison
from workbench.faults import FAULTS, Fault, can_inject, inject
from workbench.faults.kinds import Kind


class CleanPair(NamedTuple):
    """What a clean pair gave; `found` is what was reported, "" for nothing."""

    name: str
    found: str
    kl: float | None
    comparison: Comparison


def clean_pairs(name: str, dtype: torch.dtype, scratch: Path) -> Iterator[CleanPair]:
    """The pairs of one subject, each compared and attributed."""
    plain = subject(name, dtype)
    trainer = capture(plain, scratch / "clean-b")
    for attention, experts in (("eager", "eager"), ("sdpa", "batched_mm"), ("eager", "grouped_mm")):
        other = subject(name, dtype)
        other.model.set_attn_implementation(attention)
        other.model.set_experts_implementation(experts)
        a = capture(other, scratch / "clean-a", path="rollout")
        yield _pair(f"{attention} attention, {experts} experts", a, trainer, scratch, plain)
    a = capture(plain, scratch / "clean-a", path="rollout", one_by_one=True)
    yield _pair("one sequence at a time", a, trainer, scratch, plain)
    for kind in ("batch-floor", "softmax-order"):
        changes = _non_faults(plain, kind)
        if changes:
            with ExitStack() as stack:
                for change in changes:
                    stack.enter_context(inject(plain.model, change))
                a = capture(plain, scratch / "clean-a", path="rollout")
            yield _pair(kind, a, trainer, scratch, plain)


def _non_faults(plain: Subject, kind: Kind) -> list[Fault]:
    """The non-fault in every layer that can have it."""
    if not FAULTS[kind].per_layer:
        return [Fault(kind=kind)]
    if not _renormalises(plain):
        return []
    layers = range(len(find_parts(plain.model).layers))
    faults = [Fault(kind=kind, layer=layer) for layer in layers]
    return [fault for fault in faults if not can_inject(plain.model, fault)]


def _renormalises(plain: Subject) -> bool:
    """Softmax over all experts, divided by the sum over the selected ones."""
    config: Any = plain.model.config
    return config.model_type == "mixtral" or (
        config.model_type.startswith("qwen") and bool(config.norm_topk_prob)
    )


def _pair(name: str, a: Path, b: Path, scratch: Path, plain: Subject) -> CleanPair:
    comparison = attributed(a, b, scratch / "clean", plain.model)
    found = reported(comparison)
    return CleanPair(name, found, comparison.summary["kl"]["exact_mean"], comparison)
