"""The drill driven by keys, at three sizes: nothing is cut, nothing overflows, escape goes back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.captures import ROLLOUT, TRAINER, Toy, make_pair
from tests.tui.test_app import SIZES, screen_text
from tests.view.attributed import BUDGET, attributed
from tests.view.synthetic import make_source
from tui.app import KldiveApp
from tui.drill import TITLES, DrillScreen
from tui.help import HelpScreen
from workbench.address import parse_address
from workbench.comparison.result import Comparison
from workbench.comparison.run import compare
from workbench.names import LOGPROBS
from workbench.view.drill_actions import DRILL_ACTIONS, DRILL_PAGES
from workbench.view.keymap import parse_keymap
from workbench.view.state import Cell

FLIPS = ((1, 5), (3, 2), (0, 8))


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """48 layers of 64 experts, top-8, in bfloat16, one expert replaced in layer 20."""
    directory: Path = tmp_path_factory.mktemp("deep")
    toy = Toy(num_layers=48, hidden=16, num_experts=64, top_k=8, lengths=(20, 24), prompt=6)
    a = replace(ROLLOUT, dtype="bfloat16", rounding="often", ids=[(20, 30, 3, 63)])
    pair = make_pair(directory, toy=toy, a=a, b=replace(TRAINER, dtype="bfloat16"))
    return compare(pair.a, pair.b, out=directory / "comparison")


def drill_of(app: KldiveApp) -> DrillScreen:
    assert isinstance(app.screen, DrillScreen)
    return app.screen


def whole_lines(app: KldiveApp) -> list[str]:
    """What the open page wants to draw: wider than the screen would be cut."""
    page = drill_of(app).view.page
    lines = [*page.heads, *(page.line(place) for place in range(len(page)))]
    mark = "" if page.cursor is None else " "
    return [mark + "".join(part.text for part in line) for line in lines]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("site", ["mlp_out", "topk_ids", "topk_weights", "router_logits", "output"])
async def test_every_page_fits_and_is_whole(
    deep: Comparison, size: tuple[int, int], site: str
) -> None:
    app = KldiveApp(deep, at=parse_address(f"L20 t30 {site}"))
    async with app.run_test(size=size) as pilot:
        await pilot.press("p", "enter")
        for number in range(5):
            await pilot.press(str(number + 1))
            await pilot.pause()
            text = screen_text(app)
            assert f"L20 t30 {site}" in text
            assert "esc back" in text
            assert "y copy" in text
            assert "Traceback" not in text
            for line in whole_lines(app):
                assert len(line.rstrip()) <= size[0], line
                assert "…" not in line, line


async def test_the_vector_tells_how_far_and_where(deep: Comparison) -> None:
    app = KldiveApp(deep, at=parse_address("L20 t30 mlp_out"))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("space")
        await pilot.pause()
        text = screen_text(app)
        assert "16 of 16 components differ" in text
        assert "ULPs apart" in text
        assert "A − B" in text
        assert "share" in text
        assert "L20 combined output: " in text


async def test_equal_vectors_are_a_positive_result(deep: Comparison) -> None:
    app = KldiveApp(deep, at=parse_address("L0 t30 embed"))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter")
        await pilot.pause()
        text = screen_text(app)
        assert "equal bit for bit in all 16 components" in text
        assert "embedding: equal bit for bit" in text


async def test_a_single_factor_is_a_hint(tmp_path: Path) -> None:
    toy = Toy(num_layers=2, hidden=32, lengths=(6,), prompt=2)
    pair = make_pair(tmp_path, toy=toy, a=replace(ROLLOUT, scale_experts=(1, 1.02)))
    comparison = compare(pair.a, pair.b, out=tmp_path / "comparison")
    app = KldiveApp(comparison, at=parse_address("L1 t3 routed_out"))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter")
        await pilot.pause()
        assert "A ≈ 1.02 × B: this one factor explains" in screen_text(app)


async def test_pages_turn_in_both_directions_and_by_number() -> None:
    app = KldiveApp(make_source(flips=FLIPS))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("enter")
        for key, number in (
            ("tab", 1),
            ("l", 2),
            ("shift+tab", 1),
            ("h", 0),
            ("h", 4),
            ("right", 0),
            ("4", 3),
        ):
            await pilot.press(key)
            await pilot.pause()
            assert drill_of(app).number == number
        assert TITLES[3] in screen_text(app)


@pytest.mark.parametrize("key", ["escape", "q"])
async def test_going_back_is_exactly_one_level(key: str) -> None:
    app = KldiveApp(make_source(flips=FLIPS), at=parse_address("L1 t5 mlp_out"))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter", "3", key)
        await pilot.pause()
        assert len(app.screen_stack) == 1
        assert app.model.state.cell == Cell(1, 5)
        assert app.is_running


async def test_enter_goes_to_the_layer(deep: Comparison) -> None:
    app = KldiveApp(deep, at=parse_address("L20 t30 mlp_out"))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter", "3", "j", "j", "k", "enter")
        await pilot.pause()
        assert len(app.screen_stack) == 1
        assert (app.model.state.cell, app.model.state.site) == (Cell(21, 30), "mlp_out")
        await pilot.press("enter", "3", "G", "enter")
        await pilot.pause()
        assert (app.model.state.cell, app.model.state.site) == (Cell(47, 30), LOGPROBS)


async def test_enter_goes_to_the_token_in_order_and_by_size() -> None:
    source = make_source(flips=FLIPS, jumps={(1, 40): 0.9})
    app = KldiveApp(source, at=parse_address("L1 t5 mlp_out"))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter", "4", "k", "enter")
        await pilot.pause()
        assert app.model.state.cell == Cell(1, 4)
        await pilot.press("enter", "4", "o")
        await pilot.pause()
        assert "largest difference first" in screen_text(app)
        await pilot.press("enter")
        await pilot.pause()
        assert app.model.state.cell == Cell(1, 40)


async def test_stepping_inside_moves_the_cursor_below(deep: Comparison) -> None:
    app = KldiveApp(deep, at=parse_address("L20 t30 output"))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter", "full_stop")
        await pilot.pause()
        assert "L21 layer input: " in screen_text(app)
        assert "L21 t30 input" in screen_text(app)
        await pilot.press("comma", "escape")
        await pilot.pause()
        assert (app.model.state.cell, app.model.state.site) == (Cell(20, 30), "output")


async def test_stepping_from_embedding_to_logprob_says_every_place(deep: Comparison) -> None:
    app = KldiveApp(deep, at=parse_address("L0 t30 embed"))
    async with app.run_test(size=(80, 24)) as pilot:
        seen = set()
        for _ in range(12):
            await pilot.press("full_stop")
            await pilot.pause()
            line = screen_text(app).splitlines()[2]
            assert "…" not in line
            seen.add(line.partition(":")[0].strip())
        assert {"L0 layer input", "L0 top-k", "L0 layer output", "L1 attention input"} <= seen


async def test_the_place_in_focus_is_marked_in_the_inspector(deep: Comparison) -> None:
    app = KldiveApp(deep, at=parse_address("L47 t30 final_norm"))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        assert "▶final_norm" in screen_text(app)
        await pilot.press("full_stop", "full_stop")
        await pilot.pause()
        assert app.model.state.site == LOGPROBS
        assert "▶logp" in screen_text(app)


async def test_a_page_is_copied_as_text() -> None:
    app = KldiveApp(make_source(flips=FLIPS), at=parse_address("L1 t5 mlp_out"))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter", "3", "y")
        await pilot.pause()
        assert "copied " in screen_text(app)
        lines = app.clipboard.splitlines()
        assert lines[0].startswith("L1 t5 mlp_out")
        assert sum(line.startswith(" L") for line in lines) == 4
        await pilot.press("j")
        await pilot.pause()
        assert "copied " not in screen_text(app)


async def test_a_persons_own_keys_hold_in_the_drill(deep: Comparison) -> None:
    app = KldiveApp(deep, at=parse_address("L20 t30 output"))
    app.workbench.keymap = parse_keymap('[keys]\n"site.next" = ["f7"]\n"pin.set" = ["f8"]\n')
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter", "full_stop")
        await pilot.pause()
        assert app.model.state.site == "output"
        await pilot.press("f7", "5")
        await pilot.pause()
        assert (app.model.state.layer, app.model.state.site) == (21, "input")
        assert "press f8 there" in screen_text(app)
        assert "f7 , site" in screen_text(app)


async def test_keys_of_the_drill_can_be_chosen(deep: Comparison) -> None:
    app = KldiveApp(deep, at=parse_address("L20 t30 mlp_out"))
    app.workbench.keymap = parse_keymap('[keys]\n"drill.layers" = "f6"\n"back" = "f9"\n')
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("enter")
        await pilot.pause()
        assert "f6 down the layers" in screen_text(app)
        await pilot.press("3")
        assert drill_of(app).number == 0
        await pilot.press("f6")
        assert drill_of(app).number == 2
        await pilot.press("f9")
        await pilot.pause()
        assert len(app.screen_stack) == 1


async def test_the_drill_has_a_help_of_its_own(deep: Comparison) -> None:
    app = KldiveApp(deep, at=parse_address("L20 t30 mlp_out"))
    async with app.run_test(size=(120, 100)) as pilot:
        await pilot.press("enter", "question_mark")
        await pilot.pause()
        assert isinstance(app.screen, HelpScreen)
        text = screen_text(app)
        for action in DRILL_ACTIONS:
            assert action.help[:40] in text, action.id
        await pilot.press("question_mark")
        await pilot.pause()
        assert drill_of(app).number == 0


async def test_every_key_of_the_drill_works_on_every_page(deep: Comparison) -> None:
    app = KldiveApp(deep, at=parse_address("L20 t30 mlp_out"))
    async with app.run_test(size=(120, 40)) as pilot:
        for page in DRILL_PAGES:
            for action in DRILL_ACTIONS:
                for key in action.keys:
                    if len(app.screen_stack) == 1:
                        await pilot.press("enter")
                    await pilot.press(page.keys[0], key)
                    await pilot.pause()
                    if not isinstance(app.screen, DrillScreen) and len(app.screen_stack) > 1:
                        await pilot.press("escape")
                        await pilot.pause()
        assert not app.workbench.background.failures


async def test_without_a_pin_the_page_says_how_to_pin() -> None:
    app = KldiveApp(make_source(flips=FLIPS))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter", "5")
        await pilot.pause()
        assert "Nothing is pinned" in screen_text(app)
        assert "press p there" in screen_text(app)


async def test_the_experts_name_what_is_not_recorded() -> None:
    app = KldiveApp(make_source(flips=FLIPS), at=parse_address("L1 t5 mlp_out"))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter", "2")
        await pilot.pause()
        text = screen_text(app)
        assert "1 expert flips" in text
        assert "is in no capture" in text
        assert "kldive attribute run/comparison --model M" in text


async def test_what_each_expert_adds_is_shown_where_attribution_looked() -> None:
    source = attributed(make_source(flips=FLIPS))
    app = KldiveApp(source, at=parse_address("L1 t5 mlp_out"))
    routed = app.model.cell_facts(Cell(1, 5)).router
    assert routed is not None
    sizes = [{"expert": e.expert, "a": 15.5, "b": 15.25} for e in routed.experts]
    source.summary["attribution"]["contributions"] = [{"layer": 1, "row": 5, "experts": sizes}]
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter", "2")
        await pilot.pause()
        text = screen_text(app)
        assert "‖g·E(x)‖ A" in text
        assert "+0.2500" in text
        assert "is in no capture" not in "".join(whole_lines(app))
        assert all(len(line) <= 80 for line in whole_lines(app))


@pytest.mark.parametrize("size", SIZES)
async def test_after_attribution_the_worst_module_and_who_is_wrong(size: tuple[int, int]) -> None:
    culprits = {
        (1, 7, "routed_experts"): 5.3 * BUDGET,
        (2, 7, "post_attention_norm"): 1234 * BUDGET,
    }
    app = KldiveApp(attributed(make_source(flips=FLIPS, unexplained=((2, 7),)), culprits))
    async with app.run_test(size=size) as pilot:
        await pilot.press("enter", "3")
        await pilot.pause()
        assert "routed experts 5.3× B" in screen_text(app)
        assert not any("…" in line for line in whole_lines(app))
        await pilot.press("2")
        await pilot.pause()
        assert "B is wrong" in screen_text(app)


async def test_32768_tokens_open_at_once_and_only_what_is_seen_is_made() -> None:
    source = make_source(num_layers=2, num_rows=32_768, noise=1e-3)
    app = KldiveApp(source, at=parse_address("L1 t16000 mlp_out"))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter", "4")
        await pilot.pause()
        view = drill_of(app).view
        assert len(view.page) == 32_768
        assert view.lines_made <= 8 * view.room
        assert "t16000" in screen_text(app)
        made = view.lines_made
        await pilot.press("j")
        await pilot.pause()
        assert view.lines_made - made <= 2
        await pilot.press("G")
        await pilot.pause()
        assert "32,768/32,768" in screen_text(app)
        assert "y copy" in screen_text(app)


async def test_resizing_keeps_the_line_in_sight(deep: Comparison) -> None:
    app = KldiveApp(deep, at=parse_address("L40 t30 mlp_out"))
    async with app.run_test(size=(200, 60)) as pilot:
        await pilot.press("enter", "3", "j", "j")
        for size in ((80, 24), (120, 40)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            line = next(x for x in screen_text(app).splitlines() if "▶" in x)
            assert "L42" in line


async def test_a_row_that_was_not_computed_opens() -> None:
    source = make_source()
    row = source.rows["state_a"].to_list().index("sampled")
    app = KldiveApp(source, at=parse_address(f"L1 t{row} mlp_out"))
    async with app.run_test(size=(80, 24)) as pilot:
        for page in ("enter", "2", "3", "4", "5"):
            await pilot.press(page)
            await pilot.pause()
            assert "sampled last, never fed back" in screen_text(app)


async def test_no_rows_no_drill() -> None:
    app = KldiveApp(make_source(num_rows=0))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter")
        await pilot.pause()
        assert len(app.screen_stack) == 1


async def test_markup_and_controls_in_tokens_are_shown_and_not_obeyed() -> None:
    texts = ["[red]x[/]", "\x1b[2J", "a\nb", "\u202e", "漢字漢字漢字"] * 12
    app = KldiveApp(make_source(num_rows=60, texts=texts), at=parse_address("L1 t1 mlp_out"))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter")
        for page in ("1", "3", "4"):
            await pilot.press(page)
            await pilot.pause()
            assert "\x1b" not in screen_text(app)
            assert "\\e[2J" in screen_text(app)
