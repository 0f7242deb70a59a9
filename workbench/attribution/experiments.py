"""Experiments on a comparison whose local errors are known: swaps, map, ladder, proof.

Owns how many rows each of them takes and where the results go: `swaps`, `swap_map`, `ladder` and
`proof` in `comparison.json`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from torch import nn

from workbench.attribution.bench import Bench
from workbench.attribution.bisect import LOG_NAME, Bisection, bisect_modules
from workbench.attribution.ladder import ladder
from workbench.attribution.loading import as_evaluated, open_trainer
from workbench.attribution.local import ModulePlace
from workbench.attribution.proof import prove
from workbench.attribution.publish import replace_json
from workbench.attribution.swaps import run_swaps, swap_map
from workbench.capture.structure import ModelParts
from workbench.comparison.result import SUMMARY_NAME, Comparison, open_comparison

SWAP_ROWS: Final = 768
"""Rows that swaps, ladder and proof are measured on; whole requests, spread over all of them."""
MAP_ROWS: Final = 256
"""Rows of the layer x component map, which takes two passes per module."""
BISECT_ROWS: Final = 8192

Progress = Callable[[str], None]


def run_experiments(
    comparison: Comparison, parts: ModelParts, *, progress: Progress | None = None
) -> Comparison:
    """Runs every experiment and adds the results to the comparison's summary.

    Raises:
        UsageError: The sides cannot be swapped, or no sequence is whole on side A.
        CaptureError: The directory cannot be written.
    """
    say = progress or _silent
    first = comparison.summary["first"].get("local_error") or {}
    bench = Bench(comparison, parts, max_rows=SWAP_ROWS, include=first.get("request"))
    say(f"swapping parts on {bench.num_rows} rows")
    swaps = run_swaps(bench)
    say("climbing the routing ladder")
    combine = comparison.summary.get("attribution", {}).get("combine")
    rungs = ladder(bench, combine)
    say("proving the cause")
    proof = prove(bench, suspects(comparison.summary), kl_gate=_gate(comparison))
    small = Bench(comparison, parts, max_rows=MAP_ROWS, include=first.get("request"))
    say(f"swapping {len(small.modules)} modules one by one on {small.num_rows} rows")
    found = {
        "swaps": swaps,
        "swap_map": swap_map(small),
        "ladder": rungs,
        "proof": proof,
        "experiments": {
            "rows": bench.num_rows,
            "sequences": bench.num_sequences,
            "left_out": bench.left_out,
            "forward_passes": bench.num_passes + small.num_passes,
        },
    }
    return add_results(comparison, found)


def bisect(
    comparison: Comparison,
    model: str | nn.Module,
    *,
    threshold: float | None = None,
    rows: int = BISECT_ROWS,
    fresh: bool = False,
    progress: Progress | None = None,
) -> Bisection:
    """The smallest set of modules whose swap brings KL(A || B) under a threshold.

    Writes every step to `bisect-modules.jsonl` in the comparison's directory, and the result into
    its summary.

    Args:
        comparison: An open comparison.
        model: The trainer's model: loaded, or a directory.
        threshold: Nats per token; the comparison's own gate when left out.
        rows: Rows to measure on, about; whole requests.
        fresh: Leave out what an earlier search found.
        progress: Told every step.

    Raises:
        UsageError: The model cannot be loaded, or nothing can be swapped.
        CaptureError: The log cannot be read or written.
    """
    say = progress or _silent
    comparison.check_writable()
    say("loading the model")
    a, b = comparison.capture("a").manifest, comparison.capture("b").manifest
    trainer = open_trainer(model, a, b)
    with as_evaluated(trainer.parts.model):
        bench = Bench(comparison, trainer.parts, max_rows=rows)
        say(f"searching on {bench.num_rows} rows")
        found = bisect_modules(
            bench,
            threshold=_gate(comparison) if threshold is None else threshold,
            log=comparison.directory / LOG_NAME,
            fresh=fresh,
            say=say,
        )
    add_results(comparison, {"bisection": found.to_json()})
    return found


def suspects(summary: Mapping[str, Any]) -> list[ModulePlace]:
    """Modules beyond their budget: the first local error, then the others in execution order."""
    found: list[ModulePlace] = []
    first = summary["first"].get("local_error")
    if first is not None:
        found.append((first["layer"], first["module"]))
    modules = summary.get("attribution", {}).get("modules", [])
    found += [(m["layer"], m["module"]) for m in modules if m["over"] > 0]
    return list(dict.fromkeys(found))


def _gate(comparison: Comparison) -> float:
    return float(comparison.summary["tolerance"]["kl_gate"])


def _silent(_stage: str) -> None:
    pass


def add_results(comparison: Comparison, found: Mapping[str, Any]) -> Comparison:
    """The comparison with some results added to its summary, opened again."""
    comparison.check_writable()
    body = {**comparison.summary, **{key: _plain(value) for key, value in found.items()}}
    replace_json(comparison.directory / SUMMARY_NAME, body)
    return open_comparison(comparison.directory)


def _plain(value: Any) -> Any:
    """JSON has no NaN and no Inf: they become null."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
