"""Files of a newer format than this kldive writes: read as far as they can be, and said so.

What a file holds that is not known here is left out; what is known is checked as in any file. One
error says which part of such a file cannot be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeGuard

from workbench.errors import CaptureError

MAX_VERSION: Final = 1_000_000
"""A version beyond this is no version: the file is not sound."""
NAMED_SITES: Final = 8
_NAME_LENGTH: Final = 40


def is_version(value: Any) -> TypeGuard[int]:
    """Whether a value read from a file can be a format version."""
    return type(value) is int and 1 <= value <= MAX_VERSION


def newer_text(version: int, *, reads: int, unknown: Sequence[str] = (), num: int = 0) -> str:
    """What to say of a newer file in one line.

    Args:
        version: The file's format version.
        reads: The newest version that is read whole.
        unknown: Names of sites that are not known here, at least the first few.
        num: How many there are in all.

    >>> newer_text(2, reads=1, unknown=["layers.0.gate_in"], num=1)
    'version 2, newer than this kldive reads (1): what it does not know was left out, \
1 site of it: layers.0.gate_in'
    """
    text = f"version {version}, newer than this kldive reads ({reads})"
    text += ": what it does not know was left out"
    if not num:
        return text
    shown = [_printable(name) for name in unknown[:NAMED_SITES]]
    more = f" and {num - len(shown)} more" if num > len(shown) else ""
    return f"{text}, {num} site{'' if num == 1 else 's'} of it: {', '.join(shown)}{more}"


def unreadable_newer(what: str, version: int, *, reads: int, error: CaptureError) -> CaptureError:
    """The error for a newer file in which something known is missing or has another shape."""
    return CaptureError(
        f"{what} is of the newer format version {version}; this kldive reads up to version {reads}",
        where=error.where,
        expected=error.expected,
        got=error.got,
        do="update kldive",
    )


def unwritable_newer(where: Path, version: int, *, reads: int, do: str) -> CaptureError:
    """The error for writing over a newer file: what is not known here would be lost."""
    return CaptureError(
        "will not write over a file of a newer format: what is not known here would be lost",
        where=where,
        expected=f"format version {reads} or older",
        got=f"version {version}",
        do=do,
    )


def _printable(name: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in name[:_NAME_LENGTH])
