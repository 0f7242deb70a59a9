"""The other direction: the trainer's MoE module inside the live rollout engine.

The engine scores the comparison's own tokens twice, as it is and with the reference modules in its
MoE layers; both are recorded and compared with side B. Owns the experiment; how the module gets
into the engine is the recorder's business.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from torch import nn

from workbench.attribution.experiments import add_results
from workbench.attribution.loading import as_evaluated, open_trainer
from workbench.capture.requests import read_forced
from workbench.comparison.result import Comparison, open_comparison
from workbench.comparison.run import compare
from workbench.errors import UsageError, missing_extra
from workbench.store import Manifest

_SITES: Final = ("final_norm",)

Progress = Callable[[str], None]


def swap_reference_moe(
    comparison: Comparison | str | os.PathLike[str],
    model: str | os.PathLike[str] | nn.Module,
    *,
    engine_model: str | os.PathLike[str] | None = None,
    layers: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """KL(A || B) of the live engine before and after it runs the trainer's MoE module.

    Starts an engine as side A ran, drives the rollout's own tokens through its decode loop, with
    and without the reference modules, and compares each run with side B as captured. Writes
    `engine_swap` into the comparison's summary.

    Args:
        comparison: An open comparison, or its directory.
        model: The trainer's model: loaded, or a directory.
        engine_model: What the engine loads; side A's own model when left out.
        layers: MoE layers to replace; all when left out.
        progress: Told what is being done.

    Raises:
        UsageError: Side A is no rollout of an engine on one device, or a layer cannot be replaced.
        MissingDependencyError: vLLM is not installed.
        RecordingError: The engine cannot be recorded.
    """
    say = progress or _silent
    opened = comparison if isinstance(comparison, Comparison) else open_comparison(comparison)
    opened.check_writable()
    a, b = opened.capture("a"), opened.capture("b")
    _check_engine(a.manifest)
    settings = _settings(a.manifest, logits="logits" in b.manifest.sites)
    from workbench.capture.vllm import engine

    trainer = open_trainer(model, a.manifest, b.manifest)
    try:
        llm = engine.open_engine(engine_model or a.manifest.model.id, settings, progress=say)
    except ModuleNotFoundError as error:
        if error.name != "vllm":
            raise
        raise missing_extra("vLLM", "to put a module into the engine", "vllm") from error
    from workbench.capture.vllm.reference_moe import reference_moe

    requests = read_forced(a.directory)
    try:
        with (
            as_evaluated(trainer.parts.model),
            tempfile.TemporaryDirectory(prefix="kldive-engine-") as scratch,
        ):
            run = _Runs(llm, requests, settings, b.directory, Path(scratch), say)
            before = run.compared("as it is")
            with reference_moe(llm, trainer.parts.layers, layers=layers) as replaced:
                after = run.compared("with the reference module")
    finally:
        engine.close_engine(llm)
    found = {
        "layers": replaced,
        "before": before,
        "after": after,
        "kl_before": before["kl"],
        "kl_after": after["kl"],
        "kl_recorded": _kl(opened.summary)["kl"],
    }
    add_results(opened, {"engine_swap": found})
    return found


class _Runs:
    """Scores the same tokens on a live engine, again and again."""

    def __init__(
        self,
        llm: Any,
        requests: list[Any],
        settings: Any,
        side_b: Path,
        scratch: Path,
        say: Progress,
    ) -> None:
        self._llm, self._requests, self._settings = llm, requests, settings
        self._side_b, self._scratch, self._say = side_b, scratch, say
        self._count = 0

    def compared(self, name: str) -> dict[str, Any]:
        """One run, recorded and compared with side B."""
        from workbench.capture.vllm.engine import record_requests

        self._count += 1
        self._say(f"the engine scores the tokens {name}")
        out = self._scratch / f"run-{self._count}"
        record_requests(self._llm, self._requests, out, settings=self._settings)
        comparison = compare(out, self._side_b, out=self._scratch / f"comparison-{self._count}")
        return {**_kl(comparison.summary), "by_phase": _by_phase(comparison)}


def _kl(summary: Mapping[str, Any]) -> dict[str, Any]:
    exact = summary["kl"]["exact_mean"]
    return {
        "estimator": "k3" if exact is None else "exact",
        "kl": summary["kl"]["k3"] if exact is None else exact,
        "k3": summary["kl"]["k3"],
        "max_abs_dlogp": summary["max_abs_dlogp"],
    }


def _by_phase(comparison: Comparison) -> dict[str, dict[str, float | None]]:
    found: dict[str, dict[str, float | None]] = {}
    for (phase,), rows in comparison.rows.group_by("phase", maintain_order=True):
        kl, gaps = rows["kl_exact"].drop_nulls().drop_nans(), rows["dlogp"].drop_nulls().drop_nans()
        found[str(phase)] = {
            "kl": float(kl.cast(float).mean()) if len(kl) else None,  # type: ignore[arg-type]
            "max_abs_dlogp": float(gaps.abs().max()) if len(gaps) else None,  # type: ignore[arg-type]
        }
    return found


def _check_engine(a: Manifest) -> None:
    if a.engine != "vllm" or int(a.knobs.get("tensor_parallel_size", 1)) > 1:
        raise UsageError(
            "the reference module goes into a vLLM engine on one device",
            expected="side A recorded from such an engine",
            got=f"{a.engine or 'an unknown engine'}, "
            f"{a.knobs.get('tensor_parallel_size', 1)} tensor-parallel ranks",
            do="swap the other way: kldive attribute without --engine",
        )


def _settings(a: Manifest, *, logits: bool) -> Any:
    """Side A's engine again, by the knobs it was recorded with."""
    from workbench.capture.vllm.engine import RolloutSettings

    knobs = a.knobs
    return RolloutSettings(
        dtype=a.dtype or "auto",
        seed=int(knobs.get("seed", 0)),
        max_model_len=_number(knobs.get("max_model_len")),
        max_num_batched_tokens=_number(knobs.get("max_num_batched_tokens")),
        max_num_seqs=_number(knobs.get("max_num_seqs")),
        prompt_logprobs=bool(knobs.get("prompt_logprobs", False)),
        logits=logits,
        sites=_SITES,
    )


def _number(value: Any) -> int | None:
    return value if type(value) is int and value > 0 else None


def _silent(_stage: str) -> None:
    pass
