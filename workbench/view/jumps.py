"""Next, previous and first divergence of a class, by binary search over an index built once.

A cell's key is its place in the scan: `token` order reads all layers of a row before the next row,
as decoding computes them; `layer` order reads all rows of a layer before the next layer, as prefill
does. numpy only.

Axes: L layer, T row, N entry.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

from workbench.view.state import Cell, Order

_SPARSE: Final = 32
"""With fewer than one cell in so many, sorting them is faster than turning the mask round."""


class JumpIndex:
    """Every cell of a class in scan order.

    Args:
        mask_LT: bool, which cells belong to the class.
        order: The scan order.
    """

    def __init__(self, mask_LT: np.ndarray, order: Order = "token") -> None:
        self.order = order
        self._num_layers: int = mask_LT.shape[0]
        self._num_rows: int = mask_LT.shape[1]
        self._keys_N = _keys(mask_LT, order)

    def __len__(self) -> int:
        return len(self._keys_N)

    def first(self) -> Cell | None:
        """The first cell of the scan, or None when the class is empty."""
        return self._cell(0) if len(self) else None

    def next(self, here: Cell) -> Cell | None:
        """The first cell after `here`, or None at the end."""
        place = self._search(here, side="right")
        return self._cell(place) if place < len(self) else None

    def previous(self, here: Cell) -> Cell | None:
        """The last cell before `here`, or None at the start."""
        place = self._search(here, side="left") - 1
        return self._cell(place) if place >= 0 else None

    def place(self, here: Cell) -> tuple[int, bool]:
        """How many cells come before `here`, and whether `here` is one of the class."""
        before = self._search(here, side="left")
        return before, before < len(self) and int(self._keys_N[before]) == self._key(here)

    def _search(self, here: Cell, *, side: Literal["left", "right"]) -> int:
        # A key of another type would make searchsorted convert the whole index at every key press.
        key = self._keys_N.dtype.type(self._key(here))
        return int(np.searchsorted(self._keys_N, key, side=side))

    def _key(self, cell: Cell) -> int:
        if self.order == "token":
            return cell.row * self._num_layers + cell.layer
        return cell.layer * self._num_rows + cell.row

    def _cell(self, place: int) -> Cell:
        key = int(self._keys_N[place])
        if self.order == "token":
            return Cell(layer=key % self._num_layers, row=key // self._num_layers)
        return Cell(layer=key // self._num_rows, row=key % self._num_rows)


def _keys(mask_LT: np.ndarray, order: Order) -> np.ndarray:
    """Places in the scan of the cells of a class, ascending."""
    kind = np.uint32 if mask_LT.size < 2**32 else np.uint64
    if order == "layer":
        return np.flatnonzero(mask_LT).astype(kind)
    if np.count_nonzero(mask_LT) * _SPARSE < mask_LT.size:
        layers_N, rows_N = np.nonzero(mask_LT)
        return np.sort((rows_N * len(mask_LT) + layers_N).astype(kind))
    return np.flatnonzero(np.ascontiguousarray(mask_LT.T)).astype(kind)


def rows_by_layer(mask_LT: np.ndarray) -> list[np.ndarray]:
    """Ascending rows of the class for each layer, so that a window is counted by two searches."""
    return [np.flatnonzero(mask_T).astype(np.int32) for mask_T in mask_LT]


def count_between(rows_N: np.ndarray, start: int, stop: int) -> int:
    """How many of the ascending `rows_N` lie in start <= row < stop."""
    # Bounds of another type would make searchsorted convert all rows at every line drawn.
    low, high = np.searchsorted(rows_N, np.array((start, stop), rows_N.dtype))
    return int(high - low)
