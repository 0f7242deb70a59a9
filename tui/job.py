"""Work done in a thread before the workbench can be shown: how far it is, and how to stop it.

Stdlib only: the first frame waits for nothing else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from textual.screen import Screen

    from tui.subject import Subject
    from workbench.view.model import ViewModel


class StoppedError(Exception):
    """Someone stopped the work; nothing of it may stay behind."""


class Step(NamedTuple):
    """What is being done, and the share of the whole that is done, 0 to 1; None while waiting."""

    name: str
    done: float | None


class Made(NamedTuple):
    """What the work gives: a view-model, and what makes its screen."""

    model: ViewModel
    screen: Callable[[], Screen[None]]


class Progress:
    """Passed to the work, which says how far it is; read by the screen, which may stop it."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self.step = Step("starting", 0.0)

    def __call__(self, name: str, done: float | None) -> None:
        """Says what comes next, with `done` of the whole behind it; None: nobody knows how long.

        Raises:
            StoppedError: Someone stopped the work.
        """
        self.check()
        self.step = Step(name, done)

    def check(self) -> None:
        """Raises StoppedError when someone stopped the work."""
        if self._stop.is_set():
            raise StoppedError

    def stop(self) -> None:
        """Makes the work end at its next step."""
        self._stop.set()

    def wait(self, seconds: float) -> None:
        """Sleeps, and wakes up at once to raise StoppedError when someone stops the work."""
        self._stop.wait(seconds)
        self.check()


class Offer(NamedTuple):
    """What can be done when a job has failed: in words, such as "shows the rest", and as a job."""

    does: str
    job: Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Opening something.

    Attributes:
        subject: What is known of it without reading any table.
        work: Runs in a thread; gives what takes over.
        progress: Of the work.
        otherwise: What can be done instead after an error; None when nothing can.
    """

    subject: Subject
    work: Callable[[Progress], Made]
    progress: Progress = field(default_factory=Progress)
    otherwise: Callable[[Exception], Offer | None] = lambda _error: None
