"""What is said of a comparison that is of a newer format, or whose captures are.

Stdlib only, apart from what names sites. Faces show these lines as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from workbench.names import SITE_BY_NAME
from workbench.store import manifest
from workbench.store.manifest import Manifest
from workbench.store.newer import NAMED_SITES, newer_text

FORMAT_VERSION: Final = 1
"""Version of `comparison.json` that is written, and the newest that is read whole."""

FROM_THE_MODEL: Final = frozenset(
    {
        *("attribution", "proof", "swaps", "swap_map", "ladder", "bisection", "engine_swap"),
        *("experiments", "without_model"),
    }
)
"""Findings that a newer comparison is shown without: their details change most."""


def newer_side(found: Manifest) -> dict[str, Any]:
    """For `comparison.json`, what says that a capture was of a newer format; {} when it was not."""
    if found.newer_version is None:
        return {}
    return {
        "newer": {
            "version": found.newer_version,
            "reads": manifest.FORMAT_VERSION,
            "unknown_sites": list(found.unknown_sites[:NAMED_SITES]),
            "num_unknown_sites": len(found.unknown_sites),
        }
    }


def newer_version(summary: Mapping[str, Any]) -> int | None:
    """The version of a comparison whose format is newer than this kldive's, else None."""
    version = summary.get("version")
    return version if isinstance(version, int) and version > FORMAT_VERSION else None


def newer_notes(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A title and a line per newer file: `format`, then `A format`, `B format`; [] mostly."""
    notes = []
    if (version := newer_version(summary)) is not None:
        unknown = [site for site in summary["coverage"] if site not in SITE_BY_NAME]
        text = newer_text(version, reads=FORMAT_VERSION, unknown=unknown, num=len(unknown))
        if summary.get("left_out"):
            text += f"; {summary['left_out']}"
        notes.append(("format", text))
    for side in ("a", "b"):
        if (found := _side(summary, side)) is not None:
            text = newer_text(
                found["version"],
                reads=found["reads"],
                unknown=found["unknown_sites"],
                num=found["num_unknown_sites"],
            )
            notes.append((f"{side.upper()} format", text))
    return notes


def newer_chips(summary: Mapping[str, Any]) -> tuple[str, ...]:
    """The same in a few words each, for a line that always shows."""
    version = newer_version(summary)
    own = () if version is None else (f"format {version}, newer than {FORMAT_VERSION}",)
    sides = (
        f"{side.upper()}: format {found['version']}, newer than {found['reads']}"
        for side in ("a", "b")
        if (found := _side(summary, side)) is not None
    )
    return (*own, *sides)


def with_notes(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The summary for `--json`: `newer_format` holds the lines where there are any."""
    notes = [f"{title}  {text}" for title, text in newer_notes(summary)]
    return {**({"newer_format": notes} if notes else {}), **summary}


def as_far_as_known(summary: Mapping[str, Any]) -> dict[str, Any]:
    """A newer summary without the findings whose shape cannot be checked; `left_out` says so."""
    kept = {key: value for key, value in summary.items() if key not in FROM_THE_MODEL}
    # Ours to say: a newer file may use the key for something else.
    kept.pop("left_out", None)
    kept["first"] = {**kept["first"], "local_error": None}
    if any(key in summary for key in FROM_THE_MODEL):
        kept["left_out"] = "what running the model found is not shown"
    return kept


def _side(summary: Mapping[str, Any], side: str) -> Mapping[str, Any] | None:
    """What is noted of a side's capture, where it is as this kldive writes it."""
    found = summary[side].get("newer")
    kinds = {"version": int, "reads": int, "unknown_sites": list, "num_unknown_sites": int}
    if not isinstance(found, Mapping):
        return None
    fits = all(isinstance(found.get(name), kind) for name, kind in kinds.items())
    return found if fits and all(isinstance(n, str) for n in found["unknown_sites"]) else None
