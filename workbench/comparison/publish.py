"""Writing a comparison directory whole or not at all.

Everything is written into a hidden directory beside the target, which is then renamed. Nothing but
an earlier comparison is ever replaced.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from workbench.comparison.newer import FORMAT_VERSION, newer_version
from workbench.comparison.result import (
    ATTRIBUTION_NAME,
    FORMAT_NAME,
    LAYERS_NAME,
    LOCAL_NAME,
    ROWS_NAME,
    SUMMARY_NAME,
)
from workbench.errors import CaptureError
from workbench.store.newer import unwritable_newer

_OWN_FILES = frozenset({SUMMARY_NAME, ROWS_NAME, LAYERS_NAME, LOCAL_NAME, ATTRIBUTION_NAME})


def check_target(out: Path) -> None:
    """Refuses a target that holds anything but an earlier comparison, of no newer format.

    Raises:
        CaptureError: The target is a file, a directory with other files in it, or a comparison
            that a newer kldive wrote.
    """
    if not out.exists():
        return
    names = {p.name for p in out.iterdir()} if out.is_dir() else {out.name}
    if out.is_dir() and not names:
        return
    if out.is_dir() and names <= _OWN_FILES and (earlier := _earlier(out)) is not None:
        if (version := newer_version(earlier)) is not None:
            do = "update kldive, or choose another directory"
            raise unwritable_newer(out, version, reads=FORMAT_VERSION, do=do)
        return
    raise CaptureError(
        "will not write a comparison over something else",
        where=out,
        expected="a new or empty directory, or an earlier comparison",
        got=f"a directory with {', '.join(sorted(names)[:4])}" if out.is_dir() else "a file",
        do="choose another directory",
    )


def _earlier(out: Path) -> dict[str, Any] | None:
    try:
        body = json.loads((out / SUMMARY_NAME).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) and body.get("format") == FORMAT_NAME else None


@contextmanager
def staged(out: Path) -> Iterator[Path]:
    """A directory to write into, which becomes `out` on success and vanishes on any failure.

    Raises:
        CaptureError: The target may not be replaced, or the disk refuses.
    """
    check_target(out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        stage = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    except OSError as error:
        raise _cannot_write(out, error) from error
    try:
        yield stage
        stage.chmod(0o777 & ~_umask())
        _swap(stage, out)
    except OSError as error:
        raise _cannot_write(out, error) from error
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _swap(stage: Path, out: Path) -> None:
    if not out.exists():
        stage.rename(out)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{out.name}-old-", dir=out.parent))
    out.rename(old / "old")
    try:
        stage.rename(out)
    except OSError:
        (old / "old").rename(out)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def write_summary(directory: Path, summary: dict[str, Any]) -> None:
    """Writes `comparison.json`.

    Raises:
        ValueError: A number in it is NaN or Inf: those are null with a count beside.
    """
    text = json.dumps(summary, indent=1, allow_nan=False, ensure_ascii=False)
    with (directory / SUMMARY_NAME).open("w", encoding="utf-8") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())


def finite(value: float | None) -> float | None:
    """The value, or None when it is NaN or Inf."""
    return value if value is not None and math.isfinite(value) else None


def _cannot_write(out: Path, error: OSError) -> CaptureError:
    return CaptureError(
        "cannot write a comparison",
        where=out,
        got=error.strerror or str(error),
        do="free some space or choose another directory",
    )
