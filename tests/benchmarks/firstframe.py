"""Starts the workbench in a pseudo terminal and times what appears on it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from bisect import bisect_left
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

_CONTROL: Final = re.compile(
    r"\x1b\[[0-9;:?<>=!]*[ -/]*[@-~]|\x1b[P\]_^].*?(?:\x1b\\|\x07)|\x1b[@-Z=>\\]|[\x00-\x20]",
    re.DOTALL,
)
_GIVE_UP_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 0.05


class Opening(NamedTuple):
    """Seconds from the start of the process to the first visible character, and to a text."""

    first: float
    complete: float


def visible(output: str) -> str:
    r"""What a terminal would show of some output, without its blanks.

    >>> visible("\x1b[?1049h\x1b[2J\x1b[1;1H \x1b[38;2;1;2;3mall 4\x1b[0m")
    'all4'
    """
    return _CONTROL.sub("", output)


def time_opening(
    command: list[str], *, size: tuple[int, int], until: str, environment: dict[str, str]
) -> Opening:
    """Runs a command in a pseudo terminal of this size until a text appears, then ends it.

    Args:
        command: The command.
        size: Columns and lines.
        until: Text without blanks.
        environment: Of the process.

    Raises:
        TimeoutError: The text did not appear within a minute.
    """
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    started = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment,
        start_new_session=True,
    )
    os.close(slave)
    try:
        return _watch(master, started, until)
    finally:
        process.terminate()
        process.wait()
        os.close(master)


def _watch(master: int, started: float, until: str) -> Opening:
    """Reads as fast as it can and judges in the pauses, so that the process never waits for us."""
    read: list[tuple[float, bytes]] = []
    while time.perf_counter() - started < _GIVE_UP_SECONDS:
        if select.select([master], [], [], _PAUSE_SECONDS)[0]:
            read.append((time.perf_counter() - started, os.read(master, 1 << 16)))
        elif read and until in _shown(read):
            places = range(1, len(read) + 1)
            first = next(place for place in places if _shown(read[:place]))
            complete = bisect_left(places, True, key=lambda place: until in _shown(read[:place]))
            return Opening(read[first - 1][0], read[complete][0])
    raise TimeoutError(f"{until!r} did not appear within {_GIVE_UP_SECONDS:.0f} s")


def _shown(read: list[tuple[float, bytes]]) -> str:
    return visible(b"".join(part for _, part in read).decode("utf-8", "ignore"))


def forget(paths: Iterable[Path]) -> None:
    """Asks the kernel to drop the pages of files from its cache, as after a fresh start."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
