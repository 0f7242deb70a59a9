"""`kldive bisect modules`: usage, and errors without a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.cli.main import main
from workbench.errors import ExitCode


def test_help_shows_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bisect", "modules", "--help"]) == ExitCode.EQUAL
    assert "kldive bisect modules run/comparison --model" in capsys.readouterr().out


def test_a_directory_that_is_no_comparison_is_one_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["bisect", "modules", str(tmp_path), "--model", "m"])
    assert code == ExitCode.UNREADABLE
    assert "not a comparison" in capsys.readouterr().err


def test_a_negative_threshold_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["bisect", "modules", "d", "--model", "m", "--threshold", "-1"])
    assert code == ExitCode.USAGE
    assert "threshold" in capsys.readouterr().err
