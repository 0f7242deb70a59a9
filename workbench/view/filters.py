"""Which cells are shown: by layers, tokens, level and expert, read from one line of text.

A filter hides and is cleared with one key; it never changes what was measured. Stdlib only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from workbench.errors import UsageError

GRAMMAR: Final = (
    "L4-12 t100-4000 >=3 e17: layers, tokens, least level 0 to 6, an expert; any of them"
)
MAX_LEVEL: Final = 6

_PART = re.compile(
    r"[Ll](?P<layers>\d{1,6}(?:-\d{0,6})?)"
    r"|[Tt](?P<rows>\d{1,12}(?:-\d{0,12})?)"
    r"|>=(?P<level>\d)"
    r"|[Ee](?P<expert>\d{1,6})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """What a cell has to be in order to be shown; None lets everything through.

    Attributes:
        layers: First and last layer, both shown; the last None means to the end.
        rows: First and last row, likewise.
        level: Least level under the current lens; what is absent has none.
        expert: An expert that either side selected there.
    """

    layers: tuple[int, int | None] | None = None
    rows: tuple[int, int | None] | None = None
    level: int | None = None
    expert: int | None = None

    def __bool__(self) -> bool:
        return self != NO_FILTER

    def __str__(self) -> str:
        parts = []
        if self.layers is not None:
            parts.append(f"L{_range_text(self.layers)}")
        if self.rows is not None:
            parts.append(f"t{_range_text(self.rows)}")
        if self.level is not None:
            parts.append(f">={self.level}")
        if self.expert is not None:
            parts.append(f"e{self.expert}")
        return " ".join(parts)


NO_FILTER: Final = Filter()


def parse_filter(text: str) -> Filter:
    """Reads a filter; an empty text lets everything through.

    Raises:
        UsageError: A part that is none of the grammar's, twice the same part, an empty range.

    >>> str(parse_filter("t100-200  L4-  level>=3"))
    'L4- t100-200 >=3'
    """
    found = NO_FILTER
    seen: set[str] = set()
    for part in re.sub(r"(?:level)?\s*(?:>=|≥)\s*", " >=", text).split():
        match = _PART.fullmatch(part)
        kind = match.lastgroup if match else None
        if match is None or kind is None:
            raise UsageError(f"{part!r} is no filter", expected=GRAMMAR)
        if kind in seen:
            raise UsageError(f"{part!r} comes a second time", expected=GRAMMAR)
        seen.add(kind)
        found = _with_part(found, kind, match[kind])
    return found


def _with_part(found: Filter, kind: str, value: str) -> Filter:
    if kind == "layers":
        return replace(found, layers=_range(value))
    if kind == "rows":
        return replace(found, rows=_range(value))
    if kind == "expert":
        return replace(found, expert=int(value))
    if int(value) > MAX_LEVEL:
        raise UsageError("no such level", expected=f"0 to {MAX_LEVEL}", got=value)
    return replace(found, level=int(value))


def _range(text: str) -> tuple[int, int | None]:
    first, dash, last = text.partition("-")
    start = int(first)
    stop = int(last) if last else (None if dash else start)
    if stop is not None and stop < start:
        raise UsageError(f"{text} is an empty range", expected=f"{stop}-{start}")
    return start, stop


def _range_text(span: tuple[int, int | None]) -> str:
    start, stop = span
    if stop is None:
        return f"{start}-"
    return str(start) if stop == start else f"{start}-{stop}"
