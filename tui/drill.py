"""The drill: one cell over the whole screen, in five pages; escape goes back one level.

Pages are made when they are opened, and anew for another site or another width. Stepping to
another site moves the cursor of the workbench below along.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from rich.segment import Segment
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.screen import ModalScreen

from tui.drill_experts import experts_page
from tui.drill_page import Line, Page, PageView, TextPage, paragraph, text_of
from tui.drill_pin import pin_page
from tui.drill_trace import AcrossPage, TracePage
from tui.drill_vector import vector_page
from tui.guarded import Guarded
from tui.help import HelpScreen
from tui.lines import Lines
from tui.styles import BAR, BAR_BOLD, BAR_MUTED, BASE, CHIP_WARNING, CURSOR, KEY, MUTED
from workbench.view.actions import key_name
from workbench.view.drill.across import Across
from workbench.view.drill.beside import beside_pin
from workbench.view.drill.experts import expert_facts
from workbench.view.drill.trace import trace
from workbench.view.drill.vectors import vector_facts
from workbench.view.drill_actions import DRILL_ACTIONS, DRILL_PAGES
from workbench.view.keymap import DEFAULT_KEYS, Keymap, drill_keys
from workbench.view.lenses import LENSES
from workbench.view.model import ViewModel
from workbench.view.numbers import count
from workbench.view.rows import cut, cut_sentence, escape, quote
from workbench.view.state import ViewState
from workbench.view.stepping import budget_of, step_text
from workbench.view.walk import Stop

TITLES: Final = ("vector", "experts", "down the layers", "across tokens", "against the pin")
_SHORT: Final = ("vector", "experts", "layers", "tokens", "pin")
WIDE: Final = 100
_COPY_LINES: Final = 2000
"""A longer page is copied as far as it can be seen."""
_DOES: Final = {
    "cursor.left": "turn(-1)",
    "cursor.right": "turn(1)",
    **{action.id: f"open({number})" for number, action in enumerate(DRILL_PAGES)},
    "cursor.down": "move(1)",
    "cursor.up": "move(-1)",
    "page.forward": "leaf(1)",
    "page.back": "leaf(-1)",
    "token.first": "go(False)",
    "token.last": "go(True)",
    "layer.first": "go(False)",
    "layer.last": "go(True)",
    "drill.show": "jump",
    "site.next": "step('site.next')",
    "site.previous": "step('site.previous')",
    "order.toggle": "sort",
    "copy.cell": "copy",
    "failures.show": "failures",
    "help.show": "help",
    "back": "dismiss",
    "quit": "dismiss",
}
"""What each action of the drill calls."""


class DrillScreen(ModalScreen[Stop | None], Guarded):
    """Everything about one cell; gives the place to go to, or None.

    Args:
        model: The view-model; `.` and `,` move its cursor.
        show: Draws the workbench below after that.
        keymap: The keys of every action.
        alarm: What failed last, in words; "" when nothing has.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        # With the ids of the table, so that a person's own keys hold here too.
        *(
            Binding(",".join(action.keys), _DOES[action.id], action.title, id=action.id)
            for action in DRILL_ACTIONS
        ),
        # Nobody can choose these: terminals and forms have them for moving on.
        Binding("tab", "turn(1)", "Next page"),
        Binding("shift+tab", "turn(-1)", "Previous page"),
    ]

    def __init__(
        self,
        model: ViewModel,
        show: Callable[[ViewState], None],
        keymap: Keymap = DEFAULT_KEYS,
        alarm: Callable[[], str] = str,
    ) -> None:
        super().__init__()
        self.model = model
        self.keymap = keymap
        self.keys = drill_keys(keymap)
        self.alarm = alarm
        self.number = 0
        self.said = ""
        self._show_below = show
        self._across: Across | None = None

    @property
    def stop(self) -> Stop:
        """What is drilled into."""
        state = self.model.state
        return Stop(state.layer, state.row, state.site)

    def compose(self) -> ComposeResult:
        self.view = PageView(self._page(80))
        self.head, self.foot = DrillHead(self), DrillFoot(self)
        yield self.head
        yield self.view
        yield self.foot

    def on_resize(self, event: Resize) -> None:
        place = self.view.cursor
        self.view.show(self._page(event.size.width), keep=True)
        if place is not None:
            self.view.go(place)

    def _page(self, width: int) -> Page:
        """The open page at a width; one line that says so when it cannot be made."""
        try:
            return self._made(width)
        except Exception as error:  # noqa: BLE001  (told; the other pages go on)
            return TextPage(width, paragraph(self.undrawn(error), BASE, width))

    def _made(self, width: int) -> Page:
        model, stop = self.model, self.stop
        if self.number == 0:
            return vector_page(vector_facts(model.source, stop), budget_of(model, stop), width)
        if self.number == 1:
            facts = expert_facts(model, stop.cell)
            return experts_page(facts, model.attribute_command, width)
        if self.number == 2:
            return TracePage(width, trace(model, stop.row), stop.row, stop)
        if self.number == 3:
            return AcrossPage(width, self._tokens(stop), stop.row)
        return pin_page(beside_pin(model, stop), key_name(self.keymap["pin.set"][0]), width)

    def _tokens(self, stop: Stop) -> Across:
        """The layer's tokens; kept while the site is the same, with the order they are in."""
        kept = self._across
        if kept is None or (kept.layer, kept.asked) != (stop.layer, stop.site):
            self._across = Across(self.model, stop.layer, stop.site)
            if kept is not None:
                self._across.sort_by(kept.sort)
        assert self._across is not None
        return self._across

    def _redraw(self, *, keep: bool = False) -> None:
        self.view.show(self._page(self.size.width), keep=keep)
        self.head.rebuild()
        self.foot.rebuild()

    def on_page_view_moved(self) -> None:
        self.foot.rebuild()

    def _quietly(self) -> None:
        self.said = ""

    def action_turn(self, pages: int) -> None:
        self.action_open((self.number + pages) % len(TITLES))

    def action_open(self, number: int) -> None:
        self._quietly()
        self.number = number
        self._redraw()

    def action_move(self, lines: int) -> None:
        self._quietly()
        self.view.move(lines)

    def action_leaf(self, pages: int) -> None:
        self._quietly()
        self.view.move(pages * max(1, self.view.room - 1))

    def action_go(self, to_last: bool) -> None:
        self._quietly()
        self.view.go(len(self.view.page) - 1 if to_last else 0)

    def action_step(self, action_id: str) -> None:
        self._quietly()
        before = self.model.act(action_id)
        self._show_below(before)
        self._redraw(keep=self.number == 0)

    def action_sort(self) -> None:
        self._quietly()
        if self.view.cursor is not None and self.number == 3:
            self.view.page.cursor = self.view.page.sort(self.view.cursor)
            self.view.show(self.view.page)

    def action_jump(self) -> None:
        if self.view.cursor is None:
            return
        target = self.view.page.target(self.view.cursor)
        if target is not None:
            self.dismiss(target)

    def action_help(self) -> None:
        lens = LENSES[self.model.state.lens]
        self.app.push_screen(HelpScreen(lens, self.model.legend(), self.keys, DRILL_ACTIONS))

    def action_copy(self) -> None:
        page = self.view.page
        first, stop = (0, len(page)) if len(page) <= _COPY_LINES else self.view.seen
        lines = [*page.heads, *(page.line(place) for place in range(first, stop))]
        text = [self.title_text, step_text(self.model, self.stop), "", *map(text_of, lines)]
        self.app.copy_to_clipboard("\n".join(text) + "\n")
        part = "" if stop - first == len(page) else f" of {count(len(page))}"
        self.said = f"copied {count(stop - first)}{part} lines"
        self.foot.rebuild()

    def key_names(self, *action_ids: str) -> str:
        """The first key of each action, as it is printed on a keyboard, in small letters."""
        names = (key_name(self.keys[action_id][0]) for action_id in action_ids)
        return " ".join(name if len(name) == 1 else name.lower() for name in names)

    @property
    def title_text(self) -> str:
        """Which cell and which token, in one line."""
        token = self.model.cell_facts(self.stop.cell).token
        where = f"{escape(token.request)} position {token.position} {token.phase}"
        return f"{self.model.address()}  {quote(token.text, 16)} id {token.token_id} · {where}"


class DrillHead(Lines):
    """Four lines: the cell, what happens at the site, the pages, and what failed or a gap."""

    def __init__(self, screen: DrillScreen) -> None:
        super().__init__("drill-head")
        self._drill = screen

    def lines(self, width: int, _height: int) -> list[Line]:
        drill = self._drill
        title = Segment(f" {cut(drill.title_text, width - 2)}", BAR_BOLD)
        said = Segment(f" {cut_sentence(step_text(drill.model, drill.stop), width - 2)}", BASE)
        fill = Segment(" " * (width - title.cell_length), BAR)
        alarm = cut(f" {drill.alarm()} ", width - 2)
        failed = [Segment(" ", BASE), Segment(alarm, CHIP_WARNING)] if alarm.strip() else []
        return [[title, fill], [said], self._tabs(width), failed]

    def _tabs(self, width: int) -> Line:
        names = TITLES if sum(len(name) + 6 for name in TITLES) < width else _SHORT
        line = [Segment(" ", BASE)]
        for number, name in enumerate(names):
            style = CURSOR if number == self._drill.number else MUTED
            key = self._drill.key_names(DRILL_PAGES[number].id)
            line += [Segment(f" {key} {name} ", style), Segment(" ", BASE)]
        return line


class DrillFoot(Lines):
    """Keys of the page, and on the right which lines can be seen."""

    fill = BAR

    def __init__(self, screen: DrillScreen) -> None:
        super().__init__("drill-foot")
        self._drill = screen

    def lines(self, width: int, _height: int) -> list[Line]:
        view = self._drill.view
        said, where = self._drill.said, _place(view)
        right = Segment(f"{said or where} ", BAR_BOLD if said else BAR_MUTED)
        gap = "   " if width >= WIDE else "  "
        keys = (
            (self._drill.key_names("back"), "back"),
            ("tab", "page"),
            *((self._drill.key_names(*ids), words) for ids, words in view.page.keys),
            (self._drill.key_names("site.next", "site.previous"), "site"),
            (self._drill.key_names("copy.cell"), "copy"),
        )
        line, used = [Segment(" ", BAR)], 1
        for spaced, words in keys:
            # Two keys of one character each can stand close together.
            close = width < WIDE and len(spaced) == 3
            key = spaced.replace(" ", "") if close else spaced
            size = len(key) + 1 + len(words) + len(gap)
            if used + size + right.cell_length <= width:
                line += [Segment(f"{key} ", KEY), Segment(f"{words}{gap}", BAR_MUTED)]
                used += size
        return [[*line, Segment(" " * (width - used - right.cell_length), BAR), right]]


def _place(view: PageView) -> str:
    """Where in the page one is; empty when all of it can be seen."""
    total, (first, stop) = len(view.page), view.seen
    if total <= view.room:
        return ""
    if view.cursor is not None:
        return f"{count(view.cursor + 1)}/{count(total)}"
    return f"{count(first + 1)}–{count(stop)} of {count(total)}"
