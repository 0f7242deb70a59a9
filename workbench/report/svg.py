"""Pictures of a comparison as SVG text: all tokens at once, and the part round the cursor.

They need no script, no style sheet and no font of their own, and stand on their own dark ground, so
that the levels look the same in a notebook, on a page and in an issue, light or dark. Zoomed out, a
cell shows the worst of what lies beneath it. Everything from a model is escaped.

Axes: L layer, T row, P pooled column, Q pooled layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape as to_html
from typing import Final, NamedTuple

import numpy as np

from workbench.view import palette
from workbench.view.classes import CLASS_TITLES
from workbench.view.geometry import MAX_TEXT_WIDTH
from workbench.view.headline import verdict_line
from workbench.view.lenses import LENSES
from workbench.view.model import ViewModel
from workbench.view.palette import EQUAL, LOOKS, NUM_CODES
from workbench.view.rows import heading_cell
from workbench.view.state import Cell
from workbench.view.tiles import column_of, pool_layers, pool_to_width

WIDTH: Final = 960
GUTTER: Final = 52
FONT: Final = "ui-monospace,Menlo,Consolas,DejaVu Sans Mono,monospace"
OVERVIEW_COLUMNS: Final = 300
OVERVIEW_LAYERS: Final = 32
CHARACTER: Final = 7
"""Width of a character of text, in pixels."""


class Window(NamedTuple):
    """A part of the grid: first layer and the one after the last, first row and the one after."""

    first_layer: int
    stop_layer: int
    first_row: int
    stop_row: int


def overview_svg(model: ViewModel) -> str:
    """Every token of the comparison through the current lens, with the first of each class."""
    codes_LT = model.codes()
    per_cell = -(-max(1, codes_LT.shape[0]) // OVERVIEW_LAYERS)
    codes_QP = pool_layers(pool_to_width(codes_LT, OVERVIEW_COLUMNS), per_cell)
    height = max(48, min(160, 8 * len(codes_QP)))
    band = WIDTH - GUTTER - 12
    parts = [
        _text(GUTTER, 18, f"all {model.num_rows:,} tokens · {LENSES[model.state.lens].title}"),
        *_layer_labels(model, 28, height),
        _cells(codes_QP, x=GUTTER, y=28, width=band, height=height),
        *_overview_marks(model, band, 28 + height),
    ]
    return _svg(WIDTH, height + 54, f"{verdict_line(model).text}", parts)


def _layer_labels(model: ViewModel, top: int, height: int) -> Iterator[str]:
    yield _text(GUTTER - 8, top + 10, "L0", anchor="end")
    if model.num_layers > 1:
        yield _text(GUTTER - 8, top + height - 1, f"L{model.num_layers - 1}", anchor="end")


def _overview_marks(model: ViewModel, band: int, y: int) -> Iterator[str]:
    """A triangle for the first of each class, a diamond for the pin, and the cursor below them."""
    if not model.num_rows:
        return
    columns = min(OVERVIEW_COLUMNS, model.num_rows)

    def x_of(row: int) -> float:
        return GUTTER + (column_of(row, model.num_rows, OVERVIEW_COLUMNS) + 0.5) * band / columns

    for klass, row in model.facts.first_rows.items():
        title = f"first {CLASS_TITLES[klass]}: t{row}"
        yield _mark(x_of(row), y + 3, "M-4 8L4 8L0 0z", palette.RAMP[5], title)
    for cell in model.state.marks:
        yield _mark(x_of(cell.row), y + 3, "M-4 4h8M0 0v8", "none", "bookmark", palette.TEXT)
    if model.state.pin is not None:
        row = model.state.pin.row
        yield _mark(x_of(row), y + 2, "M0 0L5 5L0 10L-5 5z", palette.SIDE_A_TEXT, f"pin: t{row}")
    x = x_of(model.state.row)
    yield f'<path d="M{x:.1f} 26V{y + 2}" stroke="{palette.ACCENT}" stroke-width="1"/>'
    anchor = "end" if x > WIDTH - 90 else "start"
    shift = -8 if anchor == "end" else 8
    yield _text(x + shift, y + 20, model.address(), fill=palette.TEXT, anchor=anchor)


def window_svg(model: ViewModel, window: tuple[int, int, int, int] | None = None) -> str:
    """Cells with glyphs and the text of their tokens.

    Args:
        model: The view-model.
        window: [first layer, after the last, first row, after the last]; as many tokens round the
            cursor as fit when not given.
    """
    cell = (min(MAX_TEXT_WIDTH, max(1, model.token_width)) + 1) * CHARACTER
    shown = _window(model, window, cell)
    step = 0
    while (shown.stop_row - shown.first_row) >> step > (WIDTH - GUTTER - 12) // CHARACTER:
        step += 1
    columns = (shown.first_row >> step, -(-shown.stop_row // (1 << step)))
    codes_LP = model.codes(step=step)[shown.first_layer : shown.stop_layer, slice(*columns)]
    num_columns = max(1, codes_LP.shape[1])
    width = min(cell, (WIDTH - GUTTER - 12) // num_columns) if not step else CHARACTER
    width = max(CHARACTER, width)
    line = 18 if len(codes_LP) <= 48 else 8
    parts = [
        *_headings(model, columns, step, width),
        *(
            _text(GUTTER - 8, 40 + (i + 1) * line - 4, f"L{shown.first_layer + i}", anchor="end")
            for i in range(0, len(codes_LP), 1 if line > 10 else 4)
        ),
        _cells(codes_LP, x=GUTTER, y=40, width=width * num_columns, height=line * len(codes_LP)),
        *(_glyphs(codes_LP, width, line) if line > 10 else ()),
        *_window_marks(model, shown, step, width, line),
    ]
    return _svg(WIDTH, 52 + line * len(codes_LP), f"round {model.address()}", parts)


def _window(model: ViewModel, window: tuple[int, int, int, int] | None, cell: int) -> Window:
    if window is not None:
        return Window(*window)
    rows = max(1, (WIDTH - GUTTER - 12) // cell)
    first = max(0, min(model.state.row - rows // 2, model.num_rows - rows))
    return Window(0, model.num_layers, first, min(model.num_rows, first + rows))


def _headings(model: ViewModel, columns: tuple[int, int], step: int, width: int) -> Iterator[str]:
    """Token texts where the cells are wide enough for them, else a row number every so often."""
    if not step and width > CHARACTER:
        for place, row in enumerate(range(*columns)):
            text = heading_cell(model.text(row), width // CHARACTER).rstrip()
            here = palette.ACCENT if row == model.state.row else palette.MUTED
            yield _text(GUTTER + place * width, 32, text, fill=here)
        yield _text(GUTTER, 14, f"from t{columns[0]}, {model.request(columns[0])}")
        return
    for place in range(0, columns[1] - columns[0], 16):
        yield _text(GUTTER + place * width, 32, f"t{(columns[0] + place) << step}")


def _glyphs(codes_LP: np.ndarray, width: int, line: int) -> Iterator[str]:
    """A glyph on every cell, so that colour is not the only signal; equal cells have the dot."""
    for layer, codes_P in enumerate(codes_LP):
        spans = "".join(
            f'<tspan fill="{LOOKS[code].text}">{LOOKS[code].glyph.replace(" ", chr(160)) * length}'
            "</tspan>"
            for _, length, code in _runs(codes_P)
        )
        y = 40 + (layer + 1) * line - 5
        # Centred in the cell: a line of n glyphs spans n - 1 gaps and one glyph.
        x = GUTTER + (width - CHARACTER) / 2
        span = width * (len(codes_P) - 1) + CHARACTER
        yield (f'<text x="{x:g}" y="{y}" textLength="{span}" font-size="11">{spans}</text>')


def _window_marks(
    model: ViewModel, shown: Window, step: int, width: int, line: int
) -> Iterator[str]:
    state = model.state
    places: list[tuple[Cell, str, str]] = [(mark, palette.TEXT, "bookmark") for mark in state.marks]
    places += [(state.pin, palette.SIDE_A_TEXT, "pin")] if state.pin else []
    places.append((state.cell, palette.ACCENT, f"cursor: {model.address()}"))
    for cell, colour, title in places:
        column = (cell.row >> step) - (shown.first_row >> step)
        inside = shown.first_layer <= cell.layer < shown.stop_layer
        if not (inside and shown.first_row <= cell.row < shown.stop_row):
            continue
        x, y = GUTTER + column * width, 40 + (cell.layer - shown.first_layer) * line
        yield (
            f'<rect x="{x}" y="{y}" width="{width}" height="{line}" fill="none" '
            f'stroke="{colour}" stroke-width="2"><title>{to_html(title)}</title></rect>'
        )


def _cells(codes_QP: np.ndarray, *, x: float, y: float, width: float, height: float) -> str:
    """The grid as one path per code: each run of equal codes is a line one cell thick."""
    lines, columns = codes_QP.shape
    if not lines or not columns:
        return ""
    drawn: list[list[str]] = [[] for _ in range(NUM_CODES)]
    for line, codes_P in enumerate(codes_QP):
        for start, length, code in _runs(codes_P):
            drawn[code].append(f"M{start} {line}h{length}")
    paths = "".join(
        f'<path d="{"".join(steps)}" stroke="{LOOKS[code].fill}"/>'
        for code, steps in enumerate(drawn)
        if steps and code != EQUAL
    )
    scale = f"scale({width / columns:.5g},{height / lines:.5g})"
    return (
        f'<g transform="translate({x:g},{y:g}) {scale} translate(0,0.5)" '
        f'shape-rendering="crispEdges" fill="none">{paths}</g>'
    )


def _runs(codes_P: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """(start, length, code) of each run of equal codes."""
    if not len(codes_P):
        return
    starts = np.flatnonzero(np.diff(codes_P, prepend=codes_P[:1] + np.uint8(1)))
    lengths = np.diff(starts, append=len(codes_P))
    yield from zip(starts.tolist(), lengths.tolist(), codes_P[starts].tolist(), strict=True)


def _mark(x: float, y: float, path: str, fill: str, title: str, stroke: str = "none") -> str:
    return (
        f'<path transform="translate({x:.1f},{y})" d="{path}" fill="{fill}" stroke="{stroke}">'
        f"<title>{to_html(title)}</title></path>"
    )


def _text(x: float, y: float, text: str, *, fill: str = palette.MUTED, anchor: str = "") -> str:
    where = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x:g}" y="{y:g}" fill="{fill}"{where}>{to_html(text)}</text>'


def _svg(width: int, height: int, label: str, parts: Iterable[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'style="width:100%;max-width:{width}px;height:auto" font-family="{FONT}" font-size="11.6">'
        f"<title>{to_html(label)}</title>"
        f'<rect width="{width}" height="{height}" rx="4" fill="{palette.BACKGROUND}"/>'
        f"{''.join(parts)}</svg>"
    )
