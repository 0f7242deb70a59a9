"""What a process holds in memory, its own pages and mapped files apart. Linux; zeros elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Resident(NamedTuple):
    """Megabytes: pages of its own, pages of mapped files (shared with the page cache), the peak."""

    own: float
    mapped: float
    peak: float


def resident() -> Resident:
    """Resident memory of this process now, and the largest it ever was."""
    status = Path("/proc/self/status")
    if not status.exists():
        return Resident(0.0, 0.0, 0.0)
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
    return Resident(*(float(fields[n].split()[0]) / 1024 for n in ("RssAnon", "RssFile", "VmHWM")))
