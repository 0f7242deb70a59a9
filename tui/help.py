"""The help screen: keys from the table of actions, levels of the current lens, the words used."""

from __future__ import annotations

from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from tui.styles import CODE, KEY
from workbench.names import DEFAULT_CLASS_ORDER, DIRECTION
from workbench.view.actions import ACTIONS, GROUP_TITLES, key_name
from workbench.view.classes import CLASS_HELP, CLASS_TITLES
from workbench.view.lenses import LENSES, Lens
from workbench.view.palette import ABSENT, ABSENT_GLYPH, LOOKS, code_of_level

_TITLE = Style(bold=True, underline=True)
_KEY_WIDTH = 14


class HelpScreen(ModalScreen[None]):
    """Everything a person may want to look up, in one page that scrolls."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,f1", "dismiss", "Close"),
        Binding("j,down", "down", "Down", show=False),
        Binding("k,up", "up", "Up", show=False),
        Binding("pagedown,space", "page_down", "Page down", show=False),
        Binding("pageup", "page_up", "Page up", show=False),
    ]

    def __init__(self, lens: Lens) -> None:
        super().__init__()
        self.lens = lens

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help"):
            yield Static(help_text(self.lens))

    def action_down(self) -> None:
        self.query_one("#help").scroll_relative(y=1, animate=False)

    def action_up(self) -> None:
        self.query_one("#help").scroll_relative(y=-1, animate=False)

    def action_page_down(self) -> None:
        self.query_one("#help").scroll_page_down(animate=False)

    def action_page_up(self) -> None:
        self.query_one("#help").scroll_page_up(animate=False)


def help_text(lens: Lens) -> Text:
    """The page."""
    text = Text()
    text.append("Esc closes this page; j and k scroll it\n\n", Style(dim=False, italic=True))
    _levels(text, lens)
    for group, title in GROUP_TITLES.items():
        text.append(f"{title}\n", _TITLE)
        for action in ACTIONS:
            if action.group == group:
                keys = " ".join(key_name(key) for key in action.keys)
                text.append(f"  {keys:<{_KEY_WIDTH}}", Style(color=KEY.color, bold=True))
                text.append(f"{action.help}\n")
        text.append("\n")
    _words(text)
    return text


def _levels(text: Text, lens: Lens) -> None:
    text.append(f"Levels of lens {lens.key}, {lens.title}\n", _TITLE)
    for level, meaning in enumerate(lens.legend):
        code = code_of_level(level)
        text.append("  ")
        text.append(f" {LOOKS[code].glyph} ", CODE[code])
        text.append(f"  {level}  {meaning}\n")
    text.append("  ")
    text.append(f" {ABSENT_GLYPH} ", CODE[ABSENT])
    text.append(
        "     nothing to compare: a side did not compute this row, or there is no router\n\n"
    )


def _words(text: Text) -> None:
    text.append("Classes of divergence\n", _TITLE)
    for klass in DEFAULT_CLASS_ORDER:
        text.append(f"  {CLASS_TITLES[klass]:<18}", Style(bold=True))
        text.append(f"{CLASS_HELP[klass]}\n")
    text.append("\nLenses\n", _TITLE)
    for lens in LENSES.values():
        text.append(f"  {lens.key} {lens.title:<16}", Style(bold=True))
        text.append(f"{lens.about}\n")
    text.append("\nSides\n", _TITLE)
    text.append(f"  A is the rollout, B the trainer. {DIRECTION}.\n")
