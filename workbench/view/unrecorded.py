"""Why a lens has nothing to show: its site was not recorded, and what would record it.

Reads the summary alone. Stdlib only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from workbench.names import SIDE_A, SIDE_B

_SIDES: Final = (("a", SIDE_A), ("b", SIDE_B))
_FLAGS: Final = {"logits": "--logits", "logprobs": "--prompt-logprobs"}
"""Options of `kldive capture` that record what is left out otherwise; all other sites always are,
where the model has them."""


def unrecorded(summary: Mapping[str, Any], site: str) -> str:
    """Why there is nothing to compare at a site in any layer, in one line; empty when there is.

    Args:
        summary: Of the comparison.
        site: Short name of the site; empty for none in particular.
    """
    if not site:
        return ""
    kinds = summary["a"]["model"].get("layer_kinds") or ()
    if site.startswith(("topk", "router")) and kinds and set(kinds) == {"dense"}:
        return "no MoE layers: this model has no router to compare"
    # A comparison that does not say what it covers cannot say what it lacks.
    coverage = summary.get("coverage")
    if coverage is None or coverage.get(site, {}).get("compared"):
        return ""
    reasons = [reason for key, _ in _SIDES if (reason := _reason(summary[key], site))]
    absent = f"{site} was not recorded on {_where(coverage.get(site))}"
    if site in _FLAGS:
        return f"{absent}; recorded with kldive capture … {_FLAGS[site]}"
    if reasons:
        return f"{absent}: {reasons[0]}"
    return f"{absent}; kldive capture records it wherever the model has it"


def _where(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "either side"
    if found.get("only_a"):
        return SIDE_B
    return SIDE_A if found.get("only_b") else "the same rows of both sides"


def _reason(side: Mapping[str, Any], site: str) -> str:
    """What the manifest says about a site that a path cannot give."""
    missing = side.get("missing") or {}
    return next((str(text) for name, text in missing.items() if _short(name) == site), "")


def _short(name: str) -> str:
    return name.rpartition(".")[2]
