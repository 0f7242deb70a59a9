"""Writing what was attributed into a comparison directory, each file whole or not at all.

`comparison.json` is replaced last and names what the other files hold, so a comparison that is read
at any moment is sound: with the old findings, with none, or with the new ones.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from workbench.comparison.result import ATTRIBUTION_NAME, LOCAL_NAME, SUMMARY_NAME
from workbench.errors import CaptureError

ATTRIBUTED: Final = frozenset(
    {"attribution", "swaps", "swap_map", "ladder", "proof", "bisection", "without_model"}
)
"""Keys of the summary that come from running the model."""


def withdraw(directory: Path, summary: dict[str, Any]) -> None:
    """Takes earlier findings out of a comparison before its files are replaced.

    Raises:
        CaptureError: The directory cannot be written.
    """
    if "attribution" not in summary:
        return
    replace_json(directory / SUMMARY_NAME, without_findings(summary))


def without_findings(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The summary as `compare` wrote it: what came from running the model is taken out."""
    kept = {key: value for key, value in summary.items() if key not in ATTRIBUTED}
    kept.update(summary.get("without_model", {}))
    kept["first"] = {**kept["first"], "local_error": None}
    return kept


def publish(
    directory: Path, *, table: Path, details: Mapping[str, Any], summary: Mapping[str, Any]
) -> None:
    """Moves the table into place, then writes the details, then the summary.

    Raises:
        CaptureError: The directory cannot be written.
    """
    try:
        table.replace(directory / LOCAL_NAME)
    except OSError as error:
        raise _cannot_write(directory, error) from error
    replace_json(directory / ATTRIBUTION_NAME, details)
    replace_json(directory / SUMMARY_NAME, summary)


def replace_json(path: Path, body: Mapping[str, Any]) -> None:
    """Writes JSON to a temporary name, flushes it, and renames it.

    Raises:
        CaptureError: The disk refuses.
        ValueError: A number is NaN or Inf.
    """
    text = json.dumps(body, indent=1, allow_nan=False, ensure_ascii=False)
    fresh = path.with_name(f".{path.name}.new")
    try:
        with fresh.open("w", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise _cannot_write(path, error) from error


def _cannot_write(path: Path, error: OSError) -> CaptureError:
    return CaptureError(
        "cannot write what was attributed",
        where=path,
        got=error.strerror or str(error),
        do="free some space, or make the directory writable",
    )
