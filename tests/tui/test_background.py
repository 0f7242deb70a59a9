"""Reading ahead: how far it is, that leaving does not wait for it, and what is kept of failures."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tests.tui.test_app import screen_text
from tests.tui.test_live import shown, until
from tests.view.synthetic import make_source
from tui import background
from tui.app import KldiveApp
from workbench.view.model import ViewModel

Tell = Callable[[float], None] | None


async def test_the_status_bar_shows_how_far_reading_ahead_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = threading.Event()

    def warm(_model: ViewModel, tell: Tell = None) -> None:
        assert tell is not None
        tell(0.42)
        gate.wait(30)

    monkeypatch.setattr(background, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(ViewModel, "warm", warm)
    app = KldiveApp(make_source(num_rows=60))
    says = shown(app)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, says("● 42%"))
        gate.set()
        await until(pilot, lambda: not says("●")())


async def test_leaving_ends_what_is_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    ended, begun = threading.Event(), threading.Event()

    def warm(_model: ViewModel, tell: Tell = None) -> None:
        assert tell is not None
        begun.set()
        try:
            while not ended.wait(0.01):
                tell(0.5)
        finally:
            ended.set()

    monkeypatch.setattr(ViewModel, "warm", warm)
    app = KldiveApp(make_source(num_rows=60))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, begun.is_set)
        assert not ended.is_set()
        await pilot.press("q")
    assert ended.wait(10)


async def test_nothing_failed_is_said_too() -> None:
    app = KldiveApp(make_source(num_rows=60))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("exclamation_mark")
        await pilot.pause()
        assert "nothing has failed" in screen_text(app)
