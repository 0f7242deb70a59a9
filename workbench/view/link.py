"""Links that open a view again: `kldive:///runs/7/comparison?at=L12.t4096.topk_ids&lens=router`.

The fields are public and stable: `at`, `lens`, `side`, `tol`, `class`, and `a` and `b` for two
captures that are compared on the fly. Stdlib only.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar, get_args
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from workbench.address import Address, parse_address
from workbench.errors import UsageError, did_you_mean
from workbench.names import DIVERGENCE_CLASSES, DivergenceClass
from workbench.view.state import LensId, Side

SCHEME: Final = "kldive"
FIELDS: Final = ("a", "b", "at", "lens", "side", "tol", "class")
NOWHERE: Final = Address()
Choice = TypeVar("Choice", bound=str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What a link says; None is left as it is.

    Attributes:
        directory: The comparison's directory; empty when `a` and `b` are to be compared.
        a, b: Directories of two captures.
        at: Layer, row and site of the cursor.
        lens, side, tolerance, klass: As in the state.
    """

    directory: str = ""
    a: str | None = None
    b: str | None = None
    at: Address = NOWHERE
    lens: LensId | None = None
    side: Side | None = None
    tolerance: str | None = None
    klass: DivergenceClass | None = None

    def __str__(self) -> str:
        fields = {
            "a": self.a,
            "b": self.b,
            "at": str(self.at).replace(" ", ".") or None,
            "lens": self.lens,
            "side": self.side if self.side != "diff" else None,
            "tol": self.tolerance,
            "class": self.klass,
        }
        known = {name: value for name, value in fields.items() if value}
        query = urlencode(known, quote_via=quote, safe="/*")
        return f"{SCHEME}://{quote(self.directory)}" + (f"?{query}" if query else "")

    @property
    def command(self) -> str:
        """A shell command that opens it."""
        return f"kldive tui {shlex.quote(str(self))}"


def is_link(text: str) -> bool:
    """Whether a text is meant as a link."""
    return text.strip().startswith(f"{SCHEME}:")


def parse_link(text: str) -> Link:
    """Reads a link.

    Raises:
        UsageError: Not a link, an unknown field or value, a field twice, nothing to open.

    >>> parse_link("kldive://runs/7?at=L2.t14&lens=gates").at.row
    14
    """
    parts = urlsplit(text.strip())
    if parts.scheme != SCHEME or parts.fragment:
        raise _not_a_link(text)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    names = [name for name, _ in pairs]
    for name in names:
        if name not in FIELDS:
            raise UsageError(f"unknown field {name!r}", where=text, do=did_you_mean(name, FIELDS))
        if names.count(name) > 1:
            raise UsageError(f"the field {name!r} comes twice", where=text)
    fields = dict(pairs)
    directory = unquote(parts.netloc + parts.path)
    if not directory and not {"a", "b"} <= fields.keys():
        raise _not_a_link(text)
    return Link(
        directory=directory,
        a=fields.get("a"),
        b=fields.get("b"),
        at=parse_address(fields["at"]) if fields.get("at") else NOWHERE,
        lens=_one_of(fields, "lens", get_args(LensId), text),
        side=_one_of(fields, "side", get_args(Side), text),
        tolerance=fields.get("tol") or None,
        klass=_one_of(fields, "class", DIVERGENCE_CLASSES, text),
    )


def same_place(link: Link, other: Link) -> bool:
    """Whether two links lead to the same comparison, or to the same two captures."""
    return _places(link) == _places(other)


def _places(link: Link) -> tuple[Path | None, ...]:
    places = (link.directory,) if link.directory else (link.a, link.b)
    return tuple(Path(place).resolve() if place else None for place in places)


def _one_of(
    fields: dict[str, str], name: str, choices: Iterable[Choice], text: str
) -> Choice | None:
    value = fields.get(name)
    if not value:
        return None
    known = {str(choice): choice for choice in choices}
    if value not in known:
        raise UsageError(f"unknown {name} {value!r}", where=text, do=did_you_mean(value, known))
    return known[value]


def _not_a_link(text: str) -> UsageError:
    return UsageError(
        f"{text!r} is not a kldive link",
        expected=f"{SCHEME}://DIRECTORY?at=L12.t4096.topk_ids&lens=router&tol=bf16&class=flip",
    )
