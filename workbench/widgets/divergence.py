"""The stepper for a notebook: overview, grid and inspector of one comparison, in one widget.

Thin over `workbench.view`: the view-model holds the state, the traits mirror it, and both change
only through its actions. Traits are small; grids come as bytes, cells and tiles by message
(workbench.widgets.protocol). Needs anywidget.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from threading import RLock
from typing import Any, ClassVar, Final

import anywidget
import polars as pl
import traitlets as t

from workbench.comparison.result import open_comparison
from workbench.errors import UsageError, did_you_mean
from workbench.names import DIVERGENCE_CLASSES
from workbench.report import html
from workbench.view.frame import cells_frame
from workbench.view.lenses import LENSES
from workbench.view.model import ViewModel
from workbench.view.source import Source
from workbench.view.state import Area, Cell, ViewState
from workbench.widgets import content, protocol
from workbench.widgets.code import view_code
from workbench.widgets.fallback import display_with_fallback, static_bundle
from workbench.widgets.keys import key_map
from workbench.widgets.protocol import Answer, Request
from workbench.widgets.windows import (
    MAX_ROOM,
    Rectangle,
    Room,
    Window,
    opening_zoom,
    placed,
    revealed,
    zoom_showing,
    zoomed,
)

_HERE: Final = Path(__file__).parent
_DOCS: Final = re.compile(r"^ */\*\*(?:(?!\*/).)*\*/\n", re.MULTILINE | re.DOTALL)
Pair = tuple[int, int]


def front_end() -> str:
    """The module a browser runs: every saved notebook holds it, so its documentation stays here."""
    return _DOCS.sub("", (_HERE / "divergence.js").read_text(encoding="utf-8"))


class Divergence(anywidget.AnyWidget):
    """Steps through a comparison, layer by layer and token by token.

    Every trait can be written from Python and observed; what cannot be shown is refused or put
    back. The first divergence is shown unless something else is asked for.

    Args:
        comparison: An open comparison, or the directory of one.
        klass: What counts as a divergence; goes to its first cell.
        lens: What colours the grid.
        tolerance: Profile of the rounding budgets.
        cursor: Layer and token.
        pin: Reference cell, layer and token.
        window: First layer, layer after the last, first token, token after the last.
        selection: Rectangles of cells, written as `window` is.

    Raises:
        KldiveError: The comparison cannot be read, or a setting does not exist.

    Attributes:
        link: What `workbench.widgets.link` keeps in step here; written empty, it lets go.
        name: By which its front end knows it from others on the page.
    """

    _esm: ClassVar[str] = front_end()
    _css: ClassVar[Path] = _HERE / "divergence.css"

    cursor = t.Tuple(t.Int(), t.Int(), default_value=(0, 0)).tag(sync=True)
    pin = t.Tuple(t.Int(), t.Int(), allow_none=True, default_value=None).tag(sync=True)
    lens = t.Unicode("router").tag(sync=True)
    klass = t.Unicode("bit").tag(sync=True)
    tolerance = t.Unicode().tag(sync=True)
    window = t.Tuple(t.Int(), t.Int(), t.Int(), t.Int(), default_value=(0, 0, 0, 0)).tag(sync=True)
    selection = t.List(t.Tuple(t.Int(), t.Int(), t.Int(), t.Int())).tag(sync=True)
    link = t.Unicode().tag(sync=True)

    _about = t.Dict().tag(sync=True)
    _screen = t.Dict().tag(sync=True)
    _overview = t.Bytes().tag(sync=True)

    def __init__(
        self,
        comparison: Source | str | Path,
        *,
        klass: str | None = None,
        lens: str | None = None,
        tolerance: str | None = None,
        cursor: Pair | None = None,
        pin: Pair | None = None,
        window: Rectangle | None = None,
        selection: Sequence[Rectangle] = (),
    ) -> None:
        source = open_comparison(comparison) if isinstance(comparison, str | Path) else comparison
        self.model = ViewModel(source)
        # Messages may be handled by a thread of their own while a notebook cell runs.
        self._lock = RLock()
        self._room = Room()
        self.model.resize(self._room.viewport(self.model.num_layers))
        zoomed(self.model, opening_zoom(self.model, self._room))
        self._grid_shown = ""
        self._told_room = False
        self.name = token_hex(4)
        super().__init__(_about={**content.about(self.model), "name": self.name})
        self._show(centre=True)
        self.on_msg(self._asked)
        asked = {"klass": klass, "tolerance": tolerance, "lens": lens, "cursor": cursor, "pin": pin}
        for name, value in {**asked, "selection": list(selection), "window": window}.items():
            if value is not None and value != []:
                setattr(self, name, value)

    # -------------------------------------------------------------------------------- for people

    @property
    def state(self) -> ViewState:
        """What is shown, as one frozen value."""
        return self.model.state

    def to_code(self) -> str:
        """The Python that shows this state again."""
        names = ("klass", "lens", "tolerance", "cursor", "pin", "window", "selection")
        settings = {name: getattr(self, name) for name in names}
        if settings["tolerance"] == self.model.facts.tolerance:
            del settings["tolerance"]
        return view_code(self.model.source.directory, settings)

    def frame(self) -> pl.DataFrame:
        """The selected cells, or the cursor's when none is: one line per cell, all its metrics."""
        here = self.model.state.cell
        areas = [_area(rectangle) for rectangle in self.selection] or [Area(here, here)]
        frames = [cells_frame(self.model, area) for area in areas]
        # Rectangles may overlap; a cell has one line.
        return pl.concat(frames).unique(["layer", "row"]).sort("row", "layer")

    def to_html(self, path: str | Path) -> Path:
        """Writes one self-contained page with the current window; returns its path."""
        path = Path(path)
        path.write_text(html.page(self.model, self.window), encoding="utf-8")
        return path

    def act(self, action: str) -> None:
        """Carries out an action by its id, such as `jump.next`, as its key would.

        Raises:
            UsageError: There is no such action, or a terminal alone can do it.
        """
        self._change(lambda: self.model.act(action), action)

    # ------------------------------------------------------------------------------ state, traits

    def _show(self, *, centre: bool = False, window: Window | None = None) -> None:
        """Puts the model's state into the traits; observers see those that changed."""
        model, state = self.model, self.model.state
        found = window or revealed(model, self._room, Window(*self.window), centre=centre)
        area = state.area
        traits: dict[str, object] = {
            "cursor": (state.layer, state.row),
            "pin": None if state.pin is None else (state.pin.layer, state.pin.row),
            "lens": state.lens,
            "klass": state.klass,
            "tolerance": state.tolerance,
            "window": tuple(found),
            "_screen": content.screen(model),
        }
        last = _rectangle(area) if area else None
        if last is None or last not in self.selection:
            traits["selection"] = [] if last is None else [last]
        grid = content.grid_name(model)
        if grid != self._grid_shown:
            self._grid_shown = grid
            traits["_overview"] = content.overview(model)
        with self.hold_sync():
            for name, value in traits.items():
                if getattr(self, name) != value:
                    self.set_trait(name, value)

    def _change(self, work: Callable[[], object], action: str = "") -> None:
        """Lets the model change its state, and shows it; a new zoom is centred on the cursor."""
        with self._lock:
            zoom = self.model.state.zoom
            try:
                work()
            except KeyError as error:
                do = _actions_like(action)
                raise UsageError(f"{action!r} cannot be done here", do=do) from error
            self._show(centre=self.model.state.zoom != zoom)

    @t.observe("cursor")
    def _cursor_written(self, change: Any) -> None:
        cell = Cell(*change["new"])
        if cell != self.model.state.cell:
            self._change(lambda: self.model.move_to(cell))

    @t.observe("pin")
    def _pin_written(self, change: Any) -> None:
        pin = None if change["new"] is None else Cell(*change["new"])
        if pin != self.model.state.pin:
            self.model.state = replace(self.model.state, pin=pin)
            self._show(window=Window(*self.window))

    @t.observe("lens")
    def _lens_written(self, change: Any) -> None:
        found = next((lens for lens in LENSES if lens == change["new"]), None)
        if found is not None and found != self.model.state.lens:
            self._change(lambda: self.model.choose_lens(found))

    @t.observe("klass")
    def _klass_written(self, change: Any) -> None:
        found = next((klass for klass in DIVERGENCE_CLASSES if klass == change["new"]), None)
        if found is not None and found != self.model.state.klass:
            self._change(lambda: self.model.choose_class(found))

    @t.observe("tolerance")
    def _tolerance_written(self, change: Any) -> None:
        if change["new"] != self.model.state.tolerance:
            self._change(lambda: self.model.choose_tolerance(change["new"]))

    @t.observe("window")
    def _window_written(self, change: Any) -> None:
        wanted, shown = Window(*change["new"]), Window(*change["old"])
        size = wanted.stop_row - wanted.first_row
        before = self.model.state.zoom
        if size != shown.stop_row - shown.first_row and size != self.model.page_rows:
            zoomed(self.model, zoom_showing(self.model, size))
        found = placed(self.model, self._room, wanted)
        if found != wanted or self.model.state.zoom != before:
            self._show(window=found)

    @t.observe("selection")
    def _selection_written(self, change: Any) -> None:
        rectangles = change["new"]
        area = _area(rectangles[-1]) if rectangles else None
        if area != self.model.state.area:
            self.model.state = replace(self.model.state, area=area, selecting=False)
            self._show(window=Window(*self.window))

    @t.validate("cursor", "pin")
    def _inside(self, proposal: Any) -> Pair | None:
        if proposal["value"] is None:
            return None
        layer, token = proposal["value"]
        layer = max(0, min(layer, self.model.num_layers - 1))
        return layer, max(0, min(token, self.model.num_rows - 1))

    @t.validate("selection")
    def _rectangles_inside(self, proposal: Any) -> list[Rectangle]:
        found = []
        for l0, l1, t0, t1 in proposal["value"]:
            layers = (max(l0, 0), min(l1, self.model.num_layers))
            tokens = (max(t0, 0), min(t1, self.model.num_rows))
            if layers[0] < layers[1] and tokens[0] < tokens[1]:
                found.append((*layers, *tokens))
        return found

    @t.validate("lens")
    def _known_lens(self, proposal: Any) -> str:
        return _known("lens", proposal["value"], LENSES)

    @t.validate("klass")
    def _known_klass(self, proposal: Any) -> str:
        """A class without a cell is not taken up; the widget says why."""
        wanted = _known("class", proposal["value"], DIVERGENCE_CLASSES)
        found = next(klass for klass in DIVERGENCE_CLASSES if klass == wanted)
        if found != self.model.state.klass and not len(self.model.jumps(found, "token")):
            self.model.choose_class(found)
            self._screen = content.screen(self.model)
        else:
            return found
        return self.model.state.klass

    @t.validate("tolerance")
    def _known_tolerance(self, proposal: Any) -> str:
        return self.model.source.budgets(proposal["value"] or None).profile

    # -------------------------------------------------------------------------------- front end

    def _asked(self, _widget: object, request: Any, _buffers: object) -> None:
        """Answers a message of the front end."""
        if not isinstance(request, dict):
            return
        with self._lock:
            self._reply(self._answer(request))

    def _answer(self, request: Request) -> Answer:
        changes: dict[str, Callable[[Request], None]] = {
            "act": lambda found: self.act(str(found.get("action"))),
            "choose": lambda found: self._change(lambda: protocol.choose(self.model, found)),
            "room": self._roomed,
        }
        change = changes.get(str(request.get("op")))
        if change is not None:
            return protocol.answered(request, lambda: self._changed(change, request))
        if request.get("op") == "copy" and request.get("action") == "copy.link":
            text = f"{self.to_code()}\n\n# {self.model.link().command}"
            return protocol.answered(request, lambda: Answer({"text": text}))
        return protocol.answer(self.model, request)

    def _changed(self, change: Callable[[Request], None], request: Request) -> Answer:
        """Carries out a change; the answer has the cursor's cell, which saves asking for it."""
        change(request)
        here = self.model.state.cell
        return Answer({"cell": content.inspected(self.model, here)} if self.model.num_rows else {})

    def _reply(self, found: Answer) -> None:
        self.send(found.content, list(found.buffers))

    def _roomed(self, request: Request) -> None:
        """Takes up what the front end has room for; the first time, also the zoom to open with."""
        names = ("columns", "bands", "layers", "dense_layers")
        room = Room(**{name: protocol.whole(request, name, 1, MAX_ROOM) for name in names})
        if room == self._room:
            return
        opening = opening_zoom(self.model, self._room)
        self._room = room
        self.model.resize(room.viewport(self.model.num_layers))
        untouched = not self._told_room and self.model.state.zoom == opening
        self._told_room = True
        if untouched:
            zoomed(self.model, opening_zoom(self.model, room))
        self._show(centre=untouched)

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The widget, and for wherever it cannot run the finding as text and as a picture."""
        found = super()._repr_mimebundle_(**kwargs)
        if found is None:
            return None
        data, metadata = found
        return {**data, **static_bundle(self.model)}, metadata

    def _ipython_display_(self, **kwargs: Any) -> None:
        found = self._repr_mimebundle_(**kwargs)
        if found is not None:
            display_with_fallback(*found, self.model, self.name)


def _known(what: str, value: str, known: Sequence[str] | dict[Any, Any]) -> str:
    if value not in known:
        raise UsageError(f"unknown {what} {value!r}", do=did_you_mean(value, known))
    return value


def _actions_like(action: str) -> str:
    return did_you_mean(action, [found["id"] for found in key_map()])


def _rectangle(area: Area) -> Rectangle:
    return (*area.layers, *area.rows)


def _area(rectangle: Rectangle) -> Area:
    l0, l1, t0, t1 = rectangle
    return Area(Cell(l0, t0), Cell(l1 - 1, t1 - 1))
