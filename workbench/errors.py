"""Every error a person can meet, and the exit code it ends a command with.

A message says what failed, where, what was expected, what was found and what to do next.
Stdlib only.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple


class ExitCode(IntEnum):
    """Exit codes of every command; a public contract."""

    EQUAL = 0
    DIVERGED = 1
    USAGE = 2
    UNREADABLE = 3
    MISSING_DEPENDENCY = 4
    INTERRUPTED = 130


class KldiveError(Exception):
    """An error with a message for people and an exit code for scripts."""

    exit_code: ExitCode = ExitCode.UNREADABLE

    def __init__(
        self,
        what: str,
        *,
        where: object = None,
        expected: object = None,
        got: object = None,
        do: str | None = None,
    ) -> None:
        self.what = what
        self.where = None if where is None else str(where)
        self.expected = None if expected is None else str(expected)
        self.got = None if got is None else str(got)
        self.do = do
        super().__init__(self._message())

    def _message(self) -> str:
        lines = [self.what]
        for label, text in (
            ("where", self.where),
            ("expected", self.expected),
            ("got", self.got),
            ("do", self.do),
        ):
            if text:
                lines.append(f"  {label + ':':<10}{text}")
        return "\n".join(lines)


class UsageError(KldiveError):
    """The caller asked for something that does not exist or cannot be combined."""

    exit_code = ExitCode.USAGE


class CaptureError(KldiveError):
    """A capture or comparison on disk cannot be read, or cannot be written."""


class Token(NamedTuple):
    """A token of a request."""

    position: int
    token_id: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """The first row at which two captures hold other tokens, and the text round it.

    Attributes:
        request, position: Of the row.
        num_differing: Rows with another token, of `num_rows` that both sides have.
        num_same: Rows of this request before it, with the same token on both sides.
        a, b: Tokens of the request round the row, by position.
    """

    request: str
    position: int
    num_differing: int
    num_rows: int
    num_same: int
    a: tuple[Token, ...]
    b: tuple[Token, ...]


class AlignmentError(KldiveError):
    """Two captures do not hold the same tokens at the same rows.

    Attributes:
        mismatch: Where they part, when it is the tokens that differ.
        num_before: Rows of all requests that come before any such place, and could be compared.
    """

    mismatch: Mismatch | None = None
    num_before: int = 0


class RecordingError(KldiveError):
    """Recording would have produced something that is not what the engine computed."""


class MissingDependencyError(KldiveError):
    """An optional package is needed and is not installed."""

    exit_code = ExitCode.MISSING_DEPENDENCY


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The nearest known names as a sentence, or the whole list when nothing is near.

    >>> did_you_mean("roling", ["rolling", "other"])
    'did you mean rolling?'
    """
    names = list(known)
    near = difflib.get_close_matches(name, names, n=3)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"one of: {', '.join(names)}"


def missing_extra(package: str, purpose: str, extra: str) -> MissingDependencyError:
    """The error for an optional package that is not installed."""
    return MissingDependencyError(
        f"{package} is needed {purpose}, and it is not installed",
        do=f"pip install 'kldive[{extra}]'",
    )
