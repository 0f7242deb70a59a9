"""A fault in drawing or in a handler stays where it happened, and the session goes on.

Every widget and screen of ours carries `Guarded`. What raises is told to the screen that keeps the
failures; a widget that could not be drawn says so in one plain line until a drawing succeeds.
Imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from inspect import isfunction, isgeneratorfunction
from textwrap import wrap
from typing import Any, Final, Protocol, TypeVar, cast, runtime_checkable

from rich.segment import Segment
from textual.actions import SkipAction
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.dom import DOMNode
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Static

from tui.styles import BASE

_HANDLERS: Final = ("on_", "action_", "watch_")
FAILURES_KEY: Final = Binding(
    "exclamation_mark", "failures", "What failed", id="failures.show", show=False
)
"""For screens that hide the status bar or take its keys."""

Method = TypeVar("Method", bound=Callable[..., None])
Draw = Callable[[Any, int], Strip]
Compose = Callable[[Any], ComposeResult]


@runtime_checkable
class Keeper(Protocol):
    """A screen that keeps failures and shows them."""

    @property
    def failures_key(self) -> str:
        """The key that shows the latest failure, as it is printed on a keyboard."""

    def failed(self, what: str, error: Exception) -> None:
        """Keeps a failure of something that was being done."""

    def show_failures(self) -> None:
        """Shows the latest failure in full."""


class Guarded:
    """Mixin, last among the bases: guards `render_line`, `compose` and every handler of a class.

    Handlers are methods that Textual calls by name: `on_…`, `action_…` and `watch_…`.
    """

    _kinds_told: frozenset[type[Exception]] = frozenset()
    """Kinds of errors in drawing that were told already."""
    _undrawn_lines: frozenset[int] = frozenset()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, member in list(vars(cls).items()):
            if not isfunction(member):
                continue
            if name == "render_line":
                setattr(cls, name, _drawing(member))
            elif name == "compose" and isgeneratorfunction(member):
                setattr(cls, name, _composing(member))
            elif name.startswith(_HANDLERS):
                setattr(cls, name, guarded(member))

    def action_failures(self) -> None:
        """Shows the latest failure in full."""
        keeper = _keeper(_node(self).app)
        if keeper is not None:
            keeper.show_failures()

    def undrawn(self, error: Exception) -> str:
        """The line to show in place of what could not be drawn; tells a kind of error once."""
        name, keeper = name_of(self), _keeper(_node(self).app)
        if keeper is None:
            return f"{name}: could not be drawn: {type(error).__name__}: {error}"
        if type(error) not in self._kinds_told:
            self._kinds_told |= {type(error)}
            keeper.failed(f"drawing the {name}", error)
        return f"{name}: could not be drawn, press {keeper.failures_key} for details"

    def _instead_of(self, y: int, error: Exception) -> Strip:
        """The words in place of line y, from the topmost of the lines that could not be drawn."""
        self._undrawn_lines |= {y}
        width = cast("Widget", self).size.width
        words = wrap(self.undrawn(error), max(1, width))
        place = sorted(self._undrawn_lines).index(y)
        text = words[place] if place < len(words) else ""
        return Strip([Segment(text, BASE)]).adjust_cell_length(width, BASE)


def _drawing(draw: Draw) -> Draw:
    @wraps(draw)
    def render_line(self: Guarded, y: int) -> Strip:
        try:
            strip = draw(self, y)
        except Exception as error:  # noqa: BLE001  (told; the session goes on)
            return self._instead_of(y, error)
        if y in self._undrawn_lines:
            # This line can be drawn again, so perhaps the others, which nobody asks for.
            self._undrawn_lines = frozenset()
            widget = cast("Widget", self)
            widget.call_later(widget.refresh)
        return strip

    return render_line


def _composing(compose: Compose) -> Compose:
    @wraps(compose)
    def composed(self: Guarded) -> Iterator[Widget]:
        try:
            yield from compose(self)
        except Exception as error:  # noqa: BLE001  (told; the session goes on)
            yield Static(self.undrawn(error), markup=False)

    return composed


def guarded(method: Method) -> Method:
    """A method of a `Guarded` class that tells what it raises; it gives nothing back then."""
    words = method.__name__.partition("_")[2] if method.__name__.startswith(_HANDLERS) else ""
    words = (words or method.__name__).strip("_").replace("_", " ")

    @wraps(method)
    def kept(self: Guarded, *args: Any) -> None:
        try:
            method(self, *args)
        except SkipAction:
            raise
        except Exception as error:
            keeper = _keeper(_node(self).app)
            if keeper is None:
                # Nothing is open yet that could go on.
                raise
            keeper.failed(f"{name_of(self)}: {words}", error)

    return cast("Method", kept)


def name_of(node: object) -> str:
    """What a widget or screen is called: its id, else its class.

    >>> class DrillScreen: ...
    >>> name_of(DrillScreen())
    'drill'
    """
    name = getattr(node, "id", None) or type(node).__name__.removesuffix("Screen").lower()
    return str(name).replace("-", " ")


def _keeper(app: App[Any]) -> Keeper | None:
    return next((s for s in reversed(app.screen_stack) if isinstance(s, Keeper)), None)


def _node(guarded_one: Guarded) -> DOMNode:
    return cast("DOMNode", guarded_one)
