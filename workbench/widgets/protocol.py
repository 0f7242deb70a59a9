"""Requests of the front end and their answers: pure values in, plain values and bytes out.

A request is `{id, op, ...}`; the answer has the same id and op. An error is an answer too, with the
message in `error`, to be drawn where the result would have been. Grids travel as uint8 buffers in C
order; everything else is JSON without NaN.

Axes: L layer, P pooled column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from workbench.address import parse_address
from workbench.comparison.tolerance import PROFILES
from workbench.errors import KldiveError, UsageError, did_you_mean
from workbench.names import DEFAULT_CLASS_ORDER
from workbench.view.cell_text import cell_text
from workbench.view.classes import CLASS_HELP, CLASS_TITLES
from workbench.view.filters import parse_filter
from workbench.view.lenses import LENSES
from workbench.view.model import ViewModel
from workbench.view.numbers import count
from workbench.view.state import Cell
from workbench.widgets import content

TILE_LAYERS: Final = 96
TILE_COLUMNS: Final = 512
MAX_HEADINGS: Final = 1024
Request = Mapping[str, Any]


class Answer(NamedTuple):
    """What is sent back: JSON, and buffers beside it."""

    content: dict[str, Any]
    buffers: tuple[bytes, ...] = ()


def answer(model: ViewModel, request: Request) -> Answer:
    """The answer to a request that only reads."""
    return answered(request, lambda: _READS[_op(request, _READS)](model, request))


def answered(request: Request, work: Callable[[], Answer]) -> Answer:
    """The answer of `work`, with the request's id; its error where it fails."""
    name = {"id": request.get("id"), "op": request.get("op")}
    try:
        found = work()
    except KldiveError as error:
        return Answer({**name, "error": str(error)})
    except (ArithmeticError, LookupError, OSError, TypeError, ValueError) as error:
        return Answer({**name, "error": f"{type(error).__name__}: {error}"})
    return Answer({**name, **found.content}, found.buffers)


def _tile(model: ViewModel, request: Request) -> Answer:
    """Codes of some layers and pooled columns; `level` halves the columns so many times."""
    lens = request.get("lens")
    if lens not in LENSES:
        raise UsageError(f"unknown lens {lens!r}", do=did_you_mean(str(lens), LENSES))
    level = whole(request, "level", 0, 30)
    codes_LP = model.codes(lens, level)
    l0, l1 = _span(request, "l", codes_LP.shape[0], TILE_LAYERS)
    t0, t1 = _span(request, "t", codes_LP.shape[1], TILE_COLUMNS)
    tile_LP = codes_LP[l0:l1, t0:t1]
    shape = {"shape": list(tile_LP.shape), "dtype": "uint8"}
    place = {"lens": lens, "level": level, "l0": l0, "t0": t0}
    return Answer({**shape, **place, "grid": content.grid_name(model)}, (tile_LP.tobytes(),))


def _span(request: Request, axis: str, total: int, most: int) -> tuple[int, int]:
    start = whole(request, f"{axis}0", 0, total)
    stop = whole(request, f"{axis}1", start, 2**31)
    if stop - start > most:
        raise UsageError("a tile is too large", expected=f"at most {most}", got=stop - start)
    return start, min(stop, total)


def _cell(model: ViewModel, request: Request) -> Answer:
    layer = whole(request, "layer", 0, model.num_layers - 1)
    token = whole(request, "token", 0, model.num_rows - 1)
    return Answer(content.inspected(model, Cell(layer, token)))


def _headings(model: ViewModel, request: Request) -> Answer:
    first = whole(request, "t0", 0, model.num_rows)
    stop = min(whole(request, "t1", first, 2**31), model.num_rows, first + MAX_HEADINGS)
    return Answer(content.headings(model, first, stop))


def _menu(model: ViewModel, request: Request) -> Answer:
    """The entries of a menu: value, title, number and help, and which one is chosen."""
    if request.get("action") == "tolerance.choose":
        base = model.state.tolerance.partition("*")[0]
        entries = [[name, name, "", _about(model, name)] for name in PROFILES if name != "auto"]
        return Answer({"title": "tolerance", "entries": entries, "chosen": base})
    counts = model.class_counts()
    classes = [
        [klass, CLASS_TITLES[klass], _number(model, klass, counts[klass]), CLASS_HELP[klass]]
        for klass in DEFAULT_CLASS_ORDER
    ]
    title = "what counts as a divergence"
    return Answer({"title": title, "entries": classes, "chosen": model.state.klass})


def _about(model: ViewModel, profile: str) -> str:
    return "of this comparison" if profile == model.facts.tolerance.partition("*")[0] else ""


def _number(model: ViewModel, klass: str, cells: int) -> str:
    if klass == "local_error" and model.attribution is None:
        return "needs the model"
    return count(cells) if cells else "none"


def _copy(model: ViewModel, _request: Request) -> Answer:
    return Answer({"text": cell_text(model) if model.num_rows else ""})


_READS: Final[dict[str, Callable[[ViewModel, Request], Answer]]] = {
    "tile": _tile,
    "cell": _cell,
    "headings": _headings,
    "menu": _menu,
    "copy": _copy,
}


def act(model: ViewModel, request: Request) -> None:
    """Carries out an action of the table that the model knows by itself."""
    model.act(str(request.get("action")))


def choose(model: ViewModel, request: Request) -> None:
    """Carries out what a person chose in a menu or wrote on a line.

    Raises:
        UsageError: The text cannot be understood, or there is nothing to choose here.
    """
    action, value = str(request.get("action")), str(request.get("value"))
    if action not in CHOICES:
        raise UsageError(f"nothing to choose for {action!r}", do=did_you_mean(action, CHOICES))
    CHOICES[action](model, value)


def _choose_class(model: ViewModel, value: str) -> None:
    found = next((klass for klass in DEFAULT_CLASS_ORDER if klass == value), None)
    if found is None:
        raise UsageError(f"unknown class {value!r}", do=did_you_mean(value, DEFAULT_CLASS_ORDER))
    model.choose_class(found)


def _go_to(model: ViewModel, value: str) -> None:
    at, state = parse_address(value), model.state
    layer = state.layer if at.layer is None else at.layer
    row = state.row if at.row is None else at.row
    model.move_to(Cell(layer, row), at.site)


CHOICES: Final[dict[str, Callable[[ViewModel, str], object]]] = {
    "class.choose": _choose_class,
    "tolerance.choose": lambda model, value: model.choose_tolerance(value),
    "find.show": lambda model, value: model.search(value),
    "goto.show": _go_to,
    "filter.show": lambda model, value: model.choose_filter(parse_filter(value)),
}


def whole(request: Request, name: str, least: int, most: int) -> int:
    """A whole number of a request, inside its limits.

    Raises:
        UsageError: It is missing, no whole number, or outside.
    """
    value = request.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise UsageError(
            f"{name} cannot be shown",
            expected=f"a whole number, {least} to {most}",
            got=repr(value),
        )
    return value


def _op(request: Request, known: Mapping[str, object]) -> str:
    op = str(request.get("op"))
    if op not in known:
        raise UsageError(f"unknown request {op!r}", do=did_you_mean(op, known))
    return op
