"""Errors as pages: one that ends the session, one that is looked at and left again.

An error written for people is shown as it is. Anything else is a fault of kldive, and its traceback
is what a report of it needs. Imports nothing heavy.
"""

from __future__ import annotations

import traceback
from typing import ClassVar, Final

from rich.console import Group, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import Static

from tui.guarded import Guarded
from tui.misaligned import misalignment
from tui.scrolling import SCROLL, Scrolling
from workbench.errors import AlignmentError, KldiveError
from workbench.view import palette

_TITLE: Final = Style(color=palette.RAMP[6], bold=True)
_MUTED: Final = Style(color=palette.MUTED)


class ScrollingPage(VerticalScroll, Guarded, can_focus=False):
    """One long text with a title in its border.

    Args:
        content: The text.
        title, hint: For the border.
    """

    DEFAULT_CSS = """
    ScrollingPage {
        width: 100%; height: 100%; padding: 0 2; scrollbar-size-vertical: 1;
        background: #10131a; color: #e6e8ec; border: solid #39414f;
        border-title-color: #e6e8ec; border-subtitle-color: #98a1b0;
    }
    """

    def __init__(self, content: RenderableType, *, title: str, hint: str) -> None:
        super().__init__(Static(content), classes="page")
        self.border_title, self.border_subtitle = title, hint


class TroubleScreen(Screen[bool], Scrolling):
    """Nothing could be opened: why, and what to do. Leaves the application, or closes with True.

    Args:
        error: What happened.
        offer: What can be done instead, such as "shows the rest"; "" when there is nothing.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,ctrl+q", "leave", "Leave"),
        Binding("enter", "accept", "Go on"),
        *SCROLL,
    ]

    def __init__(self, error: Exception, offer: str = "") -> None:
        super().__init__()
        self.error, self.offer = error, offer

    def compose(self) -> ComposeResult:
        title = "not aligned" if isinstance(self.error, AlignmentError) else "cannot be opened"
        offer = f"enter {self.offer} · " if self.offer else ""
        hint = f"{offer}q leaves · j k scroll"
        yield ScrollingPage(explanation(self.error), title=title, hint=hint)

    def action_accept(self) -> None:
        """Does what is offered; ends the application where nothing is."""
        if self.offer:
            self.dismiss(True)
        else:
            self.app.exit()

    def action_leave(self) -> None:
        """Ends the application."""
        self.app.exit()


class DetailsScreen(ModalScreen[bool], Scrolling):
    """What went wrong in the background, in full.

    Args:
        what: What was being done.
        error: What happened.
        hint: What keys do.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Close", id="back"),
        Binding("q", "dismiss", "Close", id="quit"),
        Binding("exclamation_mark", "dismiss", "Close", id="failures.show"),
        *SCROLL,
    ]

    def __init__(self, what: str, error: BaseException, hint: str = "esc closes") -> None:
        super().__init__()
        self.hint = hint
        self.what, self.error = what, error

    def compose(self) -> ComposeResult:
        content = explanation(self.error)
        yield ScrollingPage(content, title=f"failed: {self.what}", hint=self.hint)


def explanation(error: BaseException) -> RenderableType:
    """An error for people."""
    if isinstance(error, AlignmentError) and error.mismatch is not None:
        return misalignment(error, error.mismatch)
    if isinstance(error, KldiveError):
        return Group(Text(), Text(error.what, _TITLE), Text(), _facts(error))
    return Group(
        Text(),
        Text(f"{type(error).__name__}: {error}", _TITLE),
        Text(),
        Text("This is a fault of kldive and not of your data; what a report of it needs:", _MUTED),
        Text(),
        Text("".join(traceback.format_exception(error)).rstrip()),
    )


def _facts(error: KldiveError) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style=_MUTED, no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in (
        ("where", error.where),
        ("expected", error.expected),
        ("got", error.got),
        ("do", error.do),
    ):
        if text:
            table.add_row(label, Text(text, Style(bold=label == "do")))
    return table
