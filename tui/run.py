"""Opening the workbench: on a comparison, on two captures, or on captures that still grow.

The first frame is up before any table is read; what it opens comes from a job in a thread. Imports
nothing heavy at the top.
"""

from __future__ import annotations

import os
import sys

from tui.host import Host
from tui.job import Job, Made, StoppedError
from tui.opening import OpeningScreen
from tui.trouble import TroubleScreen
from workbench.address import Address
from workbench.errors import ExitCode
from workbench.view.link import Link


def run_tui(
    directory: str | os.PathLike[str], at: Address | None = None, *, link: Link | None = None
) -> int:
    """Runs the workbench on a comparison until it is left; prints the last address to stderr.

    Args:
        directory: A comparison's directory.
        at: Where to open; the first divergence when None.
        link: What to show of it.

    Returns:
        The exit code: 0, or 130 when opening was cancelled.

    Raises:
        CaptureError: The directory holds no readable comparison.
    """
    from tui.jobs import open_job

    return run_job(
        open_job(directory, at, link=link), come_back=f"kldive tui {os.fspath(directory)}"
    )


def run_job(job: Job, *, come_back: str, note: str = "") -> int:
    """Shows a job, then what it made, until that is left.

    Args:
        job: What to open.
        come_back: The command that opens the same again.
        note: What to say besides on leaving.

    Returns:
        The exit code: 0, or 130 when opening was cancelled.

    Raises:
        KldiveError: What ended the job; it was shown on the screen already.
    """
    opening = OpeningScreen(job, TroubleScreen)
    host = Host(opening)
    try:
        host.run()
    finally:
        opening.finish()
    if isinstance(opening.error, StoppedError):
        sys.stderr.write("cancelled\n")
        return int(ExitCode.INTERRUPTED)
    if opening.error is not None:
        raise opening.error
    if host.return_code:
        return int(host.return_code)
    _say_goodbye(opening.made, come_back, note)
    return int(ExitCode.EQUAL)


def _say_goodbye(made: Made | None, come_back: str, note: str) -> None:
    if made is not None and made.model.num_rows:
        place = f"--at '{made.model.address()}'"
        sys.stderr.write(f"come back with: {come_back} {place}\n")
    if note:
        sys.stderr.write(note + "\n")
