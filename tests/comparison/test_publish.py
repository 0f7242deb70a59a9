"""A comparison is written whole or not at all, and never over something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.captures import make_pair
from workbench.comparison.publish import staged, write_summary
from workbench.comparison.run import compare
from workbench.errors import CaptureError, UsageError


def test_an_earlier_comparison_is_replaced(tmp_path: Path) -> None:
    pair = make_pair(tmp_path)
    out = tmp_path / "deep" / "comparison"
    compare(pair.a, pair.b, out=out, tolerance="fp32")
    again = compare(pair.a, pair.b, out=out, tolerance="bf16")
    assert again.summary["tolerance"]["profile"] == "bf16"
    assert sorted(p.name for p in out.parent.iterdir()) == ["comparison"]
    assert sorted(p.name for p in out.iterdir()) == [
        "comparison.json",
        "layers.arrow",
        "rows.parquet",
    ]


@pytest.mark.parametrize("kind", ["file", "other files", "a capture", "comparison and notes"])
def test_anything_else_is_refused_and_left_alone(tmp_path: Path, kind: str) -> None:
    pair = make_pair(tmp_path)
    out = tmp_path / "out"
    if kind == "file":
        out.write_text("precious")
    elif kind == "a capture":
        out = pair.a
    else:
        if kind == "comparison and notes":
            compare(pair.a, pair.b, out=out)
        out.mkdir(exist_ok=True)
        (out / "notes.txt").write_text("precious")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(CaptureError, match="will not write a comparison over something else"):
        compare(pair.a, pair.b, out=out)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_failure_on_the_way_leaves_the_earlier_one(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with staged(out) as stage:
        write_summary(stage, {"format": "kldive-comparison", "run": 1})

    def fail_half_way() -> None:
        with staged(out) as stage:
            write_summary(stage, {"format": "kldive-comparison", "run": 2})
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        fail_half_way()
    assert '"run": 1' in (out / "comparison.json").read_text()
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_nan_never_reaches_the_summary(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_summary(tmp_path, {"x": float("nan")})


def test_a_target_that_cannot_be_made_is_one_error(tmp_path: Path) -> None:
    pair = make_pair(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(CaptureError, match="cannot write a comparison"):
        compare(pair.a, pair.b, out=tmp_path / "file" / "deeper")


def test_an_unknown_profile_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown tolerance profile"):
        compare(tmp_path / "none", tmp_path / "none", out=tmp_path / "out", tolerance="strict")
