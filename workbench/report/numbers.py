"""How numbers, tokens and places are written, the same in every face. Pure functions of values."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping
from typing import Any

MISSING = "–"


def number(value: float | None, digits: int = 3) -> str:
    """A measured number in at most `digits` significant digits; a dash where it was not measured.

    >>> [number(v) for v in (0.0, 0.0123456, 1234.5, 3.2e-7, None, float("nan"))]
    ['0', '0.0123', '1230', '3.2e-07', '–', 'nan']
    """
    if value is None:
        return MISSING
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    if 1e-4 <= abs(value) < 1e6:
        decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
        rounded = round(value, digits - 1 - math.floor(math.log10(abs(value))))
        text = f"{rounded:.{decimals}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{value:.{digits}g}"


def count(value: int) -> str:
    """A count with thousands separated.

    >>> count(32768)
    '32,768'
    """
    return f"{value:,}"


def share(part: int, whole: int) -> str:
    """A part of a whole, both printed, with the percentage.

    >>> share(7, 300)
    '7 of 300 (2.3%)'
    """
    percent = f" ({100 * part / whole:.1f}%)" if whole else ""
    return f"{count(part)} of {count(whole)}{percent}"


def escaped(text: str) -> str:
    r"""Token text with control, format and unprintable characters written out.

    >>> escaped("a\n\u200b")
    'a\\n\\u200b'
    """
    return "".join(
        char
        if char == " " or unicodedata.category(char)[0] not in "CZ"
        else char.encode("unicode_escape").decode()
        for char in text
    )


def place(entry: Mapping[str, Any]) -> str:
    """Where a divergence is: layer and site, then request and position.

    >>> place({"layer": 2, "site": "mlp_out", "request": "c07", "position": 13})
    'L2 mlp_out · c07 p13'
    """
    layer = "" if entry.get("layer") is None else f"L{entry['layer']} "
    return f"{layer}{entry['site']} · {entry['request']} p{entry['position']}"
