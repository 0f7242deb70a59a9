"""How places and shares are written in reports. Pure functions of values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.view.numbers import count


def share(part: int, whole: int) -> str:
    """A part of a whole, both printed, with the percentage.

    >>> share(7, 300)
    '7 of 300 (2.3%)'
    """
    percent = f" ({100 * part / whole:.1f}%)" if whole else ""
    return f"{count(part)} of {count(whole)}{percent}"


def place(entry: Mapping[str, Any]) -> str:
    """Where a divergence is: layer and site, then request and position.

    >>> place({"layer": 2, "site": "mlp_out", "request": "c07", "position": 13})
    'L2 mlp_out · c07 p13'
    """
    layer = "" if entry.get("layer") is None else f"L{entry['layer']} "
    return f"{layer}{entry['site']} · {entry['request']} p{entry['position']}"
