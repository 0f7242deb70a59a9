"""Token text made safe and measurable for a screen: escaping, widths, the strip round the cursor.

Text comes from a model's vocabulary and may hold anything; what leaves here has no control, format
or combining characters, so it cannot move the cursor, change colours or shift a column. `rich`
only.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len, set_cell_size

_NAMED: Final = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\x1b": "\\e"}
_UNSAFE_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Mn", "Me", "Mc", "Zl", "Zp"})
_RIGHT_TO_LEFT: Final = frozenset({"R", "AL"})
SPACE_MARK: Final = "␣"
ELLIPSIS: Final = "…"
_CLAUSE: Final = re.compile(r" · |, |; ")
_BREAK: Final = re.compile(r" · |, |; | +")
_LEAST_SHARE: Final = 0.6
"""Of a line that is kept when it is cut at a clause; else it is cut at a word."""


def escape(text: str) -> str:
    r"""`text` with everything that is not plain printable left-to-right text written as an escape.

    >>> escape("a\n\u200db")
    'a\\n\\u200db'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_escape_character, text))


def _escape_character(character: str) -> str:
    named = _NAMED.get(character)
    if named:
        return named
    unsafe = (
        unicodedata.category(character) in _UNSAFE_CATEGORIES
        or unicodedata.bidirectional(character) in _RIGHT_TO_LEFT
        or cell_len(character) == 0
    )
    if not unsafe:
        return " " if character.isspace() else character
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def quote(text: str, limit: int = 24) -> str:
    """Escaped text in quotation marks, cut to `limit` columns; `(no text)` when there is none."""
    return f"'{cut(escape(text), limit)}'" if text else "(no text)"


def cut(text: str, width: int) -> str:
    """`text` in at most `width` columns, ending in an ellipsis when something was left out."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + ELLIPSIS if width > 0 else ""


def cut_sentence(text: str, width: int) -> str:
    """`text` in at most `width` columns; what is left out begins at a clause, else at a word.

    A number is never cut: `2.62…` would be read as another number than `2.62e-05`.

    >>> cut_sentence("KL 2.62e-05 (exact) · max 0.0866", 24)
    'KL 2.62e-05 (exact) …'
    >>> cut_sentence("KL 2.62e-05 (exact)", 10)
    'KL …'
    """
    if cell_len(text) <= width:
        return text
    room = width - cell_len(f" {ELLIPSIS}")
    heads = [text[: found.start()] for found in _BREAK.finditer(text)]
    fitting = [head for head in heads if cell_len(head) <= room]
    if not fitting or not fitting[-1]:
        return cut(text, width)
    clauses = [head for head in fitting if _CLAUSE.match(text, len(head))]
    longest = clauses[-1] if clauses else ""
    head = longest if cell_len(longest) > _LEAST_SHARE * room else fitting[-1]
    return f"{head} {ELLIPSIS}"


def fit(text: str, width: int) -> str:
    """`text` in exactly `width` columns, cut or padded on the right."""
    return set_cell_size(cut(text, width), width)


def heading_cell(text: str, width: int) -> str:
    """A token's text as a column heading: exactly `width` columns, spaces made visible."""
    visible = escape(text).replace(" ", SPACE_MARK) if text.isspace() else escape(text).strip(" ")
    if width == 1:
        return set_cell_size(visible, 1) if visible else " "
    return fit(cut(visible, width - 1), width)


@dataclass(frozen=True, slots=True, kw_only=True)
class StripToken:
    """One token of the strip: its row, its escaped text, and the columns it fills."""

    row: int
    text: str
    start: int
    width: int


def strip_tokens(
    text_of: Callable[[int], str], *, row: int, first: int, stop: int, width: int
) -> list[StripToken]:
    """The tokens round a row, as many as fit, the row itself near the middle.

    Args:
        text_of: The raw text of a row.
        row: The cursor's row; always shown.
        first: First row that may be shown (the start of the request).
        stop: The row after the last that may be shown.
        width: Columns to fill.
    """

    def shown(index: int) -> str:
        return escape(text_of(index)) or SPACE_MARK

    before: list[str] = []
    used = 0
    left = row
    half = width // 2
    while left > first and used + cell_len(shown(left - 1)) <= half:
        left -= 1
        before.insert(0, shown(left))
        used += cell_len(before[0])
    tokens: list[StripToken] = []
    start = 0
    for index in range(left, stop):
        text = before[index - left] if index < row else shown(index)
        if index == row:
            text = cut(text, width - start)
        size = cell_len(text)
        if start + size > width:
            break
        tokens.append(StripToken(row=index, text=text, start=start, width=size))
        start += size
    return tokens


def text_width(texts: list[str], share: float = 0.9) -> int:
    """Columns that this share of the texts fit into, at least 1; looks at about 2,000 of them."""
    sample = texts[:: max(1, len(texts) // 2000)]
    widths = sorted(cell_len(escape(text).strip(" ")) for text in sample)
    return max(1, widths[min(len(widths) - 1, int(share * len(widths)))]) if widths else 1
