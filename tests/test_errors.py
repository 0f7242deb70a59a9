"""Errors: one message with what, where, expected, got, do; and the exit code it ends with."""

from __future__ import annotations

import pytest

from workbench.errors import (
    AlignmentError,
    CaptureError,
    ExitCode,
    KldiveError,
    MissingDependencyError,
    RecordingError,
    UsageError,
    did_you_mean,
    missing_extra,
)


def test_a_message_has_a_line_per_part() -> None:
    error = CaptureError("it broke", where="here", expected=3, got=4, do="mend it")
    assert str(error) == (
        "it broke\n  where:    here\n  expected: 3\n  got:      4\n  do:       mend it"
    )


def test_parts_that_are_not_known_are_left_out() -> None:
    assert str(UsageError("no")) == "no"
    assert (UsageError("no").where, UsageError("no").do) == (None, None)


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (KldiveError, 3),
        (CaptureError, 3),
        (AlignmentError, 3),
        (RecordingError, 3),
        (UsageError, 2),
        (MissingDependencyError, 4),
    ],
)
def test_exit_codes(kind: type[KldiveError], code: int) -> None:
    assert kind("x").exit_code == code
    assert issubclass(kind, KldiveError)


def test_exit_codes_are_a_contract() -> None:
    assert {code.name: code.value for code in ExitCode} == {
        "EQUAL": 0,
        "DIVERGED": 1,
        "USAGE": 2,
        "UNREADABLE": 3,
        "MISSING_DEPENDENCY": 4,
        "INTERRUPTED": 130,
    }


def test_the_nearest_name_is_offered_or_else_all() -> None:
    assert did_you_mean("bf61", ["bf16", "fp32"]) == "did you mean bf16?"
    assert did_you_mean("zzz", ["bf16", "fp32"]) == "one of: bf16, fp32"


def test_a_missing_extra_says_what_to_install() -> None:
    error = missing_extra("torch", "to record a trainer", "torch")
    assert error.what == "torch is needed to record a trainer, and it is not installed"
    assert error.do == "pip install 'kldive[torch]'"
