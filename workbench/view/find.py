"""Finding text and token ids among the rows. numpy only.

Text is searched across token borders within a request, without regard to case; `#17` finds the
token with that id. Axis: T row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np

HOW: Final = "text of the tokens, across their borders; #17 is a token id"
_BORDER: Final = "\x00"


class Text:
    """All rows' texts in one string, made once, and where each row starts in it.

    Args:
        texts: Decoded text per row.
        request_starts: First row of each request, ascending.
    """

    def __init__(self, texts: Sequence[str], request_starts: np.ndarray) -> None:
        starting = set(request_starts.tolist())
        pieces = [_BORDER + t if row in starting else t for row, t in enumerate(texts)]
        lengths_T = np.fromiter(map(len, pieces), np.int64, len(pieces))
        # Lowering may change a text's length (some letters fold into two): lower each row alone.
        lowered = [piece.lower() for piece in pieces]
        self._starts_T = np.concatenate([[0], np.cumsum(lengths_T)])[:-1]
        if any(len(low) != len(piece) for low, piece in zip(lowered, pieces, strict=True)):
            lowered = pieces
        self._all = "".join(lowered)
        self._folded = lowered is not pieces

    def rows_with(self, query: str) -> np.ndarray:
        """Rows in which a hit of the query starts, ascending int64, each once."""
        wanted = query.lower() if self._folded else query
        if not wanted:
            return np.zeros(0, np.int64)
        places = [hit.start() for hit in re.finditer(re.escape(wanted), self._all)]
        rows = np.searchsorted(self._starts_T, places, side="right") - 1
        return np.unique(rows.astype(np.int64))


def token_id_of(query: str) -> int | None:
    """The id that a query such as `#17` asks for, or None when it is text."""
    match = re.fullmatch(r"#(\d{1,9})", query.strip())
    return int(match[1]) if match else None
