"""The workbench driven by keys, at three sizes, over four kinds of comparison."""

from __future__ import annotations

import pytest
from textual.app import App
from textual.containers import VerticalScroll
from textual.pilot import Pilot

from tests.view.attributed import BUDGET, attributed
from tests.view.synthetic import ArraySource, make_source
from tui.app import KldiveApp
from tui.help import HelpScreen
from tui.layout import layout_for
from tui.menu import Menu
from workbench.view.actions import ACTIONS
from workbench.view.keymap import parse_keymap
from workbench.view.state import Cell

SIZES = [(80, 24), (120, 40), (200, 60)]
FLIPS = ((1, 5), (3, 2), (0, 8))


def source(kind: str) -> ArraySource:
    """One of the four kinds."""
    return {
        "identical": lambda: make_source(num_rows=60),
        "noise": lambda: make_source(num_rows=60, noise=1e-5),
        "flip": lambda: make_source(num_rows=60, flips=((2, 14),), noise=1e-5),
        "nan": lambda: make_source(num_rows=60, nans=((1, 7),)),
    }[kind]()


def screen_text(app: App[None]) -> str:
    """What is on the screen, as lines."""
    width, height = app.size
    lines = app.screen._compositor.render_strips(app.size)
    assert len(lines) == height
    assert all(line.cell_length == width for line in lines)
    return "\n".join(line.text for line in lines)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("kind", "finding"),
    [
        ("identical", "identical: 0 of 240 cells differ"),
        ("noise", "within rounding: "),
        ("flip", "first flip: L2 t14 "),
        ("nan", "NaN or Inf in A (3)"),
    ],
)
async def test_opens_with_the_finding(kind: str, finding: str, size: tuple[int, int]) -> None:
    app = KldiveApp(source(kind))
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        text = screen_text(app)
        assert finding in text
        assert "A rollout" in text
        assert "B trainer" in text
        assert "help" in text
        assert "Traceback" not in text


@pytest.mark.parametrize("size", SIZES)
async def test_the_cursor_is_marked_in_grid_rail_and_text(size: tuple[int, int]) -> None:
    app = KldiveApp(source("flip"))
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        text = screen_text(app)
        assert "▶L2" in text
        assert "▲" in text
        line, character = app.grid.layout_now.locate(Cell(2, 14))
        x, y = app.grid.scroll_offset
        left, top = app.grid.region.offset
        style = app.screen.get_style_at(left + character - x, top + line - y)
        assert style.bgcolor is not None
        assert style.bgcolor.name == "#ffffff"


async def test_every_key_of_every_action_works() -> None:
    app = KldiveApp(make_source(num_rows=300, flips=FLIPS, noise=1e-5))
    async with app.run_test(size=(100, 35)) as pilot:
        for action in ACTIONS:
            if action.id == "quit":
                continue
            for key in action.keys:
                await pilot.press(key)
                await pilot.pause()
                if len(app.screen_stack) > 1:
                    await pilot.press("escape")
                    await pilot.pause()
                assert len(app.screen_stack) == 1, action.id
        await pilot.press("q")
    assert app.return_code == 0


async def test_keys_move_the_cursor_and_jump() -> None:
    app = KldiveApp(make_source(num_rows=60, flips=FLIPS))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        assert app.model.state.cell == Cell(3, 2)
        await pilot.press("n")
        assert app.model.state.cell == Cell(1, 5)
        await pilot.press("l", "j")
        assert app.model.state.cell == Cell(2, 6)
        await pilot.press("N")
        assert app.model.state.cell == Cell(1, 5)
        await pilot.press("3")
        assert app.model.state.lens == "combined"
        await pilot.pause()
        assert "▶mlp_out" in screen_text(app)


async def test_the_menu_of_classes_shows_counts_and_chooses() -> None:
    app = KldiveApp(make_source(num_rows=60, flips=FLIPS, unexplained=((2, 9),)))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("c")
        await pilot.pause()
        assert isinstance(app.screen, Menu)
        lines = {entry.id: entry.text.split() for entry in app.screen.entries}
        assert lines["flip"][1] == "4"
        for _ in range(6):
            if app.screen.query_one("#menu").highlighted == 4:  # type: ignore[attr-defined]
                break
            await pilot.press("j")
        await pilot.press("enter")
        await pilot.pause()
        assert app.model.state.klass == "flip"
        assert app.model.state.cell == Cell(3, 2)


async def test_escape_leaves_the_menu_without_a_change() -> None:
    app = KldiveApp(make_source(num_rows=60, flips=FLIPS))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        before = app.model.state
        await pilot.press("c", "escape")
        await pilot.pause()
        assert app.model.state == before
        assert len(app.screen_stack) == 1


@pytest.mark.parametrize("size", SIZES)
async def test_a_local_error_is_where_the_app_opens(size: tuple[int, int]) -> None:
    culprit = {(1, 7, "routed_experts"): 5.3 * BUDGET}
    app = KldiveApp(attributed(make_source(num_rows=60, flips=FLIPS), culprit))
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        text = screen_text(app)
        assert "first local error: L1 t7 " in text
        assert "routed experts   0.021  5.3 ×  0.6 12.2 B" in text
        await pilot.press("6")
        await pilot.pause()
        assert "inherited error" in screen_text(app)


async def test_the_menu_says_what_counting_local_errors_takes() -> None:
    app = KldiveApp(make_source(num_rows=60, flips=FLIPS))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("c")
        await pilot.pause()
        assert "needs the model: kldive attribute" in screen_text(app)


async def test_help_lists_every_action() -> None:
    app = KldiveApp(source("flip"))
    async with app.run_test(size=(120, 100)) as pilot:
        await pilot.press("question_mark")
        await pilot.pause()
        assert isinstance(app.screen, HelpScreen)
        text = screen_text(app)
        for action in ACTIONS:
            assert action.help[:40] in text, action.id


async def test_keys_that_move_the_cursor_scroll_a_page_of_text() -> None:
    app = KldiveApp(source("flip"))
    app.workbench.keymap = parse_keymap('[keys]\n"cursor.down" = "f7"\n')
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("question_mark")
        await pilot.pause()
        assert "f7 k scroll" in screen_text(app)
        page = app.screen.query_one(VerticalScroll)
        tops = []
        for key in ("j", "f7", "k", "L", "H", "G", "g", "end", "home"):
            await pilot.press(key)
            await pilot.pause()
            tops.append(page.scroll_offset.y)
        last = page.max_scroll_y
        assert tops == [0, 1, 0, page.size.height - 2, 0, last, 0, last, 0]


async def test_the_inspector_opens_and_closes() -> None:
    app = KldiveApp(source("flip"))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        width = app.grid.size.width
        await pilot.press("i")
        await pilot.pause()
        assert not app.inspector.display
        assert app.grid.size.width > width
        await pilot.press("i")
        await pilot.pause()
        assert app.inspector.display


async def test_a_click_moves_the_cursor() -> None:
    app = KldiveApp(source("flip"))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        line, character = app.grid.layout_now.locate(Cell(3, 10))
        await pilot.click("#grid", offset=(character, line))
        await pilot.pause()
        assert app.model.state.cell == Cell(3, 10)
        await pilot.click("#overview", offset=(15, 0))
        await pilot.pause()
        assert app.model.state.row == 0


@pytest.mark.parametrize("size", [(59, 24), (80, 17), (20, 5)])
async def test_a_small_terminal_is_told_what_it_needs(size: tuple[int, int]) -> None:
    app = KldiveApp(source("flip"))
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        assert "kldive" in screen_text(app)
        await pilot.resize_terminal(120, 40)
        await pilot.pause()
        assert "first flip" in screen_text(app)


async def test_resizing_keeps_the_cursor_in_sight() -> None:
    app = KldiveApp(make_source(num_layers=40, num_rows=400, flips=((35, 333),)))
    async with app.run_test(size=(200, 60)) as pilot:
        for size in ((80, 24), (100, 35), (120, 40)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            await assert_cursor_in_sight(app, pilot)


async def assert_cursor_in_sight(app: KldiveApp, pilot: Pilot[None]) -> None:
    line, character = app.grid.layout_now.locate(app.model.state.cell)
    x, y = app.grid.scroll_offset
    assert 0 <= line - y < app.grid.size.height
    assert 0 <= character - x < app.grid.size.width


async def test_copying_leaves_a_message_and_the_text() -> None:
    app = KldiveApp(source("flip"))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("y")
        await pilot.pause()
        assert "copied" in screen_text(app)
        assert "A minus B" in app.clipboard


async def test_markup_and_controls_in_tokens_are_shown_and_not_obeyed() -> None:
    texts = ["[red]x[/]", "\x1b[2J", "a\nb", "\u202e", "漢字"] * 12
    app = KldiveApp(make_source(num_rows=60, texts=texts, flips=((1, 5),)))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        text = screen_text(app)
        assert "[red]x[/]" in text
        assert "\x1b" not in text
        assert "\\e[2J" in text


async def test_no_rows_is_a_message_and_not_a_crash() -> None:
    app = KldiveApp(make_source(num_rows=0))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("n", "f", "l", "j", "0", "y", "3", "i")
        await pilot.pause()
        assert "no rows to compare" in screen_text(app)


async def test_without_colour_every_level_keeps_its_glyph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = KldiveApp(make_source(num_layers=40, num_rows=400, flips=((35, 333),)))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("0")
        await pilot.pause()
        assert "▀" not in screen_text(app)
        assert "=" in screen_text(app)


def test_layouts_follow_the_size() -> None:
    assert layout_for(200, 60, 4)[:3] == (False, False, False)
    assert layout_for(120, 40, 96)[:3] == (False, False, False)
    assert layout_for(119, 40, 96)[:3] == (True, False, False)
    assert layout_for(80, 40, 96)[:3] == (True, True, False)
    assert layout_for(200, 29, 96)[:3] == (True, True, False)
    assert layout_for(59, 40, 4).small
    assert layout_for(80, 17, 4).small
