"""`attribute`: which module is wrong, which side is, and why choices differ, for a comparison.

Runs the trainer's model on the comparison's own tokens, with A's captured values as inputs of every
module, and writes the findings into the comparison directory.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from workbench.attribution.columns import Scratch
from workbench.attribution.combine import CombineWatcher
from workbench.attribution.contributions import contributions
from workbench.attribution.first import first_local_error
from workbench.attribution.flips import FlipWatcher
from workbench.attribution.intercept import unreachable
from workbench.attribution.judge import judge
from workbench.attribution.kinds import MODULE_BY_NAME
from workbench.attribution.loading import Trainer, as_evaluated, open_trainer
from workbench.attribution.local import ModulePlace, Shape, attention_gaps, charged_with
from workbench.attribution.mapping import Map, Mapper
from workbench.attribution.outcome import arbiter_json, combine_json, outcome_with_modules
from workbench.attribution.publish import publish, withdraw, without_findings
from workbench.attribution.reference import Reference, make_reference
from workbench.attribution.rollout_rows import (
    Sequences,
    SideRows,
    find_sequences,
    token_budget,
)
from workbench.attribution.substitute import rollout_source
from workbench.capture.structure import ModelParts
from workbench.comparison.result import Comparison, open_comparison
from workbench.errors import UsageError
from workbench.names import SITE_BY_NAME

Progress = Callable[[str], None]
MAX_KEPT_ELEMENTS: Final = 1 << 29
"""Numbers that a batch may leave for the arbiter: about eight per layer and hidden element."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    comparison: Comparison
    trainer: Trainer
    reference: Reference | None
    sequences: Sequences
    side_a: SideRows
    side_b: SideRows
    shape: Shape
    max_tokens: int

    @property
    def parts(self) -> ModelParts:
        return self.trainer.parts


def attribute(
    comparison: Comparison | str | os.PathLike[str],
    model: str | os.PathLike[str] | nn.Module,
    *,
    swaps: bool = True,
    progress: Progress | None = None,
) -> Comparison:
    """Finds which module differs on equal inputs, who is wrong there, and why experts flipped.

    One forward of the trainer per batch in which every module's input is A's captured one, and one
    of its float64 copy as arbiter. Writes `local.arrow`, `attribution.json` and the summary's
    `attribution` and `first.local_error` into the comparison's directory.

    Args:
        comparison: An open comparison, or its directory.
        model: The trainer's model: loaded, or a directory that is loaded as side B ran it.
        swaps: Also re-run the trainer with parts taken from the rollout, and prove the cause.
        progress: Told what is being done, in a few words.

    Returns:
        The comparison, opened again.

    Raises:
        UsageError: The model cannot be loaded or is another one; nothing can be replayed.
        CaptureError: A capture was moved, or the directory cannot be written.
        MissingDependencyError: transformers is not installed.
    """
    say = progress or _silent
    opened = comparison if isinstance(comparison, Comparison) else open_comparison(comparison)
    opened.check_writable()
    started = time.monotonic()
    a, b = opened.capture("a").manifest, opened.capture("b").manifest
    say("loading the model")
    trainer = open_trainer(model, a, b)
    withdraw(opened.directory, opened.summary)
    with as_evaluated(trainer.parts.model), torch.no_grad():
        job = _job(opened, trainer)
        with _scratch(opened) as directory:
            details = _attributed(job, directory, say)
            details["seconds"] = time.monotonic() - started
            summary = _summary(opened, details)
            publish(
                opened.directory,
                table=directory / "table",
                details=details,
                summary=summary,
            )
        found = open_comparison(opened.directory)
        if swaps:
            found = _experiments(found, trainer.parts, say)
    return found


def _silent(_stage: str) -> None:
    pass


def _job(comparison: Comparison, trainer: Trainer) -> _Job:
    sequences = find_sequences(comparison)
    if not sequences.names:
        raise UsageError(
            "no request of this comparison can be replayed",
            where=comparison.directory,
            expected="at least one request with all of its tokens",
            got=next(iter(sequences.skipped.values()), "no rows"),
            do="record both sides again to their end",
        )
    parts = trainer.parts
    vocab = int(getattr(parts.config, "vocab_size", 0) or 0)
    return _Job(
        comparison=comparison,
        trainer=trainer,
        reference=make_reference(parts),
        sequences=sequences,
        side_a=rollout_source(comparison),
        side_b=SideRows(comparison, "b"),
        shape=Shape({layer.index: _num_experts(layer.experts) for layer in parts.layers}),
        max_tokens=min(token_budget(vocab), _kept_budget(parts)),
    )


def _kept_budget(parts: ModelParts) -> int:
    """Tokens per forward so that one batch's module outputs, kept for the arbiter, fit."""
    return max(1, MAX_KEPT_ELEMENTS // (8 * len(parts.layers) * parts.hidden_size))


def _num_experts(experts: nn.Module | None) -> int:
    return 0 if experts is None else next(p.shape[0] for p in experts.parameters() if p.ndim == 3)


@contextmanager
def _scratch(comparison: Comparison) -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix=".attribution-", dir=comparison.directory))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _attributed(job: _Job, directory: Path, say: Progress) -> dict[str, Any]:
    comparison = job.comparison
    scratch = Scratch(directory, num_layers=comparison.num_layers, num_rows=comparison.num_rows)
    found = Map(scratch)
    flips = FlipWatcher(comparison, job.parts, job.side_a, job.side_b)
    combine = CombineWatcher(job.parts, job.side_a)
    a, b = (comparison.capture(side).manifest for side in ("a", "b"))
    mapper = Mapper(
        job.parts,
        job.reference,
        job.side_a,
        job.side_b,
        job.shape,
        (a.dtype, b.dtype),
        found,
        (flips, combine),
    )
    say(f"mapping local errors of {len(job.sequences.names)} sequences")
    try:
        mapper.run(job.sequences, max_tokens=job.max_tokens)
    finally:
        flips.close()
        combine.close()
    say("asking the arbiter")
    mapper.judge(
        job.sequences, _unjudged(found, comparison, job.sequences), max_tokens=job.max_tokens
    )
    findings = judge(
        found,
        hidden_size=job.parts.hidden_size,
        top_k=max(a.model.top_k, b.model.top_k),
        includes=_includes(job, found),
    )
    say("writing")
    columns = scratch.write(directory / "table")
    first = first_local_error(job.comparison, mapper, findings, job.sequences)
    return {
        "format": "kldive-attribution",
        "version": 1,
        "model": _model_json(job),
        "columns": [list(column) for column in columns],
        "first": first,
        "modules": [finding.to_json() for finding in findings],
        "arbiter": arbiter_json(
            findings,
            dtype=None if job.reference is None else str(job.reference.dtype)[6:],
            note=_arbiter_note(job.reference),
            rows=found.rows_judged,
        ),
        "combine": combine_json(combine, findings),
        "flips": flips.tally.to_json(comparison),
        "contributions": contributions(comparison, job.parts, first),
        "not_attributable": _not_attributable(job),
    }


def _arbiter_note(reference: Reference | None) -> str:
    if reference is None:
        return "no finer copy of the model fits in memory: nobody says which side is wrong"
    return reference.note


def _unjudged(found: Map, comparison: Comparison, sequences: Sequences) -> frozenset[str]:
    """Requests that hold a module's worst row and that the arbiter has not seen."""
    names = comparison.rows["request"]
    wanted: set[str] = set()
    for layer, module in found.tallies:
        local_T = found.scratch.values(module, "local", layer)
        units_T = found.scratch.values(module, "units_a", layer)
        if not (local_T > 0).any():
            continue
        worst = int(np.nanargmax(local_T))
        if np.isnan(units_T[worst]):
            wanted.add(str(names[worst]))
    return frozenset(wanted & set(sequences.names))


def _includes(job: _Job, found: Map) -> dict[ModulePlace, tuple[str, ...]]:
    """Modules that cannot be told from another, because a site between was not recorded on A."""
    return {
        (layer, name): includes
        for layer, name in found.tallies
        if (
            includes := tuple(
                charged_with(
                    layer, MODULE_BY_NAME[name], job.side_a.has, num_layers=len(job.parts.layers)
                )
            )
        )
    }


def _model_json(job: _Job) -> dict[str, Any]:
    weights = job.trainer.weights_a
    return {
        "weights_a": {"status": weights.status, "text": weights.text},
        "weights_b": {
            "status": job.trainer.weights_b.status,
            "text": job.trainer.weights_b.text,
        },
        "notes": list(job.trainer.notes),
    }


def _not_attributable(job: _Job) -> dict[str, Any]:
    """What could not be judged, with the reason."""
    gaps: dict[str, int] = {}
    for batch in job.sequences.batches(max_tokens=job.max_tokens):
        gaps.update(attention_gaps(job.side_a, batch))
    sites = {
        f"layers.{layer}.{site}": reason
        for (layer, site), reason in unreachable(job.parts).items()
        if job.side_a.has(layer, site)
    }
    missing = sorted(
        site for site in SITE_BY_NAME if site != "shared_out" and not _anywhere(job, site)
    )
    return {
        "requests": job.sequences.skipped,
        "attention": [
            {
                "request": name,
                "from_position": position,
                "reason": "side A served rows from its prefix cache, and attention needs them all",
            }
            for name, position in gaps.items()
        ],
        "sites": sites,
        "not_recorded_on_a": missing,
    }


def _anywhere(job: _Job, site: str) -> bool:
    layers: list[int | None] = [layer.index for layer in job.parts.layers]
    return any(job.side_a.has(layer, site) for layer in (layers or [None]))


def _summary(comparison: Comparison, details: dict[str, Any]) -> dict[str, Any]:
    summary = without_findings(comparison.summary)
    summary.update(outcome_with_modules(summary, details["first"]))
    summary["first"] = {**summary["first"], "local_error": details["first"]}
    flips = {k: v for k, v in details["flips"].items() if k != "listed"}
    kept = (
        "model",
        "columns",
        "modules",
        "arbiter",
        "combine",
        "contributions",
        "not_attributable",
        "seconds",
    )
    summary["attribution"] = {**{k: details[k] for k in kept}, "flips": flips}
    return summary


def _experiments(comparison: Comparison, parts: ModelParts, say: Progress) -> Comparison:
    """Swaps and proof, where they are installed: they add `swaps` and `proof` to the summary.

    The seam: `workbench.attribution.experiments.run_experiments(comparison, parts, progress=say)`
    runs on the attributed comparison and gives it back, opened again.
    """
    name = "workbench.attribution.experiments"
    if find_spec(name) is None:
        return comparison
    found: Comparison = import_module(name).run_experiments(comparison, parts, progress=say)
    return found
