"""`kldive compare` and `kldive show`: exit codes, JSON, reports for people, refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.captures import ROLLOUT, TRAINER, Toy, make_pair
from workbench.cli.main import main
from workbench.errors import ExitCode
from workbench.store.manifest import ParameterSum


def compared(pair: tuple[Path, Path], out: Path, *options: str) -> int:
    return main(["compare", str(pair[0]), str(pair[1]), "-o", str(out), *options])


def test_an_equal_pair_exits_0_and_its_json_has_the_stable_keys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compared(make_pair(tmp_path), tmp_path / "out", "--json") == ExitCode.EQUAL
    shown = capsys.readouterr()
    summary = json.loads(shown.out)
    assert summary["status"] == "equal"
    assert summary["rows"]["compared"] == summary["rows"]["expected"] == 36
    assert set(summary["kl"]) >= {"exact_mean", "k1", "k2", "k3"}
    assert set(summary["first"]) == {
        *("bit", "rounding", "flip", "unexplained_flip", "local_error", "logprob")
    }
    assert {"verdict", "weights", "max_abs_dlogp", "direction", "sampling_side"} <= set(summary)
    assert "compare: " in shown.err


def test_a_scaled_expert_output_exits_1_and_names_layer_and_site(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = make_pair(tmp_path, b=replace(TRAINER, scale_experts=(1, 1.02)))
    assert compared(pair, tmp_path / "out") == ExitCode.DIVERGED
    shown = capsys.readouterr().out
    assert "DIVERGED" in shown
    assert "L1 routed_out" in shown
    assert "A ≈ 0.98" in shown


def test_one_changed_token_is_refused_with_both_texts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = make_pair(tmp_path, b=replace(TRAINER, tokens={(1, 5): 3}))
    assert compared(pair, tmp_path / "out") == ExitCode.UNREADABLE
    error = capsys.readouterr().err
    assert "position 5" in error
    assert "A" in error
    assert "B" in error
    assert not (tmp_path / "out").exists()


def test_other_weights_are_the_first_thing_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def weights(value: int) -> dict[str, object]:
        return {"weights": {"layers.0.router": ParameterSum(sum=value, numel=8, dtype="float32")}}

    pair = make_pair(
        tmp_path, a=replace(ROLLOUT, changes=weights(1)), b=replace(TRAINER, changes=weights(2))
    )
    assert compared(pair, tmp_path / "out") == ExitCode.DIVERGED
    shown = capsys.readouterr().out
    assert "DIVERGED · state: the weights differ" in shown
    assert shown.index("the weights differ") < shown.index("KL(A‖B)")


def test_where_tokens_part_what_comes_before_can_be_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = make_pair(tmp_path, b=replace(TRAINER, tokens={(1, 3): 40}))
    assert compared(pair, tmp_path / "out") == ExitCode.UNREADABLE
    assert "--common-prefix" in capsys.readouterr().err
    assert compared(pair, tmp_path / "out", "--common-prefix") == ExitCode.UNREADABLE
    shown = capsys.readouterr().out
    assert "NOT COMPARABLE" in shown
    assert "first at r1 p3" in shown
    assert "30 of 36 (83.3%) compared" in shown


def test_show_reads_a_comparison_of_a_newer_format_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compared(make_pair(tmp_path), tmp_path / "out") == ExitCode.EQUAL
    summary = tmp_path / "out" / "comparison.json"
    body = json.loads(summary.read_text("utf-8"))
    summary.write_text(json.dumps({**body, "version": 2}), "utf-8")
    capsys.readouterr()
    assert main(["show", str(tmp_path / "out")]) == ExitCode.EQUAL
    shown = " ".join(capsys.readouterr().out.split())
    assert "format version 2, newer than this kldive reads (1): what it does not know" in shown
    assert main(["show", str(tmp_path / "out"), "--json"]) == ExitCode.EQUAL
    (line,) = json.loads(capsys.readouterr().out)["newer_format"]
    assert line.startswith("format  version 2, newer than this kldive reads (1)")


def test_show_prints_what_compare_printed_and_its_json_is_the_summary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    compared(make_pair(tmp_path), out)
    report = capsys.readouterr().out
    assert main(["show", str(out)]) == ExitCode.EQUAL
    assert capsys.readouterr().out == report
    main(["show", str(out), "--json"])
    assert json.loads(capsys.readouterr().out) == json.loads((out / "comparison.json").read_text())


def test_the_report_fits_its_page_and_says_direction_coverage_and_next_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toy = Toy(num_layers=2)
    compared(make_pair(tmp_path, toy=toy), tmp_path / "out")
    report = capsys.readouterr().out
    *page, command = report.splitlines()
    assert max(map(len, page)) <= 100
    for words in (
        "A rollout",
        "B trainer",
        "dlogp = logp A − logp B",
        "36 of 36 (100.0%) compared",
    ):
        assert words in report
    assert command.endswith(f"kldive tui {tmp_path / 'out'}")


def test_a_tolerance_profile_with_a_typing_mistake_names_the_nearest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = compared(make_pair(tmp_path), tmp_path / "out", "--tolerance", "bf61")
    assert code == ExitCode.USAGE
    assert "did you mean bf16" in capsys.readouterr().err


def test_tui_without_a_terminal_prints_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compared(make_pair(tmp_path), tmp_path / "out")
    capsys.readouterr()
    assert main(["tui", str(tmp_path / "out")]) == ExitCode.EQUAL
    shown = capsys.readouterr()
    assert "KL(A‖B)" in shown.out
    assert "not a terminal" in shown.err
