"""Two pages of lines to jump from: a token down the layers, and a layer across its tokens."""

from __future__ import annotations

from typing import ClassVar, Final

from rich.segment import Segment
from rich.style import Style

from tui.drill_page import Line, Page
from tui.styles import BASE, BOLD, CODE, GOOD, MUTED
from workbench.view.drill.across import Across, RowLine, SortBy
from workbench.view.drill.flips import Flip
from workbench.view.drill.trace import LayerLine, ModelLine, TraceLine
from workbench.view.numbers import short, signed, times
from workbench.view.palette import GLYPHS
from workbench.view.rows import cut, escape, fit
from workbench.view.steps import TITLES
from workbench.view.walk import Stop

_FLIP: Final = 11
_MANY: Final = 24
"""Columns of a flip on a wide screen."""
_WIDE: Final = 100
_SORTS: Final[dict[SortBy, SortBy]] = {"row": "size", "size": "row"}


class TracePage(Page):
    """One line per layer, the cursor on the layer that was drilled into.

    Args:
        width: Columns.
        lines: The way of the token.
        row: Its row.
        here: Where the drill is.
    """

    keys: ClassVar = (("j k", "move"), ("enter", "go there"))

    def __init__(self, width: int, lines: list[TraceLine], row: int, here: Stop) -> None:
        super().__init__(width)
        self._lines, self._row = lines, row
        self.cursor = next((i for i, line in enumerate(lines) if _is_at(line, here)), 0)
        flip = _flip_width(width)
        text = f"   layer lvl {'flip':<{flip}} {'':11} {'gates':>8} {'combined':>9} {'residual':>9}"
        self.heads = [
            [Segment(cut(f"{text}  worst module", width), MUTED)],
            [
                Segment(
                    cut(f"{'':{flip + 26}}{'max Δ':>7} {'× budget':>9} {'× budget':>9}", width),
                    MUTED,
                )
            ],
        ]

    def __len__(self) -> int:
        return len(self._lines)

    def line(self, place: int) -> Line:
        found = self._lines[place]
        mark = Segment("▶" if place == self.cursor else " ", BOLD)
        if isinstance(found, ModelLine):
            return [mark, Segment(cut(f" {found.text}", self.width - 1), BASE)]
        return [mark, *_layer(found, self.width)]

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


def _layer(found: LayerLine, width: int) -> Line:
    line = [
        Segment(f" {f'L{found.layer}':<6}", BASE),
        Segment(f" {GLYPHS[found.code]} ", CODE[found.code]),
        Segment(" ", BASE),
        *_flip(found.flip, found.kind, _flip_width(width)),
        Segment(f" {short(found.gates, 1):>8} ", BASE),
        _budgets(found.combined),
        Segment(" ", BASE),
        _budgets(found.residual),
    ]
    return [*line, *_worst(found, width - sum(part.cell_length for part in line) - 1)]


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
        return [Segment(cut("  all equal", room), GOOD)]
    beyond = bool(found.outside)
    text = f"  {found.worst} {times(found.local)}"
    text += {"": "", "?": " no arbiter", "AB": " A and B wrong"}.get(
        found.outside, f" {found.outside} wrong"
    )
    return [Segment(cut(text, room), BOLD if beyond else MUTED)]


class AcrossPage(Page):
    """One line per token of the layer, made when it is drawn.

    Args:
        width: Columns.
        across: The layer.
        row: The cursor's row.
    """

    keys: ClassVar = (("j k", "move"), ("enter", "go there"), ("o", "by row or size"))

    def __init__(self, width: int, across: Across, row: int) -> None:
        super().__init__(width)
        self._across = across
        self.cursor = across.place_of(row) if len(across) else 0
        self._head()

    def _head(self) -> None:
        across, flip = self._across, _flip_width(self.width)
        title = TITLES.get(across.site, across.site)
        what = "row" if across.sort == "row" else f"size of the difference of {title}"
        about = f" L{across.layer}, {title}: tokens by {what}"
        hidden = across.num_hidden
        if hidden:
            about += f"; {hidden:,} that the filter hides are listed too"
        text = f"   row     lvl token    {'flip':<{flip}} {'':11} {'rel L2':>8} {'× budget':>9}"
        text += f" {'dlogp':>10}"
        self.heads = [
            [Segment(cut(about, self.width), MUTED)],
            [Segment(cut(f"{text}  request", self.width), MUTED)],
        ]

    def __len__(self) -> int:
        return len(self._across)

    def line(self, place: int) -> Line:
        found = self._across.line(place)
        mark = Segment("▶" if place == self.cursor else " ", BOLD)
        line = [
            mark,
            Segment(f" {f't{found.row}':<8}", BASE),
            Segment(f" {GLYPHS[found.code]} ", CODE[found.code]),
            Segment(f" {fit(escape(found.text), 8)} ", BASE),
            *self._numbers(found),
        ]
        room = self.width - sum(part.cell_length for part in line)
        request = f"  {escape(found.request)} p{found.position}"
        return [*line, Segment(cut(request, room), MUTED)] if room > 4 else line

    def _numbers(self, found: RowLine) -> Line:
        flip = _flip_width(self.width)
        if found.absent:
            words = {"cached": "from the prefix cache", "sampled": "sampled, never fed back"}
            return [
                Segment(fit(f"{words[found.absent]}", flip + 31), MUTED),
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
