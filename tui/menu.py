"""A menu over the screen: lines to choose from, one of them current."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from tui.guarded import FAILURES_KEY, Guarded


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A line of a menu.

    Attributes:
        id: What choosing it gives.
        text: The line.
        enabled: Whether it can be chosen.
    """

    id: str
    text: str
    enabled: bool = True


class Menu(ModalScreen[str | None], Guarded):
    """Asks for one of some entries; gives its id, or None when left.

    Args:
        title: What is asked.
        entries: The lines.
        current: Id of the entry that holds now; it is marked and highlighted.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        # Escape leaves a menu whatever a person's keys are: the line below says so.
        Binding("escape", "dismiss(None)", "Close"),
        Binding("q", "dismiss(None)", "Close", id="quit", show=False),
        Binding("j", "cursor_down", "Down", id="cursor.down", show=False),
        Binding("k", "cursor_up", "Up", id="cursor.up", show=False),
        FAILURES_KEY,
    ]

    def __init__(self, title: str, entries: Sequence[Entry], current: str | None = None) -> None:
        super().__init__()
        self.title_text = title
        self.entries = entries
        self.current = current

    def compose(self) -> ComposeResult:
        options = [Option(self._line(e), id=e.id, disabled=not e.enabled) for e in self.entries]
        menu = OptionList(*options, id="menu", markup=False)
        menu.border_title = self.title_text
        menu.border_subtitle = "enter chooses · esc leaves"
        ids = [entry.id for entry in self.entries]
        if self.current in ids:
            menu.highlighted = ids.index(self.current)
        yield menu

    def _line(self, entry: Entry) -> str:
        return f"{'▶' if entry.id == self.current else ' '} {entry.text}"

    def action_cursor_down(self) -> None:
        self.query_one(OptionList).action_cursor_down()

    def action_cursor_up(self) -> None:
        self.query_one(OptionList).action_cursor_up()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option.id)
