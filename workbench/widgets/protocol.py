"""Requests of the front end and their answers: pure values in, plain values and bytes out.

A request is `{id, op, ...}`; the answer has the same id and op. An error is an answer too, with the
message in `error`, to be drawn where the result would have been. Grids travel as uint8 buffers in C
order; everything else is JSON without NaN.

Axes: L layer, P pooled column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from rich.console import Group

from workbench.errors import KldiveError, UsageError, did_you_mean
from workbench.report.experiments import experiments
from workbench.report.text import written
from workbench.view.cell_text import cell_text
from workbench.view.lenses import LENSES
from workbench.view.model import ViewModel
from workbench.view.state import Cell
from workbench.widgets import content
from workbench.widgets.menus import CHOICES, menu

if TYPE_CHECKING:
    from workbench.comparison.result import Comparison

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


def _copy(model: ViewModel, _request: Request) -> Answer:
    """The cursor's cell as text; links are made where the Python of the widget is known."""
    return Answer({"text": cell_text(model) if model.num_rows else ""})


def _read(model: ViewModel, _request: Request) -> Answer:
    """Proof, routing ladder and swaps as text, or what it takes to have them."""
    parts = experiments(cast("Comparison", model.source))
    text = written(Group(*parts)) if parts else f"No swap was run yet: {model.attribute_command}"
    return Answer({"text": text})


_READS: Final[dict[str, Callable[[ViewModel, Request], Answer]]] = {
    "tile": _tile,
    "cell": _cell,
    "headings": _headings,
    "menu": lambda model, request: Answer(menu(model, str(request.get("action")))),
    "copy": _copy,
    "read": _read,
}


def act(model: ViewModel, request: Request) -> None:
    """Carries out an action of the table that the model knows by itself."""
    model.act(str(request.get("action")))


def choose(model: ViewModel, request: Request) -> None:
    """Carries out what a person chose in a menu or wrote on a line.

    Raises:
        KldiveError: The text cannot be understood, it cannot be done, or there is no such menu.
    """
    action = str(request.get("action"))
    if action not in CHOICES:
        raise UsageError(f"nothing to choose for {action!r}", do=did_you_mean(action, CHOICES))
    CHOICES[action](model, str(request.get("value")))


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
