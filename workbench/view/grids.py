"""Grids of codes, masks and jump indexes of one comparison, built when first asked for and kept.

The one place that caches. Keys hold all that a grid depends on, so a change of lens, side,
tolerance or filter never shows an old grid. Only the latest few of each kind are kept, so memory
does not grow with how long a person looks.

Axes: L layer, T row.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import RLock
from typing import Final, Generic, TypeVar

import numpy as np

from workbench.names import DivergenceClass
from workbench.view.filters import Filter
from workbench.view.jumps import JumpIndex, rows_by_layer
from workbench.view.lenses import is_error_lens, lens_codes
from workbench.view.local import Attribution
from workbench.view.palette import HIDDEN, code_of_level
from workbench.view.sides import side_codes
from workbench.view.source import Source
from workbench.view.state import LensId, Order, Side, ViewState
from workbench.view.tiles import Pyramid

Made = TypeVar("Made")
_KEPT_GRIDS: Final = 12
_KEPT_INDEXES: Final = 16
_KEPT_MASKS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What the unfiltered grid depends on."""

    lens: LensId
    side: Side
    tolerance: str


class Recent(Generic[Made]):
    """The latest few values by key."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._values: OrderedDict[object, Made] = OrderedDict()

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def peek(self, key: object) -> Made | None:
        """The value of a key, None when it is not there."""
        found = self._values.get(key)
        if found is not None:
            # Another thread may have pushed it out since; the value is good all the same.
            with suppress(KeyError):
                self._values.move_to_end(key)
        return found

    def get(self, key: object, make: Callable[[], Made]) -> Made:
        """The value of a key, made when it is not there."""
        if key not in self._values:
            self._values[key] = make()
        self._values.move_to_end(key)
        if len(self._values) > self._kept:
            self._values.popitem(last=False)
        return self._values[key]


class Grids:
    """Everything of shape (L, T) that a face draws or steps through.

    May be asked from any thread.

    Args:
        source: The comparison.
        attribution: What attribution says of it.
    """

    def __init__(self, source: Source, attribution: Attribution | None) -> None:
        # A background thread warms the caches, and a comparison's own cache is not made for two.
        self.lock = RLock()
        self._source = source
        self._attribution = attribution
        self._plain: Recent[Pyramid] = Recent(_KEPT_GRIDS)
        self._filtered: Recent[Pyramid] = Recent(_KEPT_MASKS)
        self._shown: Recent[np.ndarray] = Recent(_KEPT_MASKS)
        self._jumps: Recent[JumpIndex] = Recent(_KEPT_INDEXES)
        self._layer_rows: Recent[list[np.ndarray]] = Recent(_KEPT_MASKS)
        self._worst: Recent[np.ndarray] = Recent(_KEPT_GRIDS)

    def codes(self, state: ViewState, step: int = 0) -> np.ndarray:
        """The grid as the state shows it, 2**step rows per column, uint8 (L, ceil(T / 2**step))."""
        return self._pyramid(state).at(step)

    def unfiltered(self, state: ViewState) -> np.ndarray:
        """The grid with no cell hidden, uint8 (L, T)."""
        return self._unfiltered(_look(state)).at(0)

    def worst_by_layer(self, state: ViewState) -> np.ndarray:
        """The largest code of each layer, uint8 (L,)."""
        key = (_look(state), _filter_key(state))
        return self._made(self._worst, key, lambda: self.codes(state).max(axis=1, initial=0))

    def jumps(self, state: ViewState, klass: DivergenceClass, order: Order) -> JumpIndex:
        """The shown cells of a class in a scan order."""
        key = (klass, order, _judged_by(state, klass), _filter_key(state))
        return self._made(self._jumps, key, lambda: JumpIndex(self._mask(state, klass), order))

    def has_jumps(self, state: ViewState, klass: DivergenceClass) -> bool:
        """Whether a class' index stands ready in the state's order."""
        key = (klass, state.order, _judged_by(state, klass), _filter_key(state))
        return key in self._jumps

    def layer_rows(self, state: ViewState) -> list[np.ndarray]:
        """Ascending rows of the shown cells of the state's class, per layer."""
        key = (state.klass, _judged_by(state, state.klass), _filter_key(state))
        return self._made(
            self._layer_rows, key, lambda: rows_by_layer(self._mask(state, state.klass))
        )

    def shown(self, state: ViewState) -> np.ndarray | None:
        """Which cells the filter lets through, bool (L, T); None when there is no filter."""
        key = _filter_key(state)
        if key is None:
            return None
        return self._made(self._shown, key, lambda: self._passing(state))

    def _made(self, kept: Recent[Made], key: object, make: Callable[[], Made]) -> Made:
        """A value that stands ready, at once; otherwise made under the lock.

        Whoever warms the caches holds the lock while a grid is built, and a key must not wait.
        """
        ready = kept.peek(key)
        if ready is not None:
            return ready
        with self.lock:
            return kept.get(key, make)

    def _pyramid(self, state: ViewState) -> Pyramid:
        shown_LT, plain = self.shown(state), self._unfiltered(_look(state))
        if shown_LT is None:
            return plain
        key = (_look(state), _filter_key(state))
        return self._made(
            self._filtered,
            key,
            lambda: Pyramid(np.where(shown_LT, plain.at(0), np.uint8(HIDDEN))),
        )

    def _unfiltered(self, look: Look) -> Pyramid:
        return self._made(self._plain, look, lambda: Pyramid(self._codes(look)))

    def _codes(self, look: Look) -> np.ndarray:
        if look.side == "diff":
            codes_LT = lens_codes(self._source, look.lens, self._attribution, look.tolerance)
        else:
            codes_LT = side_codes(self._source, look.lens, look.side, self._attribution)
        self._source.forget()
        return codes_LT

    def _mask(self, state: ViewState, klass: DivergenceClass) -> np.ndarray:
        mask_LT = self._source.class_mask(klass, _judged_by(state, klass) or None)
        self._source.forget()
        shown_LT = self.shown(state)
        return mask_LT if shown_LT is None else mask_LT & shown_LT

    def _passing(self, state: ViewState) -> np.ndarray:
        wanted = state.filter
        shown_LT = np.ones((self._source.num_layers, self._source.num_rows), np.bool_)
        if wanted.level is not None:
            shown_LT = self._unfiltered(_look(state)).at(0) >= code_of_level(wanted.level)
        if wanted.expert is not None:
            shown_LT = shown_LT & self._source.selects(wanted.expert)
        for span, axis in ((wanted.layers, 0), (wanted.rows, 1)):
            if span is not None:
                start, last = span
                inside = np.zeros(shown_LT.shape[axis], np.bool_)
                inside[start : None if last is None else last + 1] = True
                shown_LT = shown_LT & (inside[:, None] if axis == 0 else inside[None, :])
        return shown_LT


def _judged_by(state: ViewState, klass: DivergenceClass) -> str:
    """The tolerance that decides about a class; empty for those that are what they are."""
    return state.tolerance if klass in ("rounding", "logprob") else ""


def _look(state: ViewState) -> Look:
    # Errors per module have budgets of their own, and a side alone has none.
    tolerance = "" if is_error_lens(state.lens) or state.side != "diff" else state.tolerance
    return Look(lens=state.lens, side=state.side, tolerance=tolerance)


def _filter_key(state: ViewState) -> tuple[Filter, Look | None] | None:
    if not state.filter:
        return None
    return state.filter, None if state.filter.level is None else _look(state)
