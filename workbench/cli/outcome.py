"""The exit code that a comparison's status stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.errors import ExitCode

_EXIT_CODES = {
    "equal": ExitCode.EQUAL,
    "diverged": ExitCode.DIVERGED,
    "not_comparable": ExitCode.UNREADABLE,
}


def exit_code_of(summary: Mapping[str, Any]) -> ExitCode:
    """0 equal, 1 diverged, 3 not comparable."""
    return _EXIT_CODES[summary["status"]]
