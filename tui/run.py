"""Opening the workbench on a comparison's directory."""

from __future__ import annotations

import os
import sys

from tui.app import KldiveApp
from workbench.address import Address
from workbench.comparison.result import open_comparison
from workbench.errors import ExitCode


def run_tui(directory: str | os.PathLike[str], at: Address | None = None) -> int:
    """Runs the workbench until it is left; prints the last address to stderr.

    Args:
        directory: A comparison's directory.
        at: Where to open; the first divergence when None.

    Returns:
        The exit code, 0.

    Raises:
        CaptureError: The directory holds no readable comparison.
    """
    app = KldiveApp(open_comparison(directory), at=at)
    app.run()
    if app.model.num_rows:
        place = app.model.address()
        sys.stderr.write(f"come back with: kldive tui {os.fspath(directory)} --at '{place}'\n")
    return int(ExitCode.EQUAL)
