"""The keyboard belongs to the widget while its grid has the focus, and to the notebook after."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.lab import Lab
from tests.browser.stepper import Stepper

pytestmark = [pytest.mark.browser, pytest.mark.slow]

# Insert above and below, cut, copy, paste, delete, markdown, undo, line numbers, edit: what these
# do to a notebook in command mode. Some mean something in the widget, some nothing.
NOTEBOOK_KEYS = ["a", "b", "x", "c", "Escape", "v", "d", "d", "m", "y", "r", "1", "Z", "L", "Enter"]


def test_no_shortcut_of_the_notebook_fires_in_the_grid(stepper: Stepper) -> None:
    lab = stepper.lab
    stepper.answered()
    before = lab.cells()
    for key in NOTEBOOK_KEYS:
        stepper.focus()
        stepper.press(key)
    stepper.answered()
    assert lab.cells() == before
    assert lab.mode() == "command"


def test_escape_gives_the_keyboard_back(stepper: Stepper) -> None:
    lab = stepper.lab
    before = lab.cells()
    stepper.press_in_grid("j", "Escape")
    expect(stepper.grid).not_to_be_focused()
    lab.page.keyboard.press("b")
    lab.page.wait_for_function(
        "(count) => window.jupyterapp.shell.currentWidget.content.widgets.length === count",
        arg=len(before) + 1,
    )
    lab.command("notebook:delete-cell")
    assert lab.cells() == before


def test_help_lists_every_key_and_escape_closes_it(stepper: Stepper) -> None:
    stepper.press_in_grid("?")
    box = stepper.dialog
    expect(box).to_be_visible()
    for action in stepper.value("_about")["actions"]:
        expect(box).to_contain_text(action["title"])
    stepper.press("Escape")
    expect(box).to_have_count(0)
    expect(stepper.grid).to_be_focused()


def test_a_class_is_chosen_from_the_menu_with_keys(stepper: Stepper) -> None:
    stepper.press_in_grid("c")
    chosen = stepper.dialog.locator("button:focus")
    expect(chosen).to_contain_text("unexplained flip")
    while "above rounding" not in chosen.inner_text():
        stepper.press("ArrowDown")
    stepper.press("Enter")
    expect(stepper.dialog).to_have_count(0)
    expect(stepper.looking).to_contain_text("above rounding")
    assert stepper.settled("klass", "rounding")
    expect(stepper.grid).to_be_focused()


def test_an_address_is_gone_to_and_nonsense_explained(stepper: Stepper) -> None:
    stepper.press_in_grid(":")
    line = stepper.dialog.get_by_role("textbox")
    expect(line).to_be_focused()
    line.fill("nowhere at all")
    stepper.press("Enter")
    expect(stepper.dialog.locator(".kld-error")).to_contain_text("nowhere")
    line.fill("L4 t20")
    stepper.press("Enter")
    expect(stepper.dialog).to_have_count(0)
    stepper.at((4, 20))
    assert stepper.cursor() == (4, 20)


def test_typing_in_the_widget_never_reaches_the_notebook(stepper: Stepper) -> None:
    before = stepper.lab.cells()
    stepper.press_in_grid("/")
    line = stepper.dialog.get_by_role("textbox")
    expect(line).to_be_focused()
    line.press_sequentially("abxdd")
    expect(line).to_have_value("abxdd")
    stepper.press("Escape")
    assert stepper.lab.cells() == before


def test_found_text_is_stepped_through(stepper: Stepper) -> None:
    stepper.press_in_grid("/")
    stepper.dialog.get_by_role("textbox").fill("a")
    stepper.press("Enter")
    expect(stepper.looking).to_contain_text("find: a")
    stepper.press("n")
    rows = stepper.python("[int(r) for r in shown.divergence.model.hits('a')]")
    assert str(stepper.cursor()[1]) in rows.strip("[]").split(", ")


def test_a_cell_and_the_code_for_it_are_copied(stepper: Stepper, notebook: Lab) -> None:
    stepper.press_in_grid("y")
    expect(stepper.live).to_have_text("copied")
    held = "() => navigator.clipboard.readText()"
    text = notebook.page.evaluate(held)
    assert "L2" in text
    assert "rel L2" in text or "rel_l2" in text
    stepper.press_in_grid("Y")
    expect(stepper.headline).to_contain_text("Python")
    assert stepper.python("shown.to_code()") in notebook.page.evaluate(held)


def test_tab_goes_on_to_what_follows(stepper: Stepper) -> None:
    stepper.focus()
    stepper.press("Tab")
    expect(stepper.grid).not_to_be_focused()
