"""What goes on behind the main screen: grids built ahead, a recording followed, failures kept.

Threads never touch a widget: they post messages. What fails is shown in the status bar and in full
on a screen of its own; everything else stays usable.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from textual.message import Message
from textual.worker import Worker, WorkerState

from tui.job import Progress, StoppedError
from tui.trouble import DetailsScreen
from workbench.view.keymap import scroll_hint

if TYPE_CHECKING:
    from tui.app import Workbench
    from workbench.view.model import ViewModel

Follow = Callable[[Progress, Callable[["ViewModel"], None]], None]
"""Waits for a recording to grow and passes on a new view-model each time; ends when it does."""

WARMING: Final = "reading ahead"
FOLLOWING: Final = "following the recording"
QUIET_SECONDS: Final = 0.5
"""Reading ahead that is over sooner is not shown: it would only flicker."""


class Failure(NamedTuple):
    """What was being done, and what happened."""

    what: str
    error: BaseException


class Told(Message):
    """A thread came a step further."""


class Renewed(Message):
    """A recording has grown."""

    def __init__(self, model: ViewModel) -> None:
        super().__init__()
        self.model = model


class Background:
    """The threads of one main screen.

    Args:
        screen: The screen.
        follow: Follows a recording; None where there is nothing to follow.

    Attributes:
        share: Of the reading ahead that is done; None when nothing is being read.
        failures: What failed, latest last.
    """

    def __init__(self, screen: Workbench, follow: Follow | None) -> None:
        self._screen, self._follow = screen, follow
        self._progress = Progress()
        self._started = 0.0
        self.share: float | None = None
        self.failures: list[Failure] = []

    def start(self) -> None:
        """Starts the threads."""
        self._started = time.monotonic()
        self._run(WARMING, lambda: self._screen.model.warm(self._tell))
        if self._follow is not None:
            follow = self._follow
            self._run(FOLLOWING, lambda: follow(self._progress, self._renew))

    def aside(self, name: str, work: Callable[[], None], then: Callable[[], None]) -> None:
        """Does something that takes its time in a thread, then something on the screen.

        Args:
            name: What is being done, for the status bar if it fails.
            work: Done in the thread.
            then: Done on the screen once it has succeeded.
        """

        def run() -> None:
            work()
            self._screen.app.call_from_thread(then)

        self._run(name, run)

    def stop(self) -> None:
        """Lets the threads end at their next step, so that leaving does not wait for them."""
        self._progress.stop()

    def _run(self, name: str, work: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            except StoppedError:
                return

        self._screen.run_worker(run, name=name, thread=True, exit_on_error=False)

    def _tell(self, share: float) -> None:
        self._progress.check()
        if time.monotonic() - self._started >= QUIET_SECONDS:
            self.share = share
            self._screen.post_message(Told())

    def _renew(self, model: ViewModel) -> None:
        self._progress.check()
        self._screen.post_message(Renewed(model))

    def fail(self, what: str, error: BaseException) -> bool:
        """Keeps a failure, latest last; one that is known already only moves to the end.

        Returns:
            Whether the latest failure is another one than before.
        """
        latest = self._latest
        known = (what, type(error))
        self.failures = [f for f in self.failures if (f.what, type(f.error)) != known]
        self.failures.append(Failure(what, error))
        return latest != known

    @property
    def _latest(self) -> tuple[str, type[BaseException]] | None:
        return (self.failures[-1].what, type(self.failures[-1].error)) if self.failures else None

    def heard(self, worker: Worker[object], state: WorkerState) -> bool:
        """Takes note of a worker's change of state; True when the status bar has to change."""
        if state is WorkerState.ERROR and worker.error is not None:
            self.fail(worker.name, worker.error)
        if worker.name == WARMING and state in (WorkerState.SUCCESS, WorkerState.ERROR):
            self.share = None
        return state in (WorkerState.SUCCESS, WorkerState.ERROR)

    @property
    def note(self) -> str:
        """For the status bar: how far the reading ahead is; empty when it is done."""
        return "" if self.share is None else f"● {self.share:.0%}"

    @property
    def alarm(self) -> str:
        """For the status bar: what failed last; empty when nothing has."""
        key = self._screen.failures_key
        return f"{self.failures[-1].what} failed; {key} says why" if self.failures else ""

    def details(self) -> DetailsScreen | None:
        """The latest failure in full."""
        hint = scroll_hint(self._screen.keymap, "closes")
        return DetailsScreen(*self.failures[-1], hint) if self.failures else None
