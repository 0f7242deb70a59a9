"""Following recordings: real captures, written chunk by chunk while they are shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from textual.app import App
from textual.pilot import Pilot

from tests.captures import ROLLOUT, TRAINER, Side, make_capture
from tests.tui.test_app import screen_text
from tui import follow, follow_pair
from tui.app import Workbench
from tui.follow import OneCapture, Pulse, span
from tui.follow_pair import TwoCaptures
from tui.host import Host
from tui.job import Progress, StoppedError
from tui.jobs import live_job, live_pair_job
from tui.opening import OpeningScreen
from tui.trouble import TroubleScreen
from workbench.errors import AlignmentError
from workbench.store import CaptureWriter, open_capture
from workbench.view.growing import GrowingCapture
from workbench.view.state import Cell


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(follow_pair, "POLL_SECONDS", 0.02)


class SlowWriter:
    """Writes a whole capture again, a chunk whenever it is told to."""

    def __init__(self, directory: Path, whole: Path) -> None:
        self.capture = open_capture(whole)
        self.writer = CaptureWriter(directory, replace(self.capture.manifest, chunks=()))
        self.written = 0

    def chunk(self) -> None:
        chunk = self.capture.chunks[self.written]
        self.written += 1
        names = [name for name in self.capture.sites if name in chunk]
        covers = {n: cover for n in names if (cover := chunk.covered(n)) is not None}
        arrays: dict[str, np.ndarray] = {name: chunk.array(name) for name in names}
        self.writer.append(chunk.tokens.to_dict(as_series=False), arrays, covers)

    def rest(self) -> None:
        while self.written < len(self.capture.chunks):
            self.chunk()
        self.writer.finish()


def slow(directory: Path, name: str, side: Side) -> SlowWriter:
    whole = make_capture(directory / f"whole-{name}", side=side)
    return SlowWriter(directory / name, whole)


async def until(pilot: Pilot[None], holds: Callable[[], bool]) -> None:
    """Waits until something holds; a test that never gets there fails with what is shown."""
    for _ in range(400):
        if holds():
            return
        await pilot.pause(0.05)
    raise AssertionError(screen_text(pilot.app))


def workbench(app: App[None]) -> Workbench:
    assert isinstance(app.screen, Workbench)
    return app.screen


def shown(app: App[None]) -> Callable[[str], Callable[[], bool]]:
    def says(words: str) -> Callable[[], bool]:
        # A screen that was just pushed has no lines yet.
        return lambda: app.screen._compositor.size.height > 0 and words in screen_text(app)

    return says


async def test_rows_appear_while_the_cursor_follows_the_end_or_stays(tmp_path: Path) -> None:
    app = Host(OpeningScreen(live_job(tmp_path / "a"), TroubleScreen))
    says = shown(app)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, says("waiting for the capture to appear"))
        writer = slow(tmp_path, "a", replace(ROLLOUT, chunk_rows=8))
        await until(pilot, says("waiting for the first chunk"))
        writer.chunk()
        await until(pilot, says("live · 8 rows · chunk 1 · still recording"))
        screen = workbench(app)
        assert screen.model.state.row == 7
        assert screen.model.state.side == "a"
        await pilot.press("3")
        writer.chunk()
        await until(pilot, says("live · 16 rows · chunk 2 · still recording"))
        assert screen.model.state.row == 15
        assert screen.model.state.lens == "combined"
        await pilot.press("home", "j")
        writer.chunk()
        await until(pilot, says("live · 24 rows"))
        assert screen.model.state.cell == Cell(1, 0)
        await pilot.press("end")
        writer.rest()
        await until(pilot, says("complete · 36 rows · 5 chunks"))
        assert screen.model.state.row == 35
        assert not screen.background.failures


async def test_escape_ends_the_waiting(tmp_path: Path) -> None:
    opening = OpeningScreen(live_job(tmp_path / "a"), TroubleScreen)
    app = Host(opening)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, shown(app)("waiting for the capture to appear"))
        await pilot.press("escape")
    opening.finish()
    assert isinstance(opening.error, StoppedError)


async def test_a_recording_that_becomes_unreadable_is_said_and_the_rest_stays(
    tmp_path: Path,
) -> None:
    writer = slow(tmp_path, "a", replace(ROLLOUT, chunk_rows=8))
    writer.chunk()
    app = Host(OpeningScreen(live_job(tmp_path / "a"), TroubleScreen))
    says = shown(app)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, says("live · 8 rows"))
        (tmp_path / "a" / "manifest.json").write_text("{", "utf-8")
        await until(pilot, says("following the recording failed; ! says why"))
        await pilot.press("h")
        assert workbench(app).model.state.row == 6
        await pilot.press("exclamation_mark")
        await until(pilot, says("cannot read the manifest of a capture"))
        await pilot.press("escape")
        await pilot.pause()
        assert "live · 8 rows" in screen_text(app)


async def test_two_recordings_are_compared_again_and_the_cursor_keeps_its_token(
    tmp_path: Path,
) -> None:
    a = slow(tmp_path, "a", replace(ROLLOUT, interleaved=True, chunk_rows=8))
    b = slow(
        tmp_path, "b", replace(TRAINER, interleaved=True, scale_experts=(1, 1.02), chunk_rows=8)
    )
    job = live_pair_job(tmp_path / "a", tmp_path / "b", workplace=tmp_path / "work")
    app = Host(OpeningScreen(job, TroubleScreen))
    says = shown(app)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, says("waiting for the first chunk of A"))
        a.chunk()
        b.chunk()
        await until(pilot, says("live · A 8 rows · B 8 rows · 8 compared · still recording"))
        screen = workbench(app)
        screen.show(screen.model.move_to(Cell(1, 4)))
        rows = screen.model.source.rows.select("request", "position")
        token = rows.row(4)
        a.chunk()
        b.chunk()
        await until(pilot, says("16 compared"))
        rows = screen.model.source.rows.select("request", "position")
        assert rows.row(screen.model.state.row) == token
        assert screen.model.state.row != 4
        a.rest()
        b.rest()
        await until(pilot, says("diverged · semantic"))
        rows = screen.model.source.rows.select("request", "position")
        assert rows.height == 36
        assert rows.row(screen.model.state.row) == token
        assert len(list((tmp_path / "work").iterdir())) <= 2


def test_one_side_ahead_is_waited_for(tmp_path: Path) -> None:
    a = slow(tmp_path, "a", replace(ROLLOUT, chunk_rows=8))
    b = slow(tmp_path, "b", replace(TRAINER, order=(2, 1, 0), chunk_rows=8))
    pair = TwoCaptures(tmp_path / "a", tmp_path / "b", workplace=tmp_path / "work")
    assert pair.look(Progress()) is None
    a.chunk()
    b.chunk()
    # A wrote rows of its first request, B of its last: nothing in common yet.
    assert pair.look(Progress()) is None
    assert "no row in common" in pair.lacking
    a.rest()
    b.rest()
    found = pair.look(Progress())
    assert found is not None
    assert found.num_rows == 36
    assert pair.complete


def test_a_pair_that_stalls_is_said(tmp_path: Path) -> None:
    for name, side in (("a", ROLLOUT), ("b", TRAINER)):
        slow(tmp_path, name, replace(side, chunk_rows=8)).chunk()
    now = [0.0]
    start = (tmp_path / "a" / "manifest.json").stat().st_mtime
    pair = TwoCaptures(
        tmp_path / "a",
        tmp_path / "b",
        workplace=tmp_path / "w",
        pulse=Pulse(lambda: start + now[0]),
    )
    found = pair.look(Progress())
    assert found is not None
    assert found.summary["status"] == "live"
    assert pair.look(Progress()) is None
    now[0] = 40
    assert pair.look(Progress()) is found
    assert found.summary["status"] == "stalled"
    rows = "A 8 rows · B 8 rows · 8 compared"
    assert found.summary["verdict"] == f"{rows} · no new chunk for 30 s; incomplete"
    assert pair.look(Progress()) is None


def test_other_tokens_are_not_waited_out(tmp_path: Path) -> None:
    a = slow(tmp_path, "a", replace(ROLLOUT, tokens={(0, 3): 5}, chunk_rows=8))
    b = slow(tmp_path, "b", replace(TRAINER, tokens={(0, 3): 6}, chunk_rows=8))
    a.chunk()
    b.chunk()
    with pytest.raises(AlignmentError, match="other tokens"):
        TwoCaptures(tmp_path / "a", tmp_path / "b", workplace=tmp_path / "w").look(Progress())


def test_a_killed_recording_is_said_once_per_span(tmp_path: Path) -> None:
    slow(tmp_path, "a", replace(ROLLOUT, chunk_rows=8)).chunk()
    capture, now = GrowingCapture(tmp_path / "a"), [0.0]
    live = OneCapture(capture, Pulse(lambda: capture.changed + now[0]))
    said: list[Any] = []
    for now[0] in (1, 29, 30, 45, 61, 3 * 3600):
        source = live.look()
        said.append(source and (source.summary["status"], source.summary["verdict"]))
    gone = "8 rows · chunk 1 · no new chunk for {}; incomplete"
    assert said == [
        ("live", "8 rows · chunk 1 · still recording"),
        None,
        ("stalled", gone.format("30 s")),
        None,
        ("stalled", gone.format("1 min")),
        ("stalled", gone.format("2 h")),
    ]


def test_spans_are_said_in_their_largest_unit() -> None:
    assert [span(s) for s in follow.STALL_SECONDS] == [
        "30 s", "1 min", "2 min", "5 min", "10 min", "30 min", "1 h", "2 h", "1 d",
    ]  # fmt: skip
