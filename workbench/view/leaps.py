"""Actions that leap: to divergences, hits of a search, addresses, and back to where one was.

As in workbench.view.transitions: pure functions from state to state. Every leap remembers the cell
it left, so that `[` leads back.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from workbench.names import DEFAULT_CLASS_ORDER, DivergenceClass
from workbench.view.classes import CLASS_TITLES
from workbench.view.state import Cell, ViewState
from workbench.view.transitions import go, say

if TYPE_CHECKING:
    from workbench.view.model import ViewModel

REMEMBERED: Final = 200
"""Leaps that can be taken back."""


def leap(state: ViewState, cell: Cell, model: ViewModel) -> ViewState:
    """Goes to a cell and remembers the one that was left."""
    after = go(state, cell, model)
    if after.cell == state.cell:
        return after
    return replace(after, past=(*state.past, state.cell)[-REMEMBERED:], future=())


def back(state: ViewState, model: ViewModel) -> ViewState:
    """To where the last leap started."""
    if not state.past:
        return say(state, "no earlier place: n, f, find and go-to leave one behind")
    after = go(state, state.past[-1], model)
    return replace(after, past=state.past[:-1], future=(*state.future, state.cell))


def forward(state: ViewState, model: ViewModel) -> ViewState:
    """Undoes going back."""
    if not state.future:
        return say(state, "no later place")
    after = go(state, state.future[-1], model)
    return replace(after, past=(*state.past, state.cell), future=state.future[:-1])


def jump_next(state: ViewState, model: ViewModel) -> ViewState:
    """To the next hit of a search, else to the next cell of the class in scan order."""
    if state.find:
        return _to_hit(state, model, forward=True)
    return _jump(state, model, model.jumps(state.klass, state.order).next(state.cell), "after")


def jump_previous(state: ViewState, model: ViewModel) -> ViewState:
    """To the previous hit of a search, else to the previous cell of the class in scan order."""
    if state.find:
        return _to_hit(state, model, forward=False)
    return _jump(state, model, model.jumps(state.klass, state.order).previous(state.cell), "before")


def _jump(state: ViewState, model: ViewModel, target: Cell | None, where: str) -> ViewState:
    if target is None:
        title = CLASS_TITLES[state.klass]
        total = len(model.jumps(state.klass, state.order))
        if not total:
            return say(state, f"{none_of(state, state.klass, model)}; c chooses another class")
        return say(state, f"no {title} {where} this cell; f goes to the first of {total:,}")
    return leap(state, target, model)


def jump_first(state: ViewState, model: ViewModel) -> ViewState:
    """To the first cell of the class; from there to the first of the next class that has one."""
    first = model.jumps(state.klass, state.order).first()
    if first is not None and first != state.cell:
        return leap(state, first, model)
    start = DEFAULT_CLASS_ORDER.index(state.klass)
    for offset in range(1, len(DEFAULT_CLASS_ORDER)):
        klass = DEFAULT_CLASS_ORDER[(start + offset) % len(DEFAULT_CLASS_ORDER)]
        if len(model.jumps(klass, state.order)):
            return choose_class(state, model, klass)
    if model.facts.alone:
        return say(state, none_of(state, state.klass, model))
    return say(state, "no other class has an entry")


def choose_class(state: ViewState, model: ViewModel, klass: DivergenceClass) -> ViewState:
    """Looks for `klass` from now on, through the fitting lens, and goes to its first cell."""
    first = model.jumps(klass, state.order).first()
    if first is None:
        return say(state, none_of(state, klass, model))
    lens, site = model.lens_and_site_of(klass, first)
    state = replace(state, klass=klass, lens=lens, site=site, side="diff", find="")
    return leap(state, first, model)


def none_of(state: ViewState, klass: DivergenceClass, model: ViewModel) -> str:
    """That a class has no entry, and what it takes to have one."""
    title = CLASS_TITLES[klass]
    if model.facts.alone:
        return f"only {model.facts.alone} was opened: one side alone diverges from nothing"
    if klass == "local_error" and model.attribution is None:
        return f"no {title} known: {model.needs_model}"
    if state.filter:
        return f"no {title} among the shown cells; backspace clears the filter"
    return f"no {title} in this comparison"


def search(state: ViewState, model: ViewModel, query: str) -> ViewState:
    """Searches for a text or `#id`: to the first hit at or after the cursor, else the first."""
    hits = model.hits(query)
    if not query.strip() or not len(hits):
        return say(replace(state, find=""), f"no token reads {query!r}" if query.strip() else "")
    state = replace(state, find=query)
    ahead = hits[hits >= state.row]
    row = int(ahead[0] if len(ahead) else hits[0])
    return leap(state, Cell(state.layer, row), model)


def _to_hit(state: ViewState, model: ViewModel, *, forward: bool) -> ViewState:
    hits = model.hits(state.find)
    further = hits[hits > state.row] if forward else hits[hits < state.row][::-1]
    if not len(further):
        where = "after" if forward else "before"
        return say(state, f"no {state.find!r} {where} this token; escape ends the search")
    return leap(state, Cell(state.layer, int(further[0])), model)
