"""The widget below a cell: what a person sees of it, and what Python says of it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page, Position, expect

import workbench.widgets
from tests.browser.lab import PATIENCE_MS, Lab

FRONT_END = Path(workbench.widgets.__file__ or "").with_name("divergence.js")
Cell = tuple[int, int]

# The front end's own arithmetic says where a cell is drawn.
_PLACES = """async ([source, about, screen, window, cells, width]) => {
  const url = URL.createObjectURL(new Blob([source], {type: "text/javascript"}));
  const face = await import(url);
  URL.revokeObjectURL(url);
  const {columns} = face.roomOf(width, about.layers, about.character);
  const view = {window, step: screen.step, cellWidth: screen.cell * about.character,
    cellHeight: face.cellHeight(about.layers, screen.dense),
    perBand: Math.max(1, Math.floor(columns / screen.cell))};
  return cells.map((cell) => [...face.placeOf(view, cell), view.cellWidth, view.cellHeight]);
}"""
_PIXELS = """(canvas, points) => {
  const ratio = canvas.width / canvas.clientWidth;
  const pen = canvas.getContext("2d");
  const {data} = pen.getImageData(0, 0, canvas.width, canvas.height);
  return points.map(([x, y]) => {
    const at = 4 * (Math.round(y * ratio) * canvas.width + Math.round(x * ratio));
    const parts = [...data.slice(at, at + 3)];
    return "#" + parts.map((value) => value.toString(16).padStart(2, "0")).join("");
  });
}"""
_IS = f"""([canvas, points, picture, same]) =>
  (String(({_PIXELS})(canvas, points)) === String(picture)) === same"""


class Stepper:
    """The widget in the output of one cell; `name` is its variable in the notebook."""

    def __init__(self, lab: Lab, *, cell: int, name: str) -> None:
        self.lab = lab
        self.cell = cell
        self.name = name
        self._points: list[tuple[float, float]] = []
        self.output = lab.output(cell)
        self.root = self.output.locator(".kld:not([data-left])")
        self.grid = self.root.get_by_role("grid")
        self.address = self.root.locator(".kld-at b")
        self.headline = self.root.locator(".kld-headline")
        self.looking = self.root.locator(".kld-looking")
        self.inspector = self.root.locator(".kld-inspector")
        self.live = self.root.get_by_role("status")
        self.dialog = self.root.get_by_role("dialog")

    @property
    def page(self) -> Page:
        return self.lab.page

    def show(self) -> None:
        """Runs the cell anew: a fresh widget, as it opens."""
        self.leave_old()
        self.lab.run(self.cell)
        expect(self.address).to_be_visible(timeout=PATIENCE_MS)

    def leave_old(self) -> None:
        """Forgets the widget that stands there, which is about to be replaced."""
        self.output.locator(".kld").evaluate_all(
            "(old) => old.forEach((node) => node.setAttribute('data-left', ''))"
        )

    def photograph(self, path: Path) -> None:
        """A picture of the widget with its controls."""
        self.output.screenshot(path=path)

    def focus(self) -> None:
        self.grid.focus()

    def press(self, *keys: str) -> None:
        """Keys, one after the other, to whatever has the focus."""
        for key in keys:
            self.page.keyboard.press(key)

    def press_in_grid(self, *keys: str) -> None:
        """Keys to the grid."""
        self.focus()
        self.press(*keys)

    def click(self, cell: Cell) -> None:
        self.grid.click(position=self._middle(cell))

    def hover(self, cell: Cell) -> None:
        self.grid.hover(position=self._middle(cell))

    def drag(self, start: Cell, end: Cell) -> None:
        """From one cell to another with the button held."""
        self.hover(start)
        self.page.mouse.down()
        self.hover(end)
        self.page.mouse.up()

    def at(self, cell: Cell) -> None:
        """Waits until the inspector shows this cell."""
        shown = self.inspected(cell)["address"]
        expect(self.address).to_have_text(shown, timeout=PATIENCE_MS)

    def inspected(self, cell: Cell) -> Any:
        """What Python says of a cell."""
        return json.loads(self.python(f"json.dumps(inspected{tuple(cell)})"))

    def answered(self) -> None:
        """Waits until Python has nothing left of what the widget asked."""
        self.python("0")

    def python(self, expression: str) -> str:
        """Prints an expression in the notebook."""
        return self.lab.python(f"print({expression})")

    def execute(self, statement: str) -> None:
        """Carries out a statement in the notebook."""
        self.lab.python(statement)

    def settled(self, trait: str, wanted: Any) -> bool:
        """Whether a trait comes to this value."""
        stop = time.monotonic() + PATIENCE_MS / 1000
        while (found := self.value(trait)) != wanted and time.monotonic() < stop:
            pass
        assert found == wanted
        return True

    def value(self, trait: str) -> Any:
        """A trait, or an attribute, of the widget in Python."""
        return json.loads(self.python(f"json.dumps({self.name}.divergence.{trait})"))

    def cursor(self) -> Cell:
        layer, token = self.value("cursor")
        return layer, token

    def picture(self) -> list[str]:
        """The colours of all cells as drawn now; token texts may still be on the way."""
        l0, l1, t0, t1 = self.value("window")
        cells = [(layer, row) for layer in range(l0, l1) for row in range(t0, t1)]
        self._points = [(left + 1.5, top + 1.5) for left, top, _, _ in self.places(cells)]
        return self.colours_at(self._points)

    def becomes(self, picture: list[str]) -> None:
        """Waits until the cells are drawn so, where they were when last looked at."""
        self._wait_for(picture, same=True)

    def becomes_other_than(self, picture: list[str]) -> None:
        """Waits until the cells are drawn otherwise."""
        self._wait_for(picture, same=False)

    def _wait_for(self, picture: list[str], *, same: bool) -> None:
        canvas = self.root.locator(".kld-data").element_handle()
        known = [canvas, [list(point) for point in self._points], picture, same]
        self.page.wait_for_function(_IS, arg=known, timeout=PATIENCE_MS)

    def drawn_colours(self, cells: Sequence[Cell]) -> dict[Cell, str]:
        """Colours of drawn cells beside their glyphs, such as `#fee838`."""
        points = [(left + 1.5, top + 1.5) for left, top, _, _ in self.places(cells)]
        return dict(zip(cells, self.colours_at(points), strict=True))

    def colours_at(self, points: Sequence[tuple[float, float]]) -> list[str]:
        """Colours of points of the grid."""
        found = self.root.locator(".kld-data").evaluate(_PIXELS, [list(p) for p in points])
        return [str(colour) for colour in found]

    def places(self, cells: Sequence[Cell]) -> list[tuple[float, float, float, float]]:
        """Left, top, width and height of cells in the grid."""
        width = self.grid.evaluate("(grid) => Math.floor(grid.clientWidth)")
        source = FRONT_END.read_text(encoding="utf-8")
        shown = [self.value(name) for name in ("_about", "_screen", "window")]
        found = self.page.evaluate(_PLACES, [source, *shown, [list(c) for c in cells], width])
        return [(left, top, wide, high) for left, top, wide, high in found]

    def _middle(self, cell: Cell) -> Position:
        ((left, top, wide, high),) = self.places([cell])
        return {"x": left + wide / 2, "y": top + high / 2}

    def control(self, label: str) -> Locator:
        """One of Jupyter's own controls above the grid, by its label."""
        return self.output.locator(".widget-dropdown", has_text=label).locator("select")
