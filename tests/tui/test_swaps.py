import pytest

from tests.tui.test_app import screen_text
from tests.view.attributed import attributed
from tests.view.synthetic import make_source
from tui.app import KldiveApp
from tui.swaps import SwapScreen, page_text
from workbench.view.experiments import experiments


def page(width: int) -> str:
    found = experiments(attributed(make_source(), swaps=True))
    return page_text(found, "", width).plain


@pytest.mark.parametrize("width", [54, 74, 114, 194])
def test_no_line_but_the_titles_is_wider_than_the_page(width: int) -> None:
    assert all(len(line) <= width for line in page(width).splitlines() if line[:1] == " ")


def test_the_ladder_is_a_waterfall() -> None:
    lines = page(74).splitlines()
    live, same, order, last = (
        next(line for line in lines if line.startswith(f"  {name}"))
        for name in ("live", "same set", "same combine", "reference")
    )
    assert live.count("█") == same.count("█") + same.count("░")
    assert abs(same.count("░") - live.count("█") / 2) <= 1
    assert same.count("█") == last.count("░")
    assert last.count("█") == 0
    assert "no known order" in order


def test_the_map_shows_both_numbers_as_shares() -> None:
    text = page(74)
    alone, left = text.split("left when all but this is swapped")
    row = [line for line in alone.splitlines() if line.startswith("  L1 ")]
    assert row[-1].split() == ["L1", "<1%", "90%"]
    row = [line for line in left.splitlines() if line.startswith("  L1 ")]
    assert row[0].split() == ["L1", "2%", "95%"]
    assert "equal bit for bit in every layer: input norm, post-attn norm, router" in text


def test_both_tables_stand_side_by_side_where_they_fit() -> None:
    line = next(line for line in page(114).splitlines() if "removed by this swap" in line)
    assert "left when all but this is swapped" in line


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_the_key_opens_the_screen_and_escape_goes_back(size: tuple[int, int]) -> None:
    app = KldiveApp(attributed(make_source(), swaps=True))
    async with app.run_test(size=size) as pilot:
        await pilot.press("w")
        await pilot.pause()
        assert isinstance(app.screen, SwapScreen)
        text = screen_text(app)
        assert "Proof  proved" in text
        assert "L1 routed experts is the cause" in text
        assert "Routing ladder" in text
        await pilot.press("pagedown", "pagedown", "pagedown", "pagedown")
        await pilot.pause()
        assert "layer 1" in screen_text(app)
        await pilot.press("escape")
        await pilot.pause()
        assert len(app.screen_stack) == 1


async def test_swaps_that_were_not_run_name_the_command() -> None:
    app = KldiveApp(make_source())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("w")
        await pilot.pause()
        text = screen_text(app)
        assert "Swaps were not run" in text
        assert "kldive attribute run/comparison --model M" in text
