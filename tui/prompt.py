"""One line of input at the foot of the screen: addresses, searches, filters, file names."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from tui.guarded import Guarded
from workbench.errors import KldiveError

Check = Callable[[str], str]
"""Says what a text would do, for the line beside it.

Raises:
    KldiveError: The text means nothing; its message is shown and the prompt stays open.
"""


class Prompt(ModalScreen[str | None], Guarded):
    """Asks for a line of text; gives it once it means something, or None when left.

    Args:
        label: What is asked, a word or two.
        hint: What may be written, shown while the line is empty.
        check: What the text would do.
        text: What stands there at first.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Close")]

    def __init__(self, label: str, hint: str, check: Check, text: str = "") -> None:
        super().__init__()
        self.label = label
        self.hint = hint
        self.check = check
        self.text = text

    def compose(self) -> ComposeResult:
        with Vertical(id="prompt"):
            yield Static(Text(self.hint), id="prompt-hint", markup=False)
            with Horizontal(id="prompt-line"):
                yield Static(f"{self.label} ", id="prompt-label", markup=False)
                yield Input(self.text, id="prompt-text", compact=True, select_on_focus=False)

    def on_input_changed(self, event: Input.Changed) -> None:
        self._tell(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if self._tell(event.value):
            self.dismiss(event.value)

    def _tell(self, text: str) -> bool:
        """Shows what the text would do, or what is wrong with it; True when it means something."""
        line = self.query_one("#prompt-hint", Static)
        try:
            said, sound = self.check(text), True
        except KldiveError as error:
            said, sound = _one_line(error), False
        line.set_class(not sound and bool(text.strip()), "-wrong")
        line.update(Text(said if text.strip() and said else self.hint, no_wrap=True))
        return sound


def _one_line(error: KldiveError) -> str:
    """An error's message with its parts in a row."""
    return " · ".join(" ".join(line.split()) for line in str(error).splitlines())
