"""Which browser the tests drive: the system's Chromium, else the one that Playwright brought."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

SYSTEM_NAMES = ("chromium", "chromium-browser", "google-chrome")
MISSING = "no Chromium: apt install chromium, or python -m playwright install chromium"
# A widget that asks for anything out there fails here as it would on a cluster without a network.
NO_NETWORK = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1"


@cache
def chromium() -> str | None:
    """The path of a Chromium that starts, or None."""
    found = (path for name in SYSTEM_NAMES if (path := shutil.which(name)))
    return next(filter(starts, found), None) or own_chromium()


def own_chromium() -> str | None:
    """Playwright's own, where it was installed."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        path = driver.chromium.executable_path
    return path if Path(path).exists() else None


def starts(path: str) -> bool:
    """Whether it is a browser: some systems ship a script that only says how to get one."""
    try:
        said = subprocess.run([path, "--version"], capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return said.returncode == 0


def launch_arguments() -> list[str]:
    """What Chromium is started with: no network, and no sandbox where root may not have one."""
    return [NO_NETWORK, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
