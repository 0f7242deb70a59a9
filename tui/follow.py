"""Following recordings for the main screen: one capture, or two that are compared again and again.

Runs in a thread; looks at the manifests about once a second and does nothing while they rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from tui.job import Progress
from workbench.view.growing import GrowingCapture, Recorded
from workbench.view.model import ViewModel
from workbench.view.numbers import count
from workbench.view.oneside import OneSide

POLL_SECONDS: Final = 1.0
STALL_SECONDS: Final = (30, 60, 120, 300, 600, 1800, 3600, 7200, 86400)
"""Ages of the latest chunk that are said; below the first a recording counts as going on."""

Show = Callable[[ViewModel], None]


class Pulse:
    """How a recording is doing, in words, from its manifest and the age of that."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock

    def words(self, recorded: Recorded, changed: float) -> tuple[str, str]:
        """One word, and the facts: rows, chunks, whether it goes on.

        Args:
            recorded: What was read.
            changed: When the manifest was written, seconds since the epoch.
        """
        chunks = len(recorded.manifest.chunks)
        facts = [f"{count(recorded.tokens.height)} rows", f"chunk {count(chunks)}"]
        if recorded.manifest.complete:
            facts[-1] = f"{count(chunks)} chunk{'s' if chunks != 1 else ''}"
        if recorded.num_damaged:
            facts.append(f"{count(recorded.num_damaged)} damaged")
        if recorded.manifest.complete:
            return "complete", " · ".join(facts)
        status, going = self.going(changed)
        return status, " · ".join([*facts, going])

    def going(self, changed: float) -> tuple[str, str]:
        """Whether a recording that is not complete goes on: one word, and a few."""
        age = self._clock() - changed
        passed = [seconds for seconds in STALL_SECONDS if age >= seconds]
        if not passed:
            return "live", "still recording"
        return "stalled", f"no new chunk for {span(passed[-1])}; incomplete"


def span(seconds: int) -> str:
    """A time in its largest whole unit.

    >>> span(30), span(120), span(7200), span(86400)
    ('30 s', '2 min', '2 h', '1 d')
    """
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


class OneCapture:
    """Follows one capture."""

    def __init__(self, capture: GrowingCapture, pulse: Pulse | None = None) -> None:
        self.capture = capture
        self._pulse = pulse or Pulse()
        self._said: tuple[str, str] | None = None

    def look(self) -> OneSide | None:
        """The recording as it is now; None when nothing changed, nor what there is to say."""
        self.capture.poll()
        recorded = self.capture.recorded()
        if recorded is None or not recorded.chunks:
            return None
        words = self._pulse.words(recorded, self.capture.changed)
        if words == self._said:
            return None
        self._said = words
        return OneSide(recorded, status=words[0], words=words[1])

    def wait(self, progress: Progress) -> OneSide:
        """Waits for the first chunk."""
        while (source := self.look()) is None:
            there = self.capture.recorded() is not None
            what = "the first chunk" if there else "the capture to appear"
            progress(f"waiting for {what}", None)
            progress.wait(POLL_SECONDS)
        return source

    def follow(self, progress: Progress, show: Show) -> None:
        """Passes on every longer recording until it is complete."""
        while True:
            progress.wait(POLL_SECONDS)
            source = self.look()
            if source is not None:
                show(ViewModel(source))
                if source.recorded.manifest.complete:
                    return
