"""The command line: help, unknown commands, errors without tracebacks, exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from workbench.cli import main
from workbench.cli.main import COMMANDS
from workbench.errors import ExitCode


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name, "--help"]) == 0
    assert "Example: kldive " in capsys.readouterr().out


def test_help_of_every_command_needs_no_heavy_package() -> None:
    code = (
        "import sys\nfrom workbench.cli import main\n"
        f"for name in {list(COMMANDS)!r}: main([name, '--help'])\n"
        "names = {'torch', 'transformers', 'vllm', 'polars', 'textual', 'numpy'}\n"
        "heavy = names & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(heavy)) or 0)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


def test_an_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["comapre"]) == ExitCode.USAGE
    assert "did you mean compare" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["show", "nowhere"], ExitCode.UNREADABLE),
        (["tui", "nowhere"], ExitCode.UNREADABLE),
        (["compare", "nowhere", "nowhere", "-o", "out"], ExitCode.UNREADABLE),
        (["tui", "nowhere", "--at", "L2 x9"], ExitCode.USAGE),
        (["capture", "rollout", "model", "-o", "out"], ExitCode.USAGE),
    ],
)
def test_bad_input_is_one_message_and_an_exit_code(
    args: list[str],
    code: ExitCode,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(args) == code
    shown = capsys.readouterr()
    assert shown.err.startswith("kldive: ")
    assert "Traceback" not in shown.err
    assert list(tmp_path.iterdir()) == []
