"""Two pages of lines to jump from: a token down the layers, and a layer across its tokens."""

from __future__ import annotations

import math
from typing import ClassVar, Final

from rich.segment import Segment
from rich.style import Style

from tui.drill_page import MOVE, Line, Page
from tui.styles import BASE, BOLD, CODE, GOOD, MUTED
from workbench.view.drill.across import Across, RowLine, SortBy
from workbench.view.drill.flips import Flip
from workbench.view.drill.trace import LayerLine, ModelLine, TraceLine
from workbench.view.numbers import short, signed, times
from workbench.view.palette import GLYPHS
from workbench.view.rows import cut, escape, fit
from workbench.view.steps import TITLES
from workbench.view.walk import Stop

_FLIP: Final = 8
_MANY: Final = 20
"""Columns of a flip on a wide screen."""
_WIDE: Final = 100
_LEAST: Final = 1e-6
_LEAST_BAR: Final = 24
_MAX_BAR: Final = 36
_REQUEST: Final = 16
"""Columns from which naming the request is worth it."""
_SORTS: Final[dict[SortBy, SortBy]] = {"row": "size", "size": "row"}


class TracePage(Page):
    """One line per layer, the cursor on the layer that was drilled into.

    Args:
        width: Columns.
        lines: The way of the token.
        row: Its row.
        here: Where the drill is.
    """

    keys: ClassVar = ((MOVE, "move"), (("drill.show",), "go"))

    def __init__(self, width: int, lines: list[TraceLine], row: int, here: Stop) -> None:
        super().__init__(width)
        self._lines, self._row = lines, row
        self.cursor = next((i for i, line in enumerate(lines) if _is_at(line, here)), 0)
        attributed = any(isinstance(line, LayerLine) and line.local is not None for line in lines)
        flip = _flip_width(width)
        text = f" layer lvl {'flip':<{flip + 13}}{'gates':>7}{'combined':>9}{'residual':>9}"
        units = f"{'':{flip + 23}}{'max |Δ|':>8}{'× budget':>9}{'rel L2':>9}"
        self._room = _bar_room(width, attributed=attributed)
        if self._room:
            text += f"  {'residual, 1e-6 to 1,':<{self._room}}"
            units += f"  {'logarithmic':<{self._room}}"
        if attributed:
            text, units = f"{text} worst module", f"{units} × budget, who"
        self.heads = [[Segment(cut(part, width), MUTED)] for part in (text, units)]

    def __len__(self) -> int:
        return len(self._lines)

    def line(self, place: int) -> Line:
        found = self._lines[place]
        if isinstance(found, ModelLine):
            return [Segment(cut(f" {found.text}", self.width - 1), BASE)]
        return _layer(found, self.width - 1, self._room)

    def target(self, place: int) -> Stop | None:
        found = self._lines[place]
        if isinstance(found, ModelLine):
            return found.stop
        return Stop(found.layer, self._row, "")


def _is_at(line: TraceLine, here: Stop) -> bool:
    if isinstance(line, ModelLine):
        return line.stop.site == here.site
    return line.layer == here.layer and here.model_layer is not None


def _flip_width(width: int) -> int:
    return _MANY if width >= _WIDE else _FLIP


def _bar_room(width: int, *, attributed: bool) -> int:
    """Columns for a bar of the residual's difference: only where nothing else needs them."""
    room = width - _flip_width(width) - 50 - (30 if attributed else 0)
    return min(_MAX_BAR, room) if room >= _LEAST_BAR else 0


def _height(value: float | None) -> float:
    """A relative error as a share of six decades up to 1."""
    if value is None or value <= 0 or math.isnan(value):
        return 0.0
    return min(1.0, max(0.02, 1 - math.log10(min(value, 1.0)) / math.log10(_LEAST)))


def _layer(found: LayerLine, width: int, bar_room: int) -> Line:
    line = [
        Segment(f" {f'L{found.layer}':<4}", BASE),
        Segment(f" {GLYPHS[found.code]} ", CODE[found.code]),
        Segment(" ", BASE),
        *_flip(found.flip, found.kind, _flip_width(width + 1)),
        Segment(f"{short(found.gates, 1):>8}", BASE),
        _budgets(found.combined),
        Segment(f"{short(found.residual_l2, 1):>9}", BASE if found.residual_l2 else MUTED),
    ]
    if bar_room:
        length = round(_height(found.residual_l2) * bar_room)
        line.append(Segment(f"  {'━' * length:<{bar_room}}", MUTED))
    return [*line, *_worst(found, width - sum(part.cell_length for part in line))]


def _flip(flip: Flip | None, kind: str, width: int) -> Line:
    """Experts and verdict, in `width` + 12 columns."""
    if flip is None:
        text = "dense" if kind == "dense" else "not recorded"
        return [Segment(fit(text, width + 12), MUTED)]
    if not flip.num:
        return [Segment(f"{'·':<{width + 12}}", MUTED)]
    style = BASE if flip.explained else BOLD
    return [
        Segment(f"{flip.short(width):<{width}} ", style),
        Segment(f"{flip.word:<11}", MUTED if flip.explained else BOLD),
    ]


def _budgets(value: float | None) -> Segment:
    style: Style = MUTED if value is None or value == 0 else BASE if value <= 1 else BOLD
    return Segment(f"{'equal' if value == 0 else times(value):>9}", style)


def _worst(found: LayerLine, room: int) -> Line:
    if found.local is None:
        return []
    if not found.worst:
        return [Segment(cut(" all equal", room), GOOD)]
    beyond = bool(found.outside)
    text = f" {found.worst} {times(found.local).replace(' ', '')} {found.outside}"
    return [Segment(cut(text, room), BOLD if beyond else MUTED)]


class AcrossPage(Page):
    """One line per token of the layer, made when it is drawn.

    Args:
        width: Columns.
        across: The layer.
        row: The cursor's row.
    """

    keys: ClassVar = ((MOVE, "move"), (("drill.show",), "go"), (("order.toggle",), "sort"))

    def __init__(self, width: int, across: Across, row: int) -> None:
        super().__init__(width)
        self._across = across
        self.cursor = across.place_of(row) if len(across) else 0
        self._head()

    def _head(self) -> None:
        across, flip = self._across, _flip_width(self.width)
        title = TITLES.get(across.site, across.site)
        what = "in order" if across.sort == "row" else "largest difference first"
        about = f" L{across.layer} {title}: tokens, {what}"
        hidden = across.num_hidden
        if hidden:
            about += f"; {hidden:,} that the filter hides are listed too"
        text = f"  row       lvl token    {'flip':<{flip + 12}}{'rel L2':>8} {'× budget':>9}"
        text += f" {'dlogp':>10}"
        if self.width - len(text) > _REQUEST:
            text += "  request"
        self.heads = [[Segment(cut(part, self.width), MUTED)] for part in (about, text)]

    def __len__(self) -> int:
        return len(self._across)

    def line(self, place: int) -> Line:
        found = self._across.line(place)
        line = [
            Segment(f" {f't{found.row}':<8}", BASE),
            Segment(f" {GLYPHS[found.code]} ", CODE[found.code]),
            Segment(f" {fit(escape(found.text), 8)} ", BASE),
            *self._numbers(found),
        ]
        room = self.width - 1 - sum(part.cell_length for part in line)
        request = f"  {escape(found.request)} position {found.position}"
        return [*line, Segment(cut(request, room), MUTED)] if room > _REQUEST else line

    def _numbers(self, found: RowLine) -> Line:
        flip = _flip_width(self.width)
        if found.absent:
            words = {"cached": "from the prefix cache", "sampled": "sampled, never fed back"}
            return [
                Segment(fit(f"{words[found.absent]}", flip + 32), MUTED),
                Segment(f"{signed(found.dlogp):>10}", BASE),
            ]
        return [
            *_flip(found.flip, "", flip),
            Segment(f" {short(found.size, 1):>8} ", BASE),
            _budgets(found.of_budget),
            Segment(f" {signed(found.dlogp):>10}", BASE),
        ]

    def target(self, place: int) -> Stop | None:
        if not len(self._across):
            return None
        return Stop(self._across.layer, self._across.row_at(place), "")

    def sort(self, place: int) -> int:
        if not len(self._across):
            return 0
        row = self._across.row_at(place)
        self._across.sort_by(_SORTS[self._across.sort])
        self._head()
        # By size, what is largest is what one wants to see.
        return self._across.place_of(row) if self._across.sort == "row" else 0
