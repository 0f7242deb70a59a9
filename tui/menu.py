"""The menu of classes, with the number of cells of each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from workbench.names import DEFAULT_CLASS_ORDER, DivergenceClass
from workbench.view.classes import CLASS_HELP, CLASS_TITLES
from workbench.view.numbers import count


class ClassMenu(ModalScreen[DivergenceClass | None]):
    """Asks what counts as a divergence; gives the class, or None when left.

    Args:
        counts: Cells of each class.
        current: The class that is looked for now.
        unknown: Classes that cannot be counted yet, and why.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,c", "dismiss(None)", "Close"),
        Binding("j", "cursor_down", "Down", show=False),
        Binding("k", "cursor_up", "Up", show=False),
    ]

    def __init__(
        self,
        counts: dict[DivergenceClass, int],
        current: DivergenceClass,
        unknown: Mapping[DivergenceClass, str] = MappingProxyType({}),
    ) -> None:
        super().__init__()
        self.counts = counts
        self.current = current
        self.unknown = unknown

    def compose(self) -> ComposeResult:
        options = [
            Option(self._prompt(klass), id=klass, disabled=not self.counts[klass])
            for klass in DEFAULT_CLASS_ORDER
        ]
        menu = OptionList(*options, id="classes", markup=False)
        menu.border_title = "what counts as a divergence"
        menu.border_subtitle = "enter chooses · esc leaves"
        menu.highlighted = DEFAULT_CLASS_ORDER.index(self.current)
        yield menu

    def _prompt(self, klass: DivergenceClass) -> str:
        mark = "▶" if klass == self.current else " "
        number = count(self.counts[klass]) if self.counts[klass] else "none"
        number = "–" if klass in self.unknown else number
        about = self.unknown.get(klass, CLASS_HELP[klass])
        return f"{mark} {CLASS_TITLES[klass]:<17}{number:>9}  {about}"

    def action_cursor_down(self) -> None:
        self.query_one(OptionList).action_cursor_down()

    def action_cursor_up(self) -> None:
        self.query_one(OptionList).action_cursor_up()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        chosen = next((k for k in DEFAULT_CLASS_ORDER if k == event.option.id), None)
        self.dismiss(chosen)
