"""The first frame: what is being opened and how far that is, drawn before any table is read.

Imports nothing heavy. The work runs in a thread; when it is done the screen it made takes over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ClassVar, Final

from rich.segment import Segment
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import Screen

from tui import styles
from tui.guarded import Guarded
from tui.job import Job, Made, Offer, Step, StoppedError
from tui.lines import Lines, joined
from tui.subject import SideName, Subject
from workbench.view.rows import cut, fit

_BAR_WIDTH: Final = 48
_LABEL_WIDTH: Final = 11
_POLL_SECONDS: Final = 0.1
_CHIPS: Final = {"A": styles.CHIP_A, "B": styles.CHIP_B}


class Ended(Message):
    """The work is over, well or not."""


class OpeningScreen(Screen[None], Guarded):
    """Shows a job until it is done, and then what the job made.

    Args:
        job: What to do.
        explain: Gives the screen for an error that ended the job and for what can be done instead,
            in words or ""; the screen's result is whether to do that.

    Attributes:
        made: What the job gave; None before.
        error: What ended the job, if anything did.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,ctrl+q", "cancel", "Cancel")]

    def __init__(self, job: Job, explain: Callable[[Exception, str], Screen[bool]]) -> None:
        super().__init__()
        self.job = job
        self.made: Made | None = None
        self.error: Exception | None = None
        self._explain = explain
        self._thread = self._new_thread()

    def _new_thread(self) -> threading.Thread:
        return threading.Thread(target=self._work, name="opening", daemon=True)

    def compose(self) -> ComposeResult:
        self.page = OpeningPage(self.job)
        yield self.page

    def on_mount(self) -> None:
        # The frame first: importing the readers takes longer than drawing it.
        self.call_after_refresh(self._thread.start)
        self._timer = self.set_interval(_POLL_SECONDS, self.page.rebuild)

    def on_unmount(self) -> None:
        self.job.progress.stop()

    def _work(self) -> None:
        try:
            self.made = self.job.work(self.job.progress)
        except Exception as error:  # noqa: BLE001  (shown on a screen of its own)
            self.error = error
        self.post_message(Ended())

    def on_ended(self) -> None:
        """Hands over to what the job made, or to what explains why there is nothing."""
        self._timer.pause()
        if isinstance(self.error, StoppedError):
            return
        # Pushed and not switched to: the first screen of an application cannot be switched away.
        if self.error is not None:
            offer = self.job.otherwise(self.error)
            explained = self._explain(self.error, "" if offer is None else offer.does)
            self.app.push_screen(explained, lambda yes: self._go_on(offer) if yes else None)
        elif self.made is not None:
            self.app.push_screen(self.made.screen())

    def _go_on(self, offer: Offer | None) -> None:
        if offer is None:
            return
        self.error, self.job, self.page.job = None, offer.job, offer.job
        self._thread = self._new_thread()
        self._thread.start()
        self._timer.resume()
        self.page.rebuild()

    def action_cancel(self) -> None:
        """Stops the work and leaves."""
        self.error = self.error or StoppedError()
        self.job.progress.stop()
        self.app.exit()

    def finish(self) -> None:
        """Waits until the work has stopped, so that nothing of it is left behind."""
        self.job.progress.stop()
        if self._thread.is_alive():
            self._thread.join()


class OpeningPage(Lines):
    """The frame."""

    DEFAULT_CSS = "OpeningPage { height: 1fr; }"

    def __init__(self, job: Job) -> None:
        super().__init__("opening")
        self.job = job

    def lines(self, width: int, height: int) -> list[list[Segment]]:
        subject = self.job.subject
        block = [
            [Segment(cut(subject.title, width - 4), styles.BOLD)],
            [],
            progress_line(self.job.progress.step, width - 4),
            [],
            *(_fact(label, text, width - 4) for label, text in subject.facts),
        ]
        above = max(1, (height - 2 - len(block)) // 2)
        indent = Segment(" " * max(2, (width - 4 - _widest(block)) // 2), styles.BASE)
        middle = [[indent, *line] for line in block][: max(0, height - 2 - above)]
        below = height - 2 - above - len(middle)
        return [_sides(subject, width), *[[]] * above, *middle, *[[]] * below, _keys(width)]


def progress_line(step: Step, width: int) -> list[Segment]:
    """A bar, the percentage and what is being done."""
    size = max(8, min(_BAR_WIDTH, width - 30))
    done = round(size * min(max(step.done or 0.0, 0.0), 1.0))
    share = "    ·  " if step.done is None else f" {step.done:>4.0%}  "
    return [
        Segment("━" * done, styles.SIDE_A),
        Segment("━" * (size - done), styles.RULE),
        Segment(share, styles.BASE),
        Segment(cut(step.name, max(0, width - size - 7)), styles.MUTED),
    ]


def _sides(subject: Subject, width: int) -> list[Segment]:
    parts = [_side(side) for side in subject.sides] or [[Segment(" kldive", styles.BAR_BOLD)]]
    line = joined(parts, Segment("  ", styles.BAR))
    used = sum(part.cell_length for part in line)
    return [*line, Segment(" " * max(0, width - used), styles.BAR)]


def _side(side: SideName) -> list[Segment]:
    return [
        Segment(f" {side.letter} {side.path} ", _CHIPS[side.letter]),
        Segment(f" {side.engine}", styles.BAR_MUTED),
    ]


def _fact(label: str, text: str, width: int) -> list[Segment]:
    return [
        Segment(fit(label, _LABEL_WIDTH), styles.MUTED),
        Segment(cut(text, max(1, min(width, 90) - _LABEL_WIDTH)), styles.BASE),
    ]


def _widest(block: list[list[Segment]]) -> int:
    # The name of a step comes and goes; the block must not move with it.
    steady = block[:2] + block[3:]
    return max(_BAR_WIDTH + 20, *(sum(part.cell_length for part in line) for line in steady))


def _keys(width: int) -> list[Segment]:
    keys = [Segment(" Esc ", styles.KEY), Segment("cancel", styles.BAR_MUTED)]
    return [*keys, Segment(" " * max(0, width - 11), styles.BAR)]
