"""The terminal workbench: puts the widgets together, turns keys into actions, shows the new state.

A composition root and nothing more. What an action does is in workbench.view; how something looks
is in its widget.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.events import Resize
from textual.geometry import Size
from textual.screen import Screen
from textual.widgets import Static
from textual.worker import Worker

from tui.background import Background, Follow, Renewed, Told
from tui.commands import ActionProvider
from tui.dialogs import DIALOGS
from tui.drill import DrillScreen
from tui.footer import Footer
from tui.grid import Grid
from tui.guarded import Guarded, guarded
from tui.help import HelpScreen
from tui.host import Host
from tui.inspector import Inspector
from tui.layout import SMALL, layout_for
from tui.overview import Overview
from tui.rail import FULL_WIDTH, Rail
from tui.ruler import Ruler
from tui.status import Status
from tui.strip import TokenStrip
from tui.swaps import SwapScreen
from workbench.address import Address
from workbench.view.actions import ACTION_BY_ID, ACTIONS, key_name
from workbench.view.experiments import experiments
from workbench.view.keymap import DEFAULT_KEYS, Keymap
from workbench.view.lenses import LENSES
from workbench.view.model import ViewModel
from workbench.view.source import Source
from workbench.view.state import Cell, ViewState
from workbench.view.walk import Stop


class Workbench(Screen[None], Guarded):
    """The main screen, over one view-model.

    Args:
        model: What to show.
        keymap: The keys of every action.
        follow: Follows a recording that may grow; None where there is nothing to follow.
    """

    COMMANDS: ClassVar = {ActionProvider}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(",".join(action.keys), f"perform('{action.id}')", action.title, id=action.id)
        for action in ACTIONS
    ]

    def __init__(
        self, model: ViewModel, keymap: Keymap = DEFAULT_KEYS, *, follow: Follow | None = None
    ) -> None:
        super().__init__()
        self.model = model
        self.keymap = keymap
        self.background = Background(self, follow)
        self._own: dict[str, Callable[[], object]] = {
            **{name: partial(ask, self) for name, ask in DIALOGS.items()},
            "drill.show": self._drill,
            "failures.show": self.show_failures,
            "help.show": lambda: self.app.push_screen(
                HelpScreen(LENSES[self.model.state.lens], self.model.legend(), self.keymap)
            ),
            "palette.show": self._show_palette,
            "quit": self._quit,
            "swaps.show": self._show_swaps,
            "theme.toggle": self._toggle_theme,
        }

    def compose(self) -> ComposeResult:
        model = self.model
        self.grid = Grid(model)
        self.rail = Rail(model, self.grid)
        self.ruler = Ruler(model, self.grid)
        self.overview = Overview(model, self.grid)
        self.status = Status(model, self.background)
        self.strip = TokenStrip(model)
        self.inspector = Inspector(model)
        yield self.status
        yield self.overview
        with Container(id="body"):
            with Container(id="table"):
                yield self.rail
                with Container(id="canvas"):
                    yield self.ruler
                    yield self.grid
            yield self.inspector
        yield self.strip
        yield Footer(self.keymap)
        yield Static(SMALL, id="small", markup=False)

    def on_mount(self) -> None:
        # Textual works a keymap out anew at every key press: it gets what a person changed alone.
        changed = {n: keys for n, keys in self.keymap.items() if keys != DEFAULT_KEYS[n]}
        self.app.set_keymap({name: ",".join(keys) for name, keys in changed.items()})
        # The picture first: reading ahead takes the processor from it.
        self.call_after_refresh(self._begin)

    @guarded
    def _begin(self) -> None:
        self.background.start()

    def on_unmount(self) -> None:
        self.background.stop()

    def on_told(self) -> None:
        self.status.rebuild()
        # The drill covers the status bar and says what failed itself.
        if isinstance(self.app.screen, DrillScreen):
            self.app.screen.head.rebuild()

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        if self.background.heard(event.worker, event.state):
            self.on_told()

    def on_renewed(self, event: Renewed) -> None:
        """Shows a recording that has grown; the cursor stays on its token, or at the end."""
        self.model.take(event.model)
        self.grid.relayout()
        self.overview.forget()
        for panel in (self.status, self.overview, self.strip, self.inspector):
            panel.rebuild()
        self.rail.refresh()

    def on_resize(self, event: Resize) -> None:
        self._lay_out(event.size)

    def on_screen_resume(self) -> None:
        # While another screen was on top, this one was not told of a new size.
        self._lay_out(self.app.size)

    def _lay_out(self, size: Size) -> None:
        layout = layout_for(size.width, size.height, self.model.num_layers)
        for name in ("drawer", "compact", "small"):
            self.set_class(getattr(layout, name), f"-{name}")
        self.grid.fit_layers = layout.compact
        self.inspector.styles.height = layout.drawer_height if layout.drawer else "1fr"
        self.rail.styles.width = self.rail.narrow_width if layout.compact else FULL_WIDTH

    def action_perform(self, action_id: str) -> None:
        """Bound to every key of the table."""
        self.perform(action_id)

    def perform(self, action_id: str) -> None:
        """Carries out an action by id and shows what changed."""
        action = ACTION_BY_ID[action_id]
        if action.run is None:
            self.attempt(action.title, self._own[action_id])
        else:
            self.attempt(action.title, lambda: self._act(action_id))

    def _act(self, action_id: str) -> None:
        before = self.model.act(action_id)
        # What cannot be read must be known before it is drawn.
        self.model.codes()
        self.show(before)

    def attempt(self, what: str, work: Callable[[], object]) -> None:
        """Does something that a person asked for; whatever it raises is kept, undone and said.

        Args:
            what: What is being done.
            work: Does it.
        """
        before = self.model.state
        try:
            work()
        except Exception as error:  # noqa: BLE001  (kept for the person; the session goes on)
            self.model.state = before
            self.failed(what, error)

    @property
    def failures_key(self) -> str:
        """The key that shows the latest failure, as it is printed on a keyboard."""
        return key_name(self.keymap["failures.show"][0])

    def failed(self, what: str, error: Exception) -> None:
        """Keeps a failure; the status bar says so as soon as it can be drawn."""
        if self.background.fail(what, error):
            self.post_message(Told())

    @guarded
    def show(self, before: ViewState) -> None:
        """Draws the model's state, given the one that is on the screen."""
        after = self.model.state
        if before == after:
            return
        self.inspector.set_class(not after.inspector, "-closed")
        self.grid.show(before)
        self.rail.show(before)
        self._follow_grid()
        for panel in (self.status, self.overview, self.strip, self.inspector):
            panel.rebuild()

    def _follow_grid(self) -> None:
        self.ruler.follow()
        self.rail.follow()

    def on_grid_moved(self) -> None:
        self._follow_grid()
        self.overview.rebuild()

    def on_grid_picked(self, event: Grid.Picked) -> None:
        self.show(self.model.move_to(event.cell))

    def on_grid_dragged(self, event: Grid.Dragged) -> None:
        self.show(self.model.select(event.corner, event.cell))

    def on_overview_picked(self, event: Overview.Picked) -> None:
        self.show(self.model.move_to(Cell(self.model.state.layer, event.row)))

    def _drill(self) -> None:
        if self.model.num_rows:
            drill = DrillScreen(self.model, self.show, self.keymap, lambda: self.background.alarm)
            self.app.push_screen(drill, self._come_back)

    @guarded
    def _come_back(self, stop: Stop | None) -> None:
        if stop is not None:
            self.show(self.model.move_to(stop.cell, stop.site or self.model.state.site))

    def _show_swaps(self) -> None:
        self.app.push_screen(
            SwapScreen(experiments(self.model.source), self.model.attribute_command, self.keymap)
        )

    def show_failures(self) -> None:
        """The latest failure in full."""
        details = self.background.details()
        if details is None:
            self.show(self.model.say("nothing has failed"))
        else:
            self.app.push_screen(details)

    def _show_palette(self) -> None:
        self.app.action_command_palette()

    def _toggle_theme(self) -> None:
        if isinstance(self.app, Host):
            self.app.toggle_light()
            words = "light" if self.app.light else "dark"
            self.show(self.model.say(f"{words} colours; T switches back"))

    def _quit(self) -> None:
        self.app.exit()


class KldiveApp(Host):
    """The workbench over a comparison that is open already.

    Args:
        comparison: An open comparison.
        at: Where to open; the first divergence when not given.
    """

    def __init__(self, comparison: Source, *, at: Address | None = None) -> None:
        self.workbench = Workbench(ViewModel(comparison, at=at))
        super().__init__(self.workbench)

    @property
    def model(self) -> ViewModel:
        """What is shown."""
        return self.workbench.model

    @property
    def grid(self) -> Grid:
        """The grid on the main screen."""
        return self.workbench.grid

    @property
    def inspector(self) -> Inspector:
        """The inspector on the main screen."""
        return self.workbench.inspector

    def perform(self, action_id: str) -> None:
        """Carries out an action by id and shows what changed."""
        self.workbench.perform(action_id)

    def show(self, before: ViewState) -> None:
        """Draws the model's state, given the one that is on the screen."""
        self.workbench.show(before)
