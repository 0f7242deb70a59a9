"""Checks a finished recording against what the engine returned to its client, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from workbench.errors import RecordingError
from workbench.store import open_capture
from workbench.store.manifest import MANIFEST_NAME


def check_against_outputs(directory: Path, outputs: Mapping[str, Any], *, prefill: bool) -> None:
    """Compares tokens and raw log-probabilities of every request with the engine's own output.

    Args:
        directory: A complete capture.
        outputs: The engine's final output by request name, asked for with `logprobs=0`.
        prefill: Whether the tokens were scored as a prompt.

    Raises:
        RecordingError: Something differs. The capture is then marked incomplete.
    """
    tokens = open_capture(directory).tokens.sort("position")
    by_name = tokens.partition_by("request", as_dict=True)
    try:
        for name, output in outputs.items():
            rows = by_name.get((name,), tokens.clear())
            _check_request(name, rows, output, prefill=prefill)
    except RecordingError:
        mark_incomplete(directory)
        raise


def mark_incomplete(directory: Path) -> None:
    """Takes back that a capture is complete."""
    manifest = replace(open_capture(directory).manifest, complete=False)
    (directory / MANIFEST_NAME).write_text(manifest.to_json())


def _check_request(name: str, rows: pl.DataFrame, output: Any, *, prefill: bool) -> None:
    prompt_ids = list(output.prompt_token_ids)
    sampled = [] if prefill else list(output.outputs[0].token_ids)
    expected_ids = [*prompt_ids, *sampled]
    if rows["position"].to_list() != list(range(len(expected_ids))):
        raise _differs(name, f"positions 0..{len(expected_ids) - 1}", rows["position"].to_list())
    if rows["token_id"].to_list() != expected_ids:
        raise _differs(name, f"tokens {expected_ids[:12]}", rows["token_id"].to_list()[:12])
    scores: list[float | None] = [None] * len(prompt_ids)
    if output.prompt_logprobs is not None:
        scores = _scores(prompt_ids, output.prompt_logprobs)
    scores += _scores(sampled, [] if prefill else output.outputs[0].logprobs)
    for position, (score, recorded) in enumerate(zip(scores, rows["logprob"], strict=True)):
        same = recorded is not None and np.float32(score or 0.0) == np.float32(recorded)
        if score is not None and not same:
            raise _differs(f"{name}, position {position}", f"log-probability {score}", recorded)


def _scores(token_ids: Sequence[int], logprobs: Sequence[Any]) -> list[float | None]:
    return [
        None if entry is None else float(entry[token].logprob)
        for token, entry in zip(token_ids, logprobs, strict=True)
    ]


def _differs(where: str, expected: str, got: object) -> RecordingError:
    return RecordingError(
        "the recording is not what the engine returned; it is marked incomplete",
        where=f"request {where}",
        expected=f"{expected} (the engine's own output)",
        got=got,
        do="report this: rows of this engine version are not attributed rightly",
    )
