"""Pairs of captures of tiny models, one side with a fault, compared and attributed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tests.capture.models import random_ids
from workbench.attribution.intercept import Spot, intercept
from workbench.attribution.run import attribute
from workbench.capture.structure import find_parts
from workbench.capture.trainer import record
from workbench.comparison.result import Comparison
from workbench.comparison.run import compare

Change = Callable[[torch.Tensor], torch.Tensor]
LENGTHS = (17, 23, 9, 30)


@dataclass(frozen=True, slots=True)
class Fault:
    """Visitor that changes what one site makes."""

    layer: int | None
    site: str
    change: Change

    def visit(self, spot: Spot) -> torch.Tensor | None:
        here = (spot.layer, spot.site) == (self.layer, self.site)
        return self.change(spot.tensor) if here else None


def recorded(
    model: Any,
    directory: Path,
    *,
    fault: Fault | None = None,
    lengths: Sequence[int] = LENGTHS,
    logits: bool = True,
    alone: bool = True,
) -> Path:
    """A capture of a model, sequence by sequence or in one padded batch."""
    sequences = random_ids(*lengths)
    parts = find_parts(model)
    # The fault's hooks come first, so that the recording sees what it made.
    with (
        torch.no_grad(),
        intercept(parts, fault) if fault is not None else nullcontext(),
        record(model, directory, logits=logits),
    ):
        if alone:
            for ids in sequences:
                model(input_ids=torch.tensor([ids]))
        else:
            model(**padded(sequences))
    return directory


def padded(sequences: Sequence[Sequence[int]]) -> dict[str, torch.Tensor]:
    """A batch, padded on the right."""
    longest = max(map(len, sequences))
    ids = torch.zeros(len(sequences), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = torch.tensor(sequence)
        mask[row, : len(sequence)] = 1
    return {"input_ids": ids, "attention_mask": mask}


def attributed(a: Path, b: Path, model: Any, out: Path) -> Comparison:
    """The comparison of two captures, attributed without swaps."""
    return attribute(compare(a, b, out=out), model, swaps=False)


def beyond(comparison: Comparison) -> list[tuple[int | None, str]]:
    """Modules with rows beyond their budget."""
    modules = comparison.summary["attribution"]["modules"]
    return [(module["layer"], module["module"]) for module in modules if module["over"]]


def module(comparison: Comparison, layer: int | None, name: str) -> dict[str, Any]:
    """The finding of one module."""
    found: dict[str, Any] = next(
        m
        for m in comparison.summary["attribution"]["modules"]
        if (m["layer"], m["module"]) == (layer, name)
    )
    return found
