"""Addresses of cells, as people write them: `L12 t4096 topk_ids`. Stdlib only."""

from __future__ import annotations

import re
from dataclasses import dataclass

from workbench.errors import UsageError, did_you_mean
from workbench.names import LOGPROBS, SITE_BY_NAME

_NAMES = (*SITE_BY_NAME, LOGPROBS)
_PART = re.compile(r"[Ll](?P<layer>\d{1,6})|[Tt](?P<row>\d{1,12})|(?P<site>[a-z_]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """One cell of a comparison: layer, row and site; each may be left open (None).

    Attributes:
        layer: Layer index from 0.
        row: Row index in the comparison's row order, from 0.
        site: Short site name, for example `topk_ids`.
    """

    layer: int | None = None
    row: int | None = None
    site: str | None = None

    def __str__(self) -> str:
        parts = []
        if self.layer is not None:
            parts.append(f"L{self.layer}")
        if self.row is not None:
            parts.append(f"t{self.row}")
        if self.site is not None:
            parts.append(self.site)
        return " ".join(parts)


def parse_address(text: str) -> Address:
    """Reads `L12 t4096 topk_ids` in any order, separated by spaces, dots or commas.

    Raises:
        UsageError: Empty, a part repeated, an unknown site, or no address at all.

    >>> str(parse_address("t4096.L12"))
    'L12 t4096'
    """
    parts = [part for part in re.split(r"[\s.,]+", text.strip()) if part]
    found: dict[str, int | str] = {}
    for part in parts:
        match = _PART.fullmatch(part)
        if match is None or match.lastgroup is None or match.lastgroup in found:
            raise _not_an_address(text)
        key = match.lastgroup
        found[key] = match[key] if key == "site" else int(match[key])
    if not found:
        raise _not_an_address(text)
    site = found.get("site")
    if site is not None and site not in _NAMES:
        raise UsageError(f"unknown site {site!r}", where=text, do=did_you_mean(str(site), _NAMES))
    layer, row = found.get("layer"), found.get("row")
    return Address(
        layer=None if layer is None else int(layer),
        row=None if row is None else int(row),
        site=None if site is None else str(site),
    )


def _not_an_address(text: str) -> UsageError:
    return UsageError(
        f"{text!r} is not an address",
        expected="layer, row and site, such as L12 t4096 topk_ids; any of them may be left out",
    )
