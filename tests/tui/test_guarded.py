"""A fault in drawing, in a handler or in an action stays where it happened; the session goes on."""

from __future__ import annotations

from typing import Any

import pytest
from textual.pilot import Pilot

from tests.tui.test_app import FLIPS, screen_text
from tests.view.synthetic import make_source
from tui import drill, ruler, swaps
from tui import help as help_page
from tui.app import KldiveApp
from tui.background import Background
from tui.drill import DrillFoot, DrillHead
from tui.drill_page import TextPage
from tui.footer import Footer
from tui.grid import Grid
from tui.inspector import Inspector
from tui.overview import Overview
from tui.rail import Rail
from tui.status import Status
from tui.strip import TokenStrip
from tui.trouble import DetailsScreen
from workbench.view.model import ViewModel
from workbench.view.state import Cell

SIZE = (120, 40)
FAULT = "a fault of ours"
DRAWING: dict[str, tuple[Any, str]] = {
    "overview": (Overview, "lines"),
    "grid": (Grid, "_cells"),
    "rail": (Rail, "_label"),
    "ruler": (ruler, "heading_line"),
    "inspector": (Inspector, "lines"),
    "strip": (TokenStrip, "lines"),
    "footer": (Footer, "lines"),
}
"""What each widget of the main screen is drawn by."""


class Broken:
    """Stands in for a function of a class or module, and raises until it is mended."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        self.mended = False
        whole = getattr(owner, name)

        def function(*args: Any, **named: Any) -> Any:
            if not self.mended:
                raise RuntimeError(FAULT)
            return whole(*args, **named)

        monkeypatch.setattr(owner, name, function)


def made() -> KldiveApp:
    """The workbench with more layers and tokens than lines and columns, so that it has a ruler."""
    return KldiveApp(make_source(num_layers=40, num_rows=400, flips=FLIPS, noise=1e-5))


async def redrawn(pilot: Pilot[None]) -> str:
    """What is on the screen once everything was drawn anew."""
    width, height = SIZE
    await pilot.resize_terminal(width - 1, height - 1)
    await pilot.pause()
    await pilot.resize_terminal(width, height)
    await pilot.pause()
    return screen_text(pilot.app)


async def assert_told(pilot: Pilot[None]) -> None:
    """`!` shows the failure in full, and escape leaves it."""
    depth = len(pilot.app.screen_stack)
    await pilot.press("exclamation_mark")
    await pilot.pause()
    assert isinstance(pilot.app.screen, DetailsScreen)
    assert FAULT in screen_text(pilot.app)
    await pilot.press("escape")
    await pilot.pause()
    assert len(pilot.app.screen_stack) == depth


@pytest.mark.parametrize("name", DRAWING)
async def test_a_widget_that_cannot_be_drawn_says_so_until_it_can(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    app = made()
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        whole = await redrawn(pilot)
        broken = Broken(monkeypatch, *DRAWING[name])
        text = await redrawn(pilot)
        assert name in text
        assert "could not" in text
        assert f"drawing the {name}" in text
        assert "failed; ! says why" in text
        # Drawn over and over, it is one failure.
        await redrawn(pilot)
        assert len(app.workbench.background.failures) == 1
        await assert_told(pilot)
        await pilot.press("l")
        assert app.model.state.cell == Cell(3, 3)
        await pilot.press("h")
        broken.mended = True
        app.workbench.background.failures.clear()
        await redrawn(pilot)
        # What was outside the drawn lines is asked for once more, after those that were in it.
        assert await redrawn(pilot) == whole


async def test_a_status_bar_that_cannot_be_drawn_names_the_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = made()
    async with app.run_test(size=SIZE) as pilot:
        Broken(monkeypatch, Status, "lines")
        assert "status: could not be drawn, press ! for details" in await redrawn(pilot)
        await assert_told(pilot)


@pytest.mark.parametrize(
    ("owner", "name", "called"),
    [
        (DrillHead, "lines", "drill head"),
        (DrillFoot, "lines", "drill foot"),
        (TextPage, "line", "drill page"),
        (drill, "vector_facts", "drill"),
    ],
)
async def test_the_drill_goes_on_without_a_part_of_it(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, called: str
) -> None:
    app = made()
    async with app.run_test(size=SIZE) as pilot:
        Broken(monkeypatch, owner, name)
        await pilot.press("enter")
        await pilot.pause()
        text = screen_text(app)
        assert f"{called}: could not be drawn, press ! for details" in text
        if owner is not DrillHead:
            assert f"drawing the {called} failed; ! says why" in text
        await assert_told(pilot)
        await pilot.press("3")
        await pilot.pause()
        if owner in (TextPage, drill):
            assert "could not be drawn" not in screen_text(app)
        await pilot.press("escape")
        await pilot.pause()
        assert len(app.screen_stack) == 1
        assert f"drawing the {called} failed; ! says why" in screen_text(app)


@pytest.mark.parametrize(
    ("key", "owner", "name", "called"),
    [
        ("question_mark", help_page, "help_text", "help"),
        ("w", swaps, "page_text", "swap"),
    ],
)
async def test_a_page_that_cannot_be_made_is_one_line(
    monkeypatch: pytest.MonkeyPatch, key: str, owner: Any, name: str, called: str
) -> None:
    app = made()
    async with app.run_test(size=SIZE) as pilot:
        Broken(monkeypatch, owner, name)
        await pilot.press(key)
        await pilot.pause()
        assert f"{called}: could not be drawn, press ! for details" in screen_text(app)
        await assert_told(pilot)
        await pilot.press("escape")
        await pilot.pause()
        assert len(app.screen_stack) == 1


async def test_an_action_that_fails_is_undone_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    app = made()
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        before = app.model.state
        Broken(monkeypatch, ViewModel, "codes")
        await pilot.press("l")
        await pilot.pause()
        assert app.model.state == before
        assert "failed; ! says why" in screen_text(app)
        await assert_told(pilot)


async def test_an_answer_to_a_menu_that_fails_is_undone_and_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = made()
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("c")
        await pilot.pause()
        before = app.model.state
        Broken(monkeypatch, ViewModel, "choose_class")
        await pilot.press("j", "enter")
        await pilot.pause()
        assert app.model.state == before
        await assert_told(pilot)


async def test_a_handler_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    app = made()
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        broken = Broken(monkeypatch, Grid, "_cell_under")
        await pilot.click("#grid", offset=(5, 5))
        await pilot.pause()
        assert "grid: mouse" in screen_text(app)
        broken.mended = True
        await assert_told(pilot)
        await pilot.press("q")
    assert app.return_code == 0


async def test_the_same_failure_again_is_kept_once() -> None:
    app = made()
    async with app.run_test(size=SIZE):
        background = Background(app.workbench, None)
        assert background.fail("reading", ValueError("one"))
        assert not background.fail("reading", ValueError("two"))
        assert background.fail("drawing", ValueError("three"))
        assert background.fail("reading", ValueError("four"))
        assert [(what, str(error)) for what, error in background.failures] == [
            ("drawing", "three"),
            ("reading", "four"),
        ]
