"""Mouse and keys in a real notebook: what is drawn, what is said and what Python holds agree."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.stepper import Cell, Stepper
from workbench.comparison.result import open_comparison
from workbench.view.headline import headline
from workbench.view.model import ViewModel
from workbench.view.palette import LOOKS
from workbench.widgets.keys import key_map

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ACTION_OF = {key: action["id"] for action in key_map() for key in action["keys"]}
WALKS = {
    "moving": ["l", "l", "j", "h", "k", "k", "ArrowRight", "ArrowDown", "G", "g", "End", "Home"],
    "jumping": ["n", "N", "f", "f", "n", "n", "N", "f", "n", "n"],
    "sites": [".", ".", ".", ",", "j", "."],
    "lenses": ["1", "2", "3", "4", "5", "2"],
    "history": ["f", "f", "n", "[", "[", "]", "p", "l", "m"],
}
FLIP = (1, 9)
"""Where the comparison's one unexplained flip was made."""


@pytest.fixture(scope="module")
def reference(faulty: Path) -> ViewModel:
    """The same comparison, seen without a notebook."""
    return ViewModel(open_comparison(faulty))


def test_it_opens_at_what_went_wrong(stepper: Stepper, reference: ViewModel) -> None:
    expect(stepper.root.locator(".kld-verdict")).to_contain_text("the error enters at L2")
    assert stepper.cursor() == tuple(reference.state.cell)
    stepper.at(reference.state.cell)
    stepper.press_in_grid("n")
    stepper.at(FLIP)
    expect(stepper.headline).to_contain_text("first unexplained flip: L1 t9")


def test_cells_are_drawn_in_the_colours_of_their_levels(
    stepper: Stepper, reference: ViewModel
) -> None:
    combined = stepper.picture()
    stepper.press_in_grid("1")
    stepper.becomes_other_than(combined)
    codes_LT = reference.codes("router")
    l0, l1, t0, t1 = stepper.value("window")
    cells = [(layer, row) for layer in range(l0, l1) for row in range(t0, t1)]
    drawn = stepper.drawn_colours(cells)
    assert drawn == {cell: LOOKS[codes_LT[cell]].fill for cell in cells}
    assert len(set(drawn.values())) > 2


def test_a_click_moves_cursor_and_inspector(stepper: Stepper) -> None:
    stepper.click((3, 7))
    stepper.at((3, 7))
    assert stepper.cursor() == (3, 7)
    expect(stepper.live).to_contain_text("layer 3 token 7")
    expect(stepper.grid).to_be_focused()


def test_hovering_previews_and_leaving_restores(stepper: Stepper) -> None:
    stepper.click((3, 7))
    stepper.at((3, 7))
    stepper.hover((5, 2))
    stepper.at((5, 2))
    expect(stepper.inspector).to_contain_text("preview")
    assert stepper.cursor() == (3, 7)
    stepper.page.mouse.move(5, 5)
    stepper.at((3, 7))
    expect(stepper.inspector).not_to_contain_text("preview")


@pytest.mark.parametrize("walk", WALKS.values(), ids=WALKS)
def test_keys_do_what_they_do_in_the_view_model(
    stepper: Stepper, faulty: Path, walk: list[str]
) -> None:
    model = ViewModel(open_comparison(faulty))
    for key in walk:
        model.act(ACTION_OF[key])
    stepper.press_in_grid(*walk)
    state = model.state
    stepper.at(state.cell)
    expect(stepper.headline).to_have_text(headline(model).text)
    pin = None if state.pin is None else list(state.pin)
    held = ("cursor", "klass", "lens", "model.state.site", "pin")
    assert [stepper.value(name) for name in held] == [
        list(state.cell),
        state.klass,
        state.lens,
        state.site,
        pin,
    ]


def test_a_lens_by_key_and_by_the_control_give_the_same_picture(stepper: Stepper) -> None:
    combined = stepper.picture()
    stepper.press_in_grid("1")
    expect(stepper.looking).to_contain_text("1 router set")
    stepper.becomes_other_than(combined)
    by_key = stepper.picture()
    expect(stepper.control("lens").locator("option:checked")).to_contain_text("router set")
    stepper.control("lens").select_option(label="3 combined output")
    expect(stepper.looking).to_contain_text("3 combined output")
    stepper.becomes(combined)
    stepper.control("lens").select_option(label="1 router set")
    stepper.becomes(by_key)
    assert stepper.value("lens") == "router"


def test_python_moves_the_widget_and_hears_of_it(stepper: Stepper) -> None:
    stepper.execute("heard = []")
    stepper.execute("shown.divergence.observe(lambda c: heard.append(c['new']), 'cursor')")
    stepper.execute("shown.divergence.cursor = (4, 12)")
    stepper.at((4, 12))
    stepper.press_in_grid("j")
    stepper.at((5, 12))
    assert stepper.python("heard") == "[(4, 12), (5, 12)]"


HOLD_CELLS = """
widget, held = shown.divergence, []
send, widget.held = widget.send, []
def hold(content, buffers):
    if content["op"] == "cell":
        held.append((content, buffers))
        widget.held = [content["at"] for content, _ in held]
    else:
        send(content, buffers)
widget.send = hold
"""
"""Answers that say what a cell holds stay in Python."""


def test_a_late_answer_does_not_bring_back_a_cell_that_was_left(stepper: Stepper) -> None:
    stepper.execute(HOLD_CELLS)
    stepper.execute("widget.cursor = (4, 12)")
    assert stepper.settled("held", [[4, 12]])
    stepper.press_in_grid("j")
    stepper.at((5, 12))
    stepper.execute("for late in held: send(*late)\nwidget.send = send")
    # Python says this after what was held, so by then that has been shown or dropped.
    stepper.execute("widget.link = 'a late answer'")
    expect(stepper.looking).to_contain_text("linked by a late answer")
    stepper.at((5, 12))


def test_a_drag_selects_cells_as_a_frame(stepper: Stepper) -> None:
    stepper.drag((1, 4), (3, 8))
    assert stepper.settled("selection", [[1, 4, 4, 9]])
    assert stepper.python("shown.frame().shape[0]") == str(3 * 5)


def test_the_strip_on_top_jumps_and_tiles_follow(stepper: Stepper, reference: ViewModel) -> None:
    strip = stepper.root.locator(".kld-map")
    box = strip.bounding_box()
    assert box is not None
    strip.click(position={"x": box["width"] - 3, "y": 10})
    last = reference.num_rows - 1
    stepper.at((reference.state.layer, last))
    codes_LT = reference.codes("combined")
    cells = [(layer, last) for layer in range(reference.num_layers)]
    assert stepper.drawn_colours(cells) == {c: LOOKS[codes_LT[c]].fill for c in cells}


def test_a_sideways_wheel_pans_and_leaves_the_cursor(stepper: Stepper) -> None:
    before, cursor = stepper.value("window"), stepper.cursor()
    stepper.hover((2, 4))
    stepper.page.mouse.wheel(200, 0)
    wanted = [before[0], before[1], before[2] + 10, before[3] + 10]
    assert stepper.settled("window", wanted)
    assert stepper.cursor() == cursor


def test_zooming_keeps_the_cursor_on_the_screen(stepper: Stepper) -> None:
    stepper.click((4, 30))
    closest = stepper.picture()
    stepper.press_in_grid("Z", "Z")
    stepper.becomes_other_than(closest)
    l0, l1, t0, t1 = stepper.value("window")
    assert l0 <= 4 < l1
    assert t0 <= 30 < t1
    stepper.press_in_grid("0")
    assert stepper.settled("window", [0, 6, 0, 180])


CELLS: list[Cell] = [(0, 0), (5, 20), (2, 40)]


@pytest.mark.parametrize("cell", CELLS)
def test_the_inspector_says_what_python_says(stepper: Stepper, cell: Cell) -> None:
    stepper.click(cell)
    stepper.at(cell)
    said = stepper.inspected(cell)
    expect(stepper.root.locator(".kld-meaning")).to_contain_text(said["meaning"])
    for panel in said["panels"]:
        shown = stepper.root.locator(f".kld-panel-{panel['id']}")
        expect(shown).to_contain_text(panel["title"])
        for row in panel["rows"]:
            for text in row["cells"]:
                expect(shown).to_contain_text(text)
