"""`kldive tui` where there is no terminal, and its usage errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.captures import ROLLOUT, TRAINER, make_pair
from workbench.cli.main import main
from workbench.comparison.run import compare
from workbench.errors import ExitCode


def test_a_comparison_is_reported_on_stdout_and_the_note_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = make_pair(tmp_path, b=replace(TRAINER, scale_experts=(1, 1.02)))
    compare(pair.a, pair.b, out=tmp_path / "c")
    assert main(["tui", str(tmp_path / "c")]) == 0
    out, err = capsys.readouterr()
    assert "DIVERGED" in out
    assert "not a terminal" not in out
    assert err == "kldive tui: not a terminal, so here is the report instead\n"


def test_two_captures_are_compared_and_reported_and_nothing_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = make_pair(tmp_path, b=replace(TRAINER, scale_experts=(1, 1.02)))
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    assert main(["tui", str(pair.a), str(pair.b)]) == 0
    out, err = capsys.readouterr()
    assert "DIVERGED" in out
    assert out.rstrip().endswith(f"kldive tui {pair.a} {pair.b}")
    assert "measuring layer" in err
    assert list(temporary.iterdir()) == []


def test_the_comparison_of_two_captures_can_be_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = make_pair(tmp_path)
    assert main(["tui", str(pair.a), str(pair.b), "-o", str(tmp_path / "kept")]) == 0
    assert (tmp_path / "kept" / "comparison.json").exists()
    assert capsys.readouterr().out.rstrip().endswith(f"kldive tui {tmp_path / 'kept'}")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Missing argument"),
        (["a", "b", "c"], "not 3 directories"),
        (["a", "-o", "x"], "--out needs two captures"),
        (["a", "--common-prefix"], "--common-prefix needs two captures"),
        (["--live", "a", "b", "--common-prefix"], "two captures that have ended"),
        (["a", "--tolerance", "bf16"], "--tolerance needs two captures"),
        (["--live", "a", "b", "-o", "x"], "--live keeps no comparison"),
        (["--live", "a"], "--live needs a terminal"),
        (["a", "--at", "nowhere at all"], "address"),
    ],
)
def test_usage(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tui", *arguments]) == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err


def test_misaligned_captures_are_an_error_with_both_texts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = make_pair(tmp_path, a=replace(ROLLOUT, tokens={(0, 4): 3}))
    assert main(["tui", str(pair.a), str(pair.b)]) == ExitCode.UNREADABLE
    out, err = capsys.readouterr()
    assert out == ""
    assert "hold other tokens" in err
    assert "Traceback" not in err
    assert main(["tui", str(pair.a), str(pair.b), "--common-prefix"]) == 0
    assert "28 of 36 (77.8%) compared" in capsys.readouterr().out


def test_a_link_opens_what_it_leads_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pair = make_pair(tmp_path)
    compare(pair.a, pair.b, out=tmp_path / "c")
    assert main(["tui", f"kldive://{tmp_path / 'c'}?at=L1.t2&lens=gates"]) == 0
    assert "rows" in capsys.readouterr().out
    assert main(["tui", f"kldive://?a={pair.a}&b={pair.b}"]) == 0
    assert f"kldive tui {pair.a} {pair.b}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["kldive://x?lens=colour"], "unknown lens"),
        (["kldive://x?at=L1", "other"], "give it alone"),
        (["kldive://x", "--live"], "give it alone"),
        (["kldive://"], "not a kldive link"),
    ],
)
def test_a_link_that_cannot_be_followed_is_a_usage_error(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tui", *arguments]) == ExitCode.USAGE
    assert words in capsys.readouterr().err
