"""Menus and lines of text in the notebook: what can be chosen, and what a choice does.

The same choices as the terminal's dialogs, as plain values for JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from workbench.address import Address, parse_address
from workbench.comparison.tolerance import PROFILES
from workbench.errors import UsageError, did_you_mean
from workbench.names import DEFAULT_CLASS_ORDER
from workbench.report.export import EXPORTS, export
from workbench.view.classes import CLASS_HELP, CLASS_TITLES
from workbench.view.filters import parse_filter
from workbench.view.frame import chosen_cells
from workbench.view.link import is_link, parse_link
from workbench.view.model import ViewModel
from workbench.view.numbers import count
from workbench.view.rows import quote
from workbench.view.state import Cell

Entry = tuple[str, str, str, str]
"""Value, title, number and a few words; a menu shows the last three."""


def menu(model: ViewModel, action: str) -> dict[str, Any]:
    """Title, entries, and the value that is chosen now.

    Raises:
        UsageError: The action has no menu.
    """
    if action not in _MENUS:
        raise UsageError(f"{action!r} has no menu", do=did_you_mean(action, _MENUS))
    title, entries, chosen = _MENUS[action](model)
    return {"title": title, "entries": entries, "chosen": chosen}


def _classes(model: ViewModel) -> tuple[str, list[Entry], str]:
    counts = model.class_counts()
    entries: list[Entry] = []
    for klass in DEFAULT_CLASS_ORDER:
        number = count(counts[klass]) if counts[klass] else "none"
        if klass == "local_error" and model.attribution is None:
            number = "needs the model"
        entries.append((klass, CLASS_TITLES[klass], number, CLASS_HELP[klass]))
    return "what counts as a divergence", entries, model.state.klass


def _profiles(model: ViewModel) -> tuple[str, list[Entry], str]:
    own = model.facts.tolerance.partition("*")[0]
    names = [name for name in PROFILES if name != "auto"]
    entries = [(name, name, "", "of this comparison" if name == own else "") for name in names]
    return "tolerance", entries, model.state.tolerance.partition("*")[0]


def _places(model: ViewModel) -> tuple[str, list[Entry], str]:
    """Bookmarks, the pin and the first of each class."""
    state = model.state
    places = [("bookmark", cell) for cell in sorted(state.marks, key=lambda c: (c.row, c.layer))]
    places += [("pin", state.pin)] if state.pin else []
    for klass in DEFAULT_CLASS_ORDER:
        first = model.jumps(klass, state.order).first()
        places += [(f"first {CLASS_TITLES[klass]}", first)] if first else []
    entries = [
        (model.address(cell), kind, model.address(cell), quote(model.text(cell.row), 24))
        for kind, cell in places
    ]
    return "go to" if entries else "no bookmark yet", entries, ""


def _exports(model: ViewModel) -> tuple[str, list[Entry], str]:
    cells = count(len(chosen_cells(model)[0]))
    what = "selected" if model.state.area else "shown" if model.state.filter else "all"
    entries = [
        (kind, found.title, cells if found.cells else "", what if found.cells else "")
        for kind, found in EXPORTS.items()
    ]
    return f"export to {Path.cwd()}", entries, ""


_MENUS: Final[dict[str, Callable[[ViewModel], tuple[str, list[Entry], str]]]] = {
    "class.choose": _classes,
    "tolerance.choose": _profiles,
    "mark.list": _places,
    "export.show": _exports,
}


def _choose_class(model: ViewModel, value: str) -> None:
    found = next((klass for klass in DEFAULT_CLASS_ORDER if klass == value), None)
    if found is None:
        raise UsageError(f"unknown class {value!r}", do=did_you_mean(value, DEFAULT_CLASS_ORDER))
    model.choose_class(found)


def _go_to(model: ViewModel, value: str) -> None:
    """To an address, the row of a bare number, or the place of a link."""
    if is_link(value):
        model.open_link(parse_link(value))
        return
    bare = value.strip()
    at = Address(row=int(bare)) if bare.isdecimal() and len(bare) < 12 else parse_address(value)
    layer = model.state.layer if at.layer is None else at.layer
    row = model.state.row if at.row is None else at.row
    model.move_to(Cell(layer, row), at.site)


def _export(model: ViewModel, value: str) -> None:
    if value not in EXPORTS:
        raise UsageError(f"unknown kind of file {value!r}", do=did_you_mean(value, EXPORTS))
    model.say(f"wrote {export(model, value, Path.cwd())}")


CHOICES: Final[dict[str, Callable[[ViewModel, str], object]]] = {
    "class.choose": _choose_class,
    "tolerance.choose": lambda model, value: model.choose_tolerance(value),
    "mark.list": _go_to,
    "export.show": _export,
    "find.show": lambda model, value: model.search(value),
    "goto.show": _go_to,
    "filter.show": lambda model, value: model.choose_filter(parse_filter(value)),
}
"""What the value of a menu or a line does, by action."""
