"""Menus and prompts, driven by keys as a person would."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from textual.pilot import Pilot

from tests.view.synthetic import make_source
from tui.app import KldiveApp
from tui.footer import Footer
from tui.menu import Menu
from tui.prompt import Prompt
from workbench.view.keymap import parse_keymap
from workbench.view.state import Area, Cell

FLIPS = ((1, 5), (3, 2), (0, 8))
_KEYS = {" ": "space", ">": "greater_than_sign", "=": "equals_sign", "*": "asterisk", "-": "minus"}


def app() -> KldiveApp:
    return KldiveApp(make_source(num_rows=300, flips=FLIPS, noise=1e-3))


async def write(pilot: Pilot[None], text: str) -> None:
    await pilot.press(*(_KEYS.get(letter, letter) for letter in text))
    await pilot.pause()


def hint(bench: KldiveApp) -> str:
    return str(bench.screen.query_one("#prompt-hint").render())


def files(folder: Path) -> list[Path]:
    """What was written, by name."""
    return sorted(folder.iterdir())


async def test_go_to_says_where_before_it_goes() -> None:
    bench = app()
    async with bench.run_test(size=(120, 40)) as pilot:
        await pilot.press("colon")
        await write(pilot, "L2 t14")
        assert isinstance(bench.screen, Prompt)
        assert "to L2 t14" in hint(bench)
        await pilot.press("enter")
        await pilot.pause()
        assert bench.model.state.cell == Cell(2, 14)
        await pilot.press("left_square_bracket")
        assert bench.model.state.cell == Cell(3, 2)


async def test_a_bare_number_is_a_token() -> None:
    bench = app()
    async with bench.run_test(size=(120, 40)) as pilot:
        await pilot.press("colon")
        await write(pilot, "17")
        await pilot.press("enter")
        await pilot.pause()
        assert bench.model.state.row == 17


@pytest.mark.parametrize(
    ("text", "what"), [("L9", "no such layer"), ("t9999", "no such token"), ("nowhere9", "address")]
)
async def test_a_wrong_address_is_told_and_the_prompt_stays(text: str, what: str) -> None:
    bench = app()
    async with bench.run_test(size=(120, 40)) as pilot:
        before = bench.model.state.cell
        await pilot.press("colon")
        await write(pilot, text)
        await pilot.press("enter")
        await pilot.pause()
        assert what in hint(bench)
        await pilot.press("escape")
        await pilot.pause()
        assert bench.screen is bench.workbench
        assert bench.model.state.cell == before


async def test_find_counts_as_one_writes_and_n_steps() -> None:
    bench = app()
    async with bench.run_test(size=(120, 40)) as pilot:
        await pilot.press("slash")
        await write(pilot, "=")
        hits = bench.model.hits("=")
        assert f"{len(hits)} hits" in hint(bench)
        await pilot.press("enter")
        await pilot.pause()
        assert bench.model.state.row == hits[0] or bench.model.state.row in hits
        here = bench.model.state.row
        await pilot.press("n")
        assert bench.model.state.row == hits[hits > here][0]
        await pilot.press("escape")
        assert bench.model.state.find == ""


async def test_a_filter_hides_and_backspace_shows_everything() -> None:
    bench = app()
    async with bench.run_test(size=(120, 40)) as pilot:
        await pilot.press("F")
        await write(pilot, "L1 >=3")
        await pilot.press("enter")
        await pilot.pause()
        assert str(bench.model.state.filter) == "L1 >=3"
        await pilot.press("backspace")
        assert not bench.model.state.filter


async def test_tolerance_takes_a_profile_or_a_multiple_of_one() -> None:
    bench = app()
    async with bench.run_test(size=(120, 40)) as pilot:
        await pilot.press("t")
        await pilot.pause()
        assert isinstance(bench.screen, Menu)
        await pilot.press("k", "enter")
        await pilot.pause()
        assert bench.model.state.tolerance == "fp32"
        await pilot.press("t")
        await pilot.pause()
        await pilot.press(*"jjjj", "enter")
        await pilot.pause()
        assert isinstance(bench.screen, Prompt)
        await pilot.press(*["backspace"] * 4)
        await write(pilot, "bf16*4")
        await pilot.press("enter")
        await pilot.pause()
        assert bench.model.state.tolerance == "bf16*4"


async def test_bookmarks_are_listed_and_lead_back() -> None:
    bench = app()
    async with bench.run_test(size=(120, 40)) as pilot:
        await pilot.press("l", "m", "G", "end")
        await pilot.press("apostrophe")
        await pilot.pause()
        assert isinstance(bench.screen, Menu)
        assert "bookmark" in bench.screen.entries[0].text
        await pilot.press("enter")
        await pilot.pause()
        assert bench.model.state.cell == Cell(3, 3)


async def test_the_selection_is_exported_as_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bench = app()
    async with bench.run_test(size=(120, 40)) as pilot:
        await pilot.press("v", "l", "l", "k", "v", "e")
        await pilot.pause()
        assert "(6, selected)" in bench.screen.entries[0].text  # type: ignore[attr-defined]
        for _ in range(2):
            await pilot.press("enter")
            await pilot.pause()
            await pilot.press("e")
            await pilot.pause()
    names = [path.name for path in files(tmp_path)]
    # The second one took another name: nothing is overwritten.
    assert names == ["kldive-L2-t4-2.parquet", "kldive-L2-t4.parquet"]
    frame = pl.read_parquet(tmp_path / names[0])
    assert frame.select("layer", "row").rows() == [(n, t) for n in (2, 3) for t in (2, 3, 4)]


@pytest.mark.parametrize(
    ("place", "suffix"), [(1, ".csv"), (2, ".html"), (3, ".svg"), (4, ".json")]
)
async def test_every_other_kind_of_file_is_written(
    place: int, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bench = app()
    async with bench.run_test(size=(120, 40)) as pilot:
        await pilot.press("e")
        await pilot.pause()
        await pilot.press(*"j" * place, "enter")
        await pilot.pause()
        assert "wrote" in bench.model.state.message
    (path,) = files(tmp_path)
    assert path.suffix == suffix
    assert path.stat().st_size > 100


async def test_a_folder_that_cannot_be_written_to_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    monkeypatch.setattr(Path, "cwd", lambda: gone)
    bench = app()
    async with bench.run_test(size=(120, 40)) as pilot:
        await pilot.press("e")
        await pilot.pause()
        await pilot.press("enter")
        await pilot.pause()
        assert "not written" in bench.model.state.message


async def test_a_copied_link_opens_the_view_again(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[str] = []
    bench = app()
    monkeypatch.setattr(bench, "copy_to_clipboard", copied.append)
    async with bench.run_test(size=(120, 40)) as pilot:
        await pilot.press("2", "Y")
    assert copied == [bench.model.link().command]
    assert "lens=gates" in copied[0]


async def test_dragging_selects_and_clicking_moves() -> None:
    bench = app()
    async with bench.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        grid = bench.grid
        layout = grid.layout_now
        line, character = layout.locate(Cell(1, 4))
        await pilot.click("#grid", offset=(character, line))
        assert bench.model.state.cell == Cell(1, 4)
        await pilot.mouse_down("#grid", offset=(character, line))
        end_line, end = layout.locate(Cell(2, 7))
        await pilot.hover("#grid", offset=(end, end_line))
        await pilot.mouse_up("#grid", offset=(end, end_line))
        await pilot.pause()
        assert bench.model.state.area == Area(Cell(1, 4), Cell(2, 7))
        await pilot.press("escape")
        assert bench.model.state.area is None


async def test_light_colours_and_back() -> None:
    bench = app()
    async with bench.run_test(size=(120, 40)) as pilot:
        dark = bench.export_screenshot()
        await pilot.press("T")
        await pilot.pause()
        light = bench.export_screenshot()
        await pilot.press("T")
        await pilot.pause()
        assert "#10131a" in dark
        assert "#10131a" not in light
        assert "#fbfbf9" in light
        assert "#10131a" in bench.export_screenshot()


async def test_own_keys_are_bound_and_shown() -> None:
    keymap = parse_keymap('[keys]\n"jump.next" = ["f3"]\n"cursor.left" = ["b"]\n')
    bench = KldiveApp(make_source(num_rows=60, flips=FLIPS))
    bench.workbench.keymap = keymap
    async with bench.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        await pilot.press("n")
        assert bench.model.state.cell == Cell(3, 2)
        await pilot.press("f3")
        assert bench.model.state.cell == Cell(1, 5)
        footer = "".join(part.text for part in bench.screen.query_one(Footer).lines(120, 1)[0])
        assert "f3 N next / previous" in footer
        assert "b j k l move" in footer


async def test_an_expert_is_looked_for_while_the_screen_goes_on() -> None:
    bench = app()
    async with bench.run_test(size=(120, 40)) as pilot:
        await pilot.press("F")
        await write(pilot, "e3")
        await pilot.press("enter")
        await bench.workers.wait_for_complete()
        await pilot.pause()
        assert str(bench.model.state.filter) == "e3"
        shown_LT = bench.model.grids.shown(bench.model.state)
        assert shown_LT is not None
        assert (shown_LT == bench.model.source.selects(3)).all()
