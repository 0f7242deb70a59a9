"""From a line of codes to segments: run by run, with styles made beforehand, no object per cell.

Axes: P pooled column.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from rich.segment import Segment

from tui.styles import CODE, CURSOR, CURSOR_OVER, HALVES
from workbench.view.palette import GLYPHS, NUM_CODES

UPPER, LOWER = "▀", "▄"


def glyph_line(codes_P: np.ndarray, cell_width: int) -> list[Segment]:
    """One layer per line: each cell its code's glyph on its level's colour."""
    texts = [_cell_text(glyph, cell_width) for glyph in GLYPHS]
    return [Segment(texts[code] * length, CODE[code]) for code, length in runs(codes_P)]


def half_line(top_P: np.ndarray, bottom_P: np.ndarray) -> list[Segment]:
    """Two layers per line: the upper one in the upper half of each character."""
    line = []
    for code, length in runs(top_P * np.uint8(NUM_CODES) + bottom_P):
        top, bottom = divmod(code, NUM_CODES)
        line.append(Segment((" " if top == bottom else UPPER) * length, HALVES[top][bottom]))
    return line


def runs(codes_P: np.ndarray) -> Iterator[tuple[int, int]]:
    """(value, length) of each run of equal values."""
    if not len(codes_P):
        return
    edges = np.flatnonzero(codes_P[1:] != codes_P[:-1]) + 1
    starts = [0, *edges.tolist()]
    stops = [*edges.tolist(), len(codes_P)]
    values = codes_P[starts].tolist()
    for value, start, stop in zip(values, starts, stops, strict=True):
        yield value, stop - start


def marked_cell(glyph: str, code: int, cell_width: int) -> Segment:
    """A cell that carries a mark instead of its code's glyph."""
    return Segment(_cell_text(glyph, cell_width), CODE[code])


def cursor_cell(code: int, cell_width: int) -> Segment:
    """The cursor's cell where a line holds one layer."""
    return Segment(_cell_text(GLYPHS[code], cell_width), CURSOR)


def cursor_half(other_code: int, *, upper: bool) -> Segment:
    """The cursor's half of a character beside the other half's level."""
    return Segment(UPPER if upper else LOWER, CURSOR_OVER[other_code])


def _cell_text(glyph: str, cell_width: int) -> str:
    left = (cell_width - 1) // 2
    return " " * left + glyph + " " * (cell_width - 1 - left)
