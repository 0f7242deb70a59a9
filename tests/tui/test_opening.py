"""The first frame, and leaving it: nothing heavy before it, nothing left behind after it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.captures import ROLLOUT, TRAINER, make_pair
from tests.tui.test_app import screen_text
from tests.tui.test_live import shown, until, workbench
from tui.host import Host
from tui.job import Job, Made, Progress, StoppedError
from tui.jobs import compare_job, open_job
from tui.opening import OpeningScreen
from tui.subject import Subject, of_captures, of_comparison
from tui.trouble import TroubleScreen
from workbench.address import parse_address
from workbench.comparison.run import compare
from workbench.errors import AlignmentError, CaptureError


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_the_first_frame_needs_neither_numpy_nor_polars() -> None:
    code = "import sys, tui.run, tui.jobs; print(sorted(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for name in ("numpy", "polars", "ml_dtypes", "workbench.view.model", "tui.app"):
        assert f"'{name}'" not in run.stdout


async def test_a_comparison_opens_at_an_address(tmp_path: Path) -> None:
    pair = make_pair(tmp_path, a=replace(ROLLOUT, ids=[(1, 5, 1, 7)]))
    compare(pair.a, pair.b, out=tmp_path / "comparison")
    opening = OpeningScreen(
        open_job(tmp_path / "comparison", parse_address("L2 t7")), TroubleScreen
    )
    app = Host(opening)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, shown(app)("▶L2"))
        assert workbench(app).model.state.row == 7
        await pilot.press("q")
    assert opening.made is not None
    assert opening.error is None


async def test_two_captures_are_compared_and_opened(tmp_path: Path) -> None:
    pair = make_pair(tmp_path, b=replace(TRAINER, scale_experts=(1, 1.02)))
    app = Host(OpeningScreen(compare_job(*pair, out=tmp_path / "c"), TroubleScreen))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, shown(app)("the error enters at L1 routed_out"))
    assert (tmp_path / "c" / "comparison.json").exists()


async def test_where_tokens_part_what_comes_before_is_compared_on_demand(tmp_path: Path) -> None:
    b = replace(TRAINER, tokens={(1, 3): 40}, scale_experts=(1, 1.3))
    pair = make_pair(tmp_path, b=b)
    opening = OpeningScreen(compare_job(*pair, out=tmp_path / "c"), TroubleScreen)
    app = Host(opening)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, shown(app)("enter compares the 30 rows before that"))
        await pilot.press("enter")
        await until(pilot, shown(app)("30 of 36 rows"))
        assert "not comparable: other tokens in 1 of 3 requests, first at r1 p3" in screen_text(app)
        await pilot.press("q")
    opening.finish()
    assert opening.error is None
    assert opening.made is not None


async def test_where_tokens_part_leaving_leaves_nothing(tmp_path: Path) -> None:
    pair = make_pair(tmp_path, b=replace(TRAINER, tokens={(1, 3): 40}))
    opening = OpeningScreen(compare_job(*pair, out=tmp_path / "c"), TroubleScreen)
    app = Host(opening)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, shown(app)("not aligned"))
        await pilot.press("q")
    assert isinstance(opening.error, AlignmentError)
    assert names_in(tmp_path) == {"a", "b"}


async def test_where_nothing_comes_before_nothing_is_offered(tmp_path: Path) -> None:
    b = replace(TRAINER, tokens={(0, 0): 40, (1, 0): 40, (2, 0): 40})
    pair = make_pair(tmp_path, b=b)
    app = Host(OpeningScreen(compare_job(*pair, out=tmp_path / "c"), TroubleScreen))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, shown(app)("not aligned"))
        assert "enter compares" not in screen_text(app)
        await pilot.press("enter")
    assert not app.is_running


async def test_escape_stops_a_comparison_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = make_pair(tmp_path)
    job = compare_job(*pair, out=tmp_path / "c")
    opening = OpeningScreen(job, TroubleScreen)
    app = Host(opening)
    call = Progress.__call__

    def slow(self: Progress, name: str, done: float | None) -> None:
        call(self, name, done)
        if name.startswith("measuring layer 2"):
            self.wait(60)

    monkeypatch.setattr(Progress, "__call__", slow)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, shown(app)("measuring layer 2 of 3"))
        assert "comparing two captures" in screen_text(app)
        await pilot.press("escape")
    opening.finish()
    assert isinstance(opening.error, StoppedError)
    assert names_in(tmp_path) == {"a", "b"}


async def test_a_fault_of_ours_is_shown_with_its_traceback(tmp_path: Path) -> None:
    def work(_progress: Progress) -> Made:
        raise ZeroDivisionError("by nothing")

    opening = OpeningScreen(Job(subject=Subject(title="opening x"), work=work), TroubleScreen)
    app = Host(opening)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, shown(app)("ZeroDivisionError: by nothing"))
        assert "fault of kldive" in screen_text(app)
        assert "test_opening.py" in screen_text(app)
        await pilot.press("q")
    assert isinstance(opening.error, ZeroDivisionError)


@pytest.mark.parametrize("size", [(60, 18), (80, 24), (200, 60)])
async def test_the_frame_fits_any_size(tmp_path: Path, size: tuple[int, int]) -> None:
    pair = make_pair(tmp_path)
    compare(pair.a, pair.b, out=tmp_path / "comparison")

    def work(progress: Progress) -> Made:
        progress("reading rows", 0.5)
        progress.wait(60)
        raise CaptureError("nobody stopped the work")

    job = Job(subject=of_comparison(tmp_path / "comparison"), work=work)
    app = Host(OpeningScreen(job, TroubleScreen))
    async with app.run_test(size=size) as pilot:
        await until(pilot, shown(app)("50%"))
        lines = screen_text(app).splitlines()
        assert "A rollout" in lines[0]
        assert "Esc cancel" in lines[-1]
        assert "reading rows" in screen_text(app)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"a": 3, "rows": [1], "status": {}}', '{"a": {"model": "x"}}']
)
def test_a_strange_summary_leaves_facts_out_and_never_fails(tmp_path: Path, text: str) -> None:
    (tmp_path / "comparison.json").write_text(text, "utf-8")
    (tmp_path / "manifest.json").write_text(text, "utf-8")
    assert of_comparison(tmp_path).title == f"opening {tmp_path}"
    assert of_captures("looking", tmp_path, tmp_path / "none").title == "looking"


def test_facts_come_from_the_manifest_and_are_escaped(tmp_path: Path) -> None:
    body = {
        "path": "trainer",
        "engine": "x\x1b[2J",
        "dtype": "bfloat16",
        "rows": 1234,
        "chunks": [{}, {}],
        "model": {"id": "models/m\u202e", "num_layers": 96, "num_experts": 128, "top_k": 8},
    }
    (tmp_path / "manifest.json").write_text(json.dumps(body), "utf-8")
    found = of_captures("looking", tmp_path)
    assert found.sides == (("B", "trainer", "x\\e[2J bfloat16"),)
    assert found.facts == (
        ("model", "m\\u202e, 96 layers, 128 experts, top-8"),
        ("B", str(tmp_path)),
        ("", "1,234 rows · 2 chunks · not complete"),
    )
