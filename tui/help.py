"""The help screen: keys from the table of actions, levels of the current lens, the words used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from rich.console import Group, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from tui.scrolling import CLOSE, SCROLL, Scrolling
from tui.styles import CODE, KEY
from workbench.names import DEFAULT_CLASS_ORDER, DIRECTION
from workbench.view.actions import ACTIONS, GROUP_TITLES, Action, key_name
from workbench.view.actions import Group as ActionGroup
from workbench.view.classes import CLASS_HELP, CLASS_TITLES
from workbench.view.keymap import Keymap, keymap_path, scroll_hint
from workbench.view.lenses import Lens, is_error_lens
from workbench.view.palette import ABSENT, ABSENT_GLYPH, LOOKS, code_of_level

_TITLE = Style(bold=True, underline=True)
_KEY = Style(color=KEY.color, bold=True)
_FIRST_WIDTH = 20


class HelpScreen(ModalScreen[None], Scrolling):
    """Everything a person may want to look up, in one page that scrolls.

    Args:
        lens, legend: The lens, and what its levels mean.
        keymap: Keys of every action.
        actions: What can be done on the screen that asks.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark,f1", "dismiss", "Close", id="help.show"),
        *CLOSE,
        *SCROLL,
    ]

    def __init__(
        self,
        lens: Lens,
        legend: tuple[str, ...],
        keymap: Keymap,
        actions: tuple[Action, ...] = ACTIONS,
    ) -> None:
        super().__init__()
        self.actions = actions
        self.lens = lens
        self.legend = legend
        self.keymap = keymap

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help"):
            yield Static(help_text(self.lens, self.legend, self.keymap, self.actions))


def help_text(
    lens: Lens, legend: tuple[str, ...], keymap: Keymap, actions: tuple[Action, ...] = ACTIONS
) -> Group:
    """The page."""
    parts: list[RenderableType] = [Text(scroll_hint(keymap, "closes this page"), style="italic")]
    parts += _part(f"Levels of lens {lens.key}, {lens.title}", _levels(lens, legend))
    for group, title in GROUP_TITLES.items():
        if any(action.group == group for action in actions):
            parts += _part(title, _keys(group, keymap, actions))
    parts += _part("Your own keys", [(Text("[keys]", _KEY), f"lines in {keymap_path()}, by id")])
    parts += _part("Classes of divergence", _classes())
    parts += _part(
        "Sides", [(Text("A, B", "bold"), f"A is the rollout, B the trainer. {DIRECTION}.")]
    )
    return Group(*parts)


def _part(title: str, rows: Iterable[tuple[Text, str]]) -> list[RenderableType]:
    """A title and a table of two columns; a long text wraps within its own."""
    table = Table.grid(padding=(0, 1))
    table.add_column(min_width=_FIRST_WIDTH, no_wrap=True)
    table.add_column(overflow="fold")
    for first, second in rows:
        table.add_row(Text("  ").append_text(first), second)
    return [Text(), Text(title, _TITLE), table]


def _levels(lens: Lens, legend: tuple[str, ...]) -> Iterable[tuple[Text, str]]:
    for level, meaning in enumerate(legend):
        code = code_of_level(level)
        yield Text.assemble((f" {LOOKS[code].glyph} ", CODE[code]), f" {level}"), meaning
    reason = "nothing to compare: a side did not compute this row, or there is no router"
    if is_error_lens(lens.id):
        reason = "not attributable: A's inputs are not there, or attention lacks earlier rows"
    yield Text(f" {ABSENT_GLYPH} ", CODE[ABSENT]), reason


def _keys(
    group: ActionGroup, keymap: Keymap, actions: tuple[Action, ...]
) -> Iterable[tuple[Text, str]]:
    for action in actions:
        if action.group == group:
            yield Text(" ".join(map(key_name, keymap[action.id])), _KEY), action.help


def _classes() -> Iterable[tuple[Text, str]]:
    for klass in DEFAULT_CLASS_ORDER:
        yield Text(CLASS_TITLES[klass], "bold"), CLASS_HELP[klass]
