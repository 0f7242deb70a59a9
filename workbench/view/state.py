"""The one frozen value that says what a face shows; changed by named actions. Stdlib only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from workbench.names import DivergenceClass
from workbench.view.filters import NO_FILTER, Filter

LensId = Literal[
    "router", "gates", "combined", "residual", "logprob", "local", "inherited", "total"
]
Order = Literal["token", "layer"]
"""`token`: all layers of a row, then the next row. `layer`: all rows of a layer, then the next."""
Side = Literal["diff", "a", "b"]
"""`diff`: A against B. `a`, `b`: what that side's own numbers say."""


class Cell(NamedTuple):
    """Layer and row of a cell, 0-based."""

    layer: int
    row: int


class Area(NamedTuple):
    """A rectangle of cells between two corners, both inside it; in any order."""

    corner: Cell
    opposite: Cell

    @property
    def layers(self) -> tuple[int, int]:
        """First layer and the layer after the last."""
        low, high = sorted((self.corner.layer, self.opposite.layer))
        return low, high + 1

    @property
    def rows(self) -> tuple[int, int]:
        """First row and the row after the last."""
        low, high = sorted((self.corner.row, self.opposite.row))
        return low, high + 1


TEXT_ZOOM: Final = 0
"""Wide cells with a glyph each, token text above: one layer per line."""
GLYPH_ZOOM: Final = 1
"""One column per token with a glyph each: one layer per line."""
DENSE_ZOOM: Final = 2
"""One column per token, two layers per line. Each further step halves the columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewState:
    """What is shown and where the cursor is.

    Attributes:
        layer, row: The cursor, 0-based.
        site: Short name of the site that the inspector details.
        pin: Reference cell, or None.
        lens: Which metric colours the grid.
        side: Whether the grid shows A against B, or one side's own numbers.
        b_first: Whether B is drawn before A where both stand side by side.
        klass: What `n` and `f` look for.
        tolerance: Name of the tolerance profile.
        zoom: TEXT_ZOOM, GLYPH_ZOOM, DENSE_ZOOM, then one halving per step.
        order: Scan order of jumps.
        filter: Which cells are shown and jumped to.
        find: Text that `n` steps through the hits of; empty when nothing is searched.
        area: Selected cells, or None.
        selecting: Whether the area's far corner follows the cursor.
        marks: Bookmarked cells.
        past, future: Where jumps came from, latest last, and where going back came from.
        inspector: Whether the inspector is open.
        message: One line about the last action, empty when there is nothing to say.
    """

    layer: int = 0
    row: int = 0
    site: str = "mlp_out"
    pin: Cell | None = None
    lens: LensId = "router"
    side: Side = "diff"
    b_first: bool = False
    klass: DivergenceClass = "bit"
    tolerance: str = ""
    zoom: int = GLYPH_ZOOM
    order: Order = "token"
    filter: Filter = NO_FILTER
    find: str = ""
    area: Area | None = None
    selecting: bool = False
    marks: frozenset[Cell] = frozenset()
    past: tuple[Cell, ...] = ()
    future: tuple[Cell, ...] = ()
    inspector: bool = True
    message: str = ""

    @property
    def cell(self) -> Cell:
        """The cursor."""
        return Cell(layer=self.layer, row=self.row)
