"""Drives the real workbench without a terminal and measures what it writes, when, and at what cost.

The application believes that it has a terminal: every frame is rendered to the bytes a terminal
would get. Keys go in as a terminal's driver sends them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from textual import events
from textual.app import App
from textual.drivers.headless_driver import HeadlessDriver
from textual.keys import _character_to_key

QUIET: Final = 0.04
"""Seconds without a byte after which a frame counts as ended: two periods of Textual's timer."""
PATIENCE: Final = 0.4
"""Seconds after which a key counts as one that draws nothing."""
_RUN: Final = "_run"
"""The method of a loop's handle that carries out its callback."""


@dataclass(slots=True)
class Written:
    """What reached the terminal since it was last asked.

    Attributes:
        at: Clock of the last write.
        num_bytes: Bytes since `restart`.
    """

    at: float = 0.0
    num_bytes: int = 0
    told: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, data: str) -> None:
        """Notes one write; those that only frame an update (synchronised output) hold nothing."""
        if "\x1b[?2026" in data and len(data) < 12:
            return
        self.at = time.perf_counter()
        self.num_bytes += len(data.encode())
        self.told.set()

    def restart(self) -> None:
        """Forgets what was written so far."""
        self.num_bytes = 0
        self.told.clear()


class Frame(NamedTuple):
    """One key's effect.

    Attributes:
        seconds: From the key to the last byte it led to; None when nothing was written.
        num_bytes: Written by it.
        longest: Processor time of the longest stretch in which the loop could do nothing else, s.
        busy: Processor time of the loop's thread for all of it, seconds.
    """

    seconds: float | None
    num_bytes: int
    longest: float
    busy: float


def recording_driver(written: Written) -> type[HeadlessDriver]:
    """A driver class whose writes go to `written`."""

    class Recording(HeadlessDriver):
        @property
        def is_headless(self) -> bool:
            return False

        def write(self, data: str) -> None:
            written.add(data)

    return Recording


class Held:
    """Processor time of every callback of the event loop, whoever else uses the machine."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._plain: Callable[[Any], Any] = getattr(asyncio.events.Handle, _RUN)

    def __enter__(self) -> Self:
        plain, held = self._plain, self

        def timed(handle: Any) -> Any:
            started = time.thread_time()
            try:
                return plain(handle)
            finally:
                held.longest = max(held.longest, time.thread_time() - started)

        setattr(asyncio.events.Handle, _RUN, timed)
        return self

    def __exit__(self, *_: object) -> None:
        setattr(asyncio.events.Handle, _RUN, self._plain)


class Session:
    """A running workbench that takes keys."""

    def __init__(self, app: App[Any], written: Written, held: Held) -> None:
        self.app, self.written, self.held = app, written, held

    async def settle(self) -> None:
        """Waits until workers have ended and nothing is written any more."""
        # The screen starts its threads some time after the first byte.
        for _ in range(2):
            await self.quiet()
            waits = (worker.wait() for worker in self.app.workers)
            await asyncio.gather(*waits, return_exceptions=True)
        await self.quiet()

    async def quiet(self) -> None:
        """Waits until nothing was written for a while."""
        while True:
            self.written.told.clear()
            try:
                await asyncio.wait_for(self.written.told.wait(), QUIET)
            except TimeoutError:
                return

    async def press(self, key: str) -> Frame:
        """Sends a key and waits for the end of its frame."""
        self.written.restart()
        self.held.longest = 0.0
        started, busy = time.perf_counter(), time.thread_time()
        character = key if len(key) == 1 else None
        event = events.Key(_character_to_key(key) if character else key, character)
        event.set_sender(self.app)
        self.app.post_message(event)
        try:
            await asyncio.wait_for(self.written.told.wait(), PATIENCE)
        except TimeoutError:
            return Frame(None, 0, self.held.longest, time.thread_time() - busy)
        await self.quiet()
        return Frame(
            self.written.at - started,
            self.written.num_bytes,
            self.held.longest,
            time.thread_time() - busy,
        )


async def drive(directory: Path, size: tuple[int, int], script: Callable[[Session], Any]) -> Any:
    """Opens a comparison in a workbench of this size and lets a script press its keys."""
    from tui.app import KldiveApp
    from workbench.comparison.result import open_comparison

    written = Written()
    app = KldiveApp(open_comparison(directory))
    app.driver_class = recording_driver(written)
    with Held() as held:
        running = asyncio.create_task(app.run_async(size=size, mouse=False))
        await asyncio.wait_for(written.told.wait(), 60)
        session = Session(app, written, held)
        await session.settle()
        found = await script(session)
        app.exit()
        await running
    return found
