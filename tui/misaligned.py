"""Two captures that hold other tokens: both texts side by side, the first mismatch marked."""

from __future__ import annotations

from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from workbench.errors import AlignmentError, Mismatch, Token
from workbench.view import palette
from workbench.view.rows import SPACE_MARK, escape

_TITLE: Final = Style(color=palette.RAMP[6], bold=True)
_MUTED: Final = Style(color=palette.MUTED)
_HERE: Final = Style(color="#000000", bgcolor=palette.RAMP[6], bold=True)
_OTHER: Final = Style(color=palette.RAMP[5])
_SIDE: Final = {
    "A": Style(color=palette.SIDE_A_TEXT, bold=True),
    "B": Style(color=palette.SIDE_B_TEXT, bold=True),
}
_BEFORE, _AFTER = 6, 24
_TEXT_TOKENS: Final = 80
"""Tokens of flowing text on each side of the mismatch."""


def misalignment(error: AlignmentError, found: Mismatch) -> RenderableType:
    """Where the tokens part, both texts round it, and the tokens one by one."""
    return Group(
        Text(),
        Text(error.what, _TITLE),
        _where(found),
        Text(),
        _texts(found),
        Text(),
        _tokens(found),
        Text(),
        Text(_prefix(found), _MUTED),
        Text.assemble(("do  ", _MUTED), (error.do or "", "bold")),
    )


def _where(found: Mismatch) -> Text:
    return Text(f"request {escape(found.request)!r}, first at position {found.position}", _MUTED)


def _prefix(found: Mismatch) -> str:
    if not found.num_same:
        return "Not one token of this request would compare: the texts differ from its start."
    tokens = "token" if found.num_same == 1 else "tokens"
    return (
        f"Only the first {found.num_same:,} {tokens} of this request would compare; from position "
        f"{found.position} on, each side continues a text of its own."
    )


def _texts(found: Mismatch) -> Table:
    table = Table(box=box.SIMPLE_HEAD, expand=True, pad_edge=False, show_edge=False)
    for side, path in (("A", "rollout"), ("B", "trainer")):
        table.add_column(Text(f"{side} {path}", _SIDE[side]), ratio=1, overflow="fold")
    table.add_row(_flow(found.a, found.b, found.position), _flow(found.b, found.a, found.position))
    return table


def _flow(tokens: tuple[Token, ...], others: tuple[Token, ...], position: int) -> Text:
    ids = {token.position: token.token_id for token in others}
    text = Text()
    for token in tokens:
        if abs(token.position - position) <= _TEXT_TOKENS:
            text.append(_shown(token), _style(token, ids.get(token.position), position))
    return text


def _style(token: Token, other: int | None, position: int) -> Style:
    if token.position == position:
        return _HERE
    return _OTHER if token.token_id != other else Style.null()


def _shown(token: Token) -> str:
    return escape(token.text) or f"[{token.token_id}]"


def _tokens(found: Mismatch) -> Table:
    """Position, then token id and text of both sides, round the mismatch."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("")
    table.add_column("position", justify="right")
    for side in ("A", "B"):
        table.add_column(Text(f"{side} id", _SIDE[side]), justify="right")
        table.add_column("text", min_width=12)
    shown = range(found.position - _BEFORE, found.position + _AFTER)
    sides = [
        {t.position: t for t in tokens if t.position in shown} for tokens in (found.a, found.b)
    ]
    for position in sorted(set(sides[0]) | set(sides[1])):
        pair = [side.get(position) for side in sides]
        here, same = position == found.position, len({t and t.token_id for t in pair}) == 1
        style = _HERE if here else _MUTED if same else _OTHER
        cells = [cell for token in pair for cell in _cells(token)]
        mark = "▶" if here else " "
        table.add_row(mark, str(position), *(Text(cell, style) for cell in cells))
    return table


def _cells(token: Token | None) -> tuple[str, str]:
    if token is None:
        return "–", "no token"
    shown = _shown(token)
    return str(token.token_id), shown.replace(" ", SPACE_MARK) if shown.isspace() else shown
