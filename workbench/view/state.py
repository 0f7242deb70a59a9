"""The one frozen value that says what a face shows; changed by named actions. Stdlib only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from workbench.names import DivergenceClass

LensId = Literal[
    "router", "gates", "combined", "residual", "logprob", "local", "inherited", "total"
]
Order = Literal["token", "layer"]
"""`token`: all layers of a row, then the next row. `layer`: all rows of a layer, then the next."""


class Cell(NamedTuple):
    """Layer and row of a cell, 0-based."""

    layer: int
    row: int


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
        klass: What `n` and `f` look for.
        tolerance: Name of the tolerance profile.
        zoom: TEXT_ZOOM, GLYPH_ZOOM, DENSE_ZOOM, then one halving per step.
        order: Scan order of jumps.
        marks: Bookmarked cells.
        inspector: Whether the inspector is open.
        message: One line about the last action, empty when there is nothing to say.
    """

    layer: int = 0
    row: int = 0
    site: str = "mlp_out"
    pin: Cell | None = None
    lens: LensId = "router"
    klass: DivergenceClass = "bit"
    tolerance: str = ""
    zoom: int = GLYPH_ZOOM
    order: Order = "token"
    marks: frozenset[Cell] = frozenset()
    inspector: bool = True
    message: str = ""

    @property
    def cell(self) -> Cell:
        """The cursor."""
        return Cell(layer=self.layer, row=self.row)
