"""Where each cell of the grid lies: the one place that knows zooms, bands and pooling.

Lines and columns are of the whole virtual canvas; scrolling is the face's business. A model of few
layers does not fill a screen, so its tokens are wrapped like text: bands of all layers, one below
the other, each headed by its tokens. Stdlib only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from workbench.view.state import DENSE_ZOOM, TEXT_ZOOM, Cell

MAX_TEXT_WIDTH = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewport:
    """What a face can show of the grid at once: columns and lines of characters.

    Attributes:
        fit_layers: Whether layers are pooled so that all of them fit, when zoomed out.
        glyphs_only: Whether colour cannot be used, so two cells can never share a character.
    """

    columns: int = 80
    lines: int = 20
    fit_layers: bool = False
    glyphs_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """The layout of the whole grid.

    Attributes:
        num_layers, num_rows: Of the comparison.
        cell_width: Characters per cell.
        step: 2**step rows of the comparison per column.
        layers_per_cell: Layers pooled into one cell.
        half_blocks: Whether a line holds two cells, one above the other.
        band_columns: Columns per band when the tokens are wrapped, else all columns.
        wrapped: Whether the tokens are wrapped into bands.
    """

    num_layers: int
    num_rows: int
    cell_width: int
    step: int
    layers_per_cell: int
    half_blocks: bool
    band_columns: int
    wrapped: bool

    @property
    def num_columns(self) -> int:
        """Columns of the unwrapped grid."""
        return -(-self.num_rows // self.rows_per_column)

    @property
    def rows_per_column(self) -> int:
        """Rows of the comparison that one column covers."""
        return 1 << self.step

    @property
    def layers_per_line(self) -> int:
        """Layers that one line of characters covers."""
        return self.layers_per_cell * (2 if self.half_blocks else 1)

    @property
    def band_lines(self) -> int:
        """Lines of cells in a band."""
        return -(-self.num_layers // self.layers_per_line)

    @property
    def band_height(self) -> int:
        """Lines of a band; when wrapped, with its heading and the gap below it."""
        return self.band_lines + (2 if self.wrapped else 0)

    @property
    def num_bands(self) -> int:
        """Bands of the wrapped grid; 1 otherwise."""
        return max(1, -(-self.num_columns // self.band_columns)) if self.wrapped else 1

    @property
    def height(self) -> int:
        """Lines of the whole canvas."""
        return self.num_bands * self.band_height - (1 if self.wrapped else 0)

    @property
    def width(self) -> int:
        """Characters of the whole canvas."""
        return min(self.band_columns, self.num_columns) * self.cell_width

    def column_of(self, row: int) -> int:
        """Column of the unwrapped grid that holds a row."""
        return row >> self.step

    def locate(self, cell: Cell) -> tuple[int, int]:
        """(line, character) where a cell starts."""
        band, column = divmod(self.column_of(cell.row), self.band_columns)
        head = 1 if self.wrapped else 0
        line = band * self.band_height + head + cell.layer // self.layers_per_line
        return line, column * self.cell_width

    def heading_of(self, row: int) -> int | None:
        """Line of the heading above a row's band, or None when the grid is not wrapped."""
        band = self.column_of(row) // self.band_columns
        return band * self.band_height if self.wrapped else None

    def line_kind(self, line: int) -> tuple[int, int | None]:
        """(band, line within its cells) of a line; the latter -1 for a heading, None for a gap."""
        if not self.wrapped:
            return 0, line if line < self.band_lines else None
        band, inner = divmod(line, self.band_height)
        if band >= self.num_bands or inner == self.band_lines + 1:
            return band, None
        return band, inner - 1

    def layers_of(self, inner: int) -> tuple[int, int]:
        """First layer and the layer after the last of a line of cells."""
        start = inner * self.layers_per_line
        return start, min(start + self.layers_per_line, self.num_layers)

    def rows_of_band(self, band: int) -> tuple[int, int]:
        """First row and the row after the last of a band."""
        start = band * self.band_columns * self.rows_per_column
        stop = start + self.band_columns * self.rows_per_column
        return min(start, self.num_rows), min(stop, self.num_rows)

    def cell_at(self, line: int, character: int) -> Cell | None:
        """The cell at a place on the canvas, or None where there is none."""
        band, inner = self.line_kind(line)
        column = band * self.band_columns + character // self.cell_width
        if inner is None or inner < 0 or not 0 <= character < self.width:
            return None
        row = column << self.step
        return Cell(layer=self.layers_of(inner)[0], row=row) if row < self.num_rows else None


def plan(
    *, num_layers: int, num_rows: int, zoom: int, token_width: int, viewport: Viewport
) -> Geometry:
    """The layout for a zoom in a viewport.

    Args:
        num_layers: Layers of the comparison.
        num_rows: Rows of the comparison.
        zoom: A zoom of workbench.view.state.
        token_width: Characters that most token texts fit into.
        viewport: What can be seen at once.
    """
    cell_width = min(MAX_TEXT_WIDTH, max(1, token_width)) + 1 if zoom == TEXT_ZOOM else 1
    columns = max(1, viewport.columns // cell_width)
    step = max(0, zoom - DENSE_ZOOM)
    half_blocks = zoom >= DENSE_ZOOM and not viewport.glyphs_only
    per_line = 2 if half_blocks else 1
    lines = max(1, viewport.lines)
    pooled = zoom >= DENSE_ZOOM and viewport.fit_layers
    layers_per_cell = max(1, math.ceil(num_layers / (lines * per_line))) if pooled else 1
    band_lines = math.ceil(num_layers / (layers_per_cell * per_line))
    num_columns = math.ceil(num_rows / (1 << step))
    wrapped = num_columns > columns and 2 * (band_lines + 2) <= lines + 1
    return Geometry(
        num_layers=num_layers,
        num_rows=num_rows,
        cell_width=cell_width,
        step=step,
        layers_per_cell=layers_per_cell,
        half_blocks=half_blocks,
        band_columns=columns if wrapped else max(1, num_columns),
        wrapped=wrapped,
    )


def fitting_zoom(*, num_layers: int, num_rows: int, token_width: int, viewport: Viewport) -> int:
    """The closest zoom at which every token is on the screen at once."""
    zoom = TEXT_ZOOM
    while True:
        geometry = plan(
            num_layers=num_layers,
            num_rows=num_rows,
            zoom=zoom,
            token_width=token_width,
            viewport=viewport,
        )
        fits = (
            geometry.height <= viewport.lines
            if geometry.wrapped
            else geometry.width <= viewport.columns
        )
        if fits or geometry.num_columns <= 1:
            return zoom
        zoom += 1


def opening_zoom(*, num_layers: int, num_rows: int, token_width: int, viewport: Viewport) -> int:
    """The zoom to start with: wide cells for few layers, else a line per layer or for two."""
    if 2 * (num_layers + 2) <= viewport.lines + 1:
        return TEXT_ZOOM
    fits_width = num_rows * (min(MAX_TEXT_WIDTH, token_width) + 1) <= viewport.columns
    if num_layers <= viewport.lines:
        return TEXT_ZOOM if fits_width else TEXT_ZOOM + 1
    return DENSE_ZOOM
