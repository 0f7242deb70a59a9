"""What is left of a comparison one of whose tables cannot be read: cut off, or from another run.

The rows, their log-probabilities and the stored vectors stay; what the lost table held is absent,
and the status says that nothing can be concluded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench.comparison.result import Comparison
from workbench.errors import CaptureError


def salvaged(comparison: Comparison) -> Comparison:
    """The comparison itself, or what can be read of it.

    Opens both tables: a file of another size than its columns need is found here, before anything
    is drawn.
    """
    if not comparison.num_rows:
        return comparison
    try:
        comparison.metrics(0, 0)
    except CaptureError as error:
        return RowsAlone(comparison.directory, _without_layers(comparison.summary, error))
    try:
        comparison.local(0, 0)
    except CaptureError as error:
        return Comparison(comparison.directory, _without_local(comparison.summary, error))
    return comparison


class RowsAlone(Comparison):
    """A comparison without the table of layers."""

    def metrics(self, layer: int, row: int) -> dict[str, float | int | bool | None]:
        """Nothing is known of a cell."""
        self._check_cell(layer, row, "output")
        return {}


def _without_layers(summary: dict[str, Any], error: CaptureError) -> dict[str, Any]:
    first = {
        klass: entry if klass == "logprob" else None for klass, entry in summary["first"].items()
    }
    return {
        **_without_local(summary, error),
        "layers": {**summary["layers"], "columns": []},
        "first": first,
        "jump": None,
    }


def _without_local(summary: dict[str, Any], error: CaptureError) -> dict[str, Any]:
    left = {name: value for name, value in summary.items() if name not in ("attribution", "proof")}
    name = Path(error.where or "a table").name
    why = f"{name} cannot be read (expected {error.expected}, got {error.got})"
    left["first"] = {**summary["first"], "local_error": None}
    return {**left, "status": "not_comparable", "reason": f"{why}; the rest is shown"}
