"""Light and dark, wide and narrow: every text can be read, and none is cut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import VIEWPORT
from tests.browser.lab import Lab
from tests.browser.looks import contrasts, cut_texts
from tests.browser.stepper import Stepper

pytestmark = [pytest.mark.browser, pytest.mark.slow]

THEMES = ["JupyterLab Light", "JupyterLab Dark", "JupyterLab Dark High Contrast"]
READABLE = 4.5
"""Contrast of text by WCAG 2, level AA."""


@pytest.fixture(params=THEMES)
def theme(lab: Lab, request: pytest.FixtureRequest) -> Iterator[str]:
    lab.theme(request.param)
    yield request.param.removeprefix("JupyterLab ").lower().replace(" ", "-")
    lab.theme(THEMES[0])


@pytest.fixture(params=[900, 1440, 2200])
def width(lab: Lab, request: pytest.FixtureRequest) -> Iterator[int]:
    lab.page.set_viewport_size({"width": request.param, "height": VIEWPORT[1]})
    yield request.param
    lab.page.set_viewport_size({"width": VIEWPORT[0], "height": VIEWPORT[1]})


def test_every_text_stands_out(theme: str, stepper: Stepper, screenshots: Path) -> None:
    stepper.press_in_grid("n")
    expect(stepper.headline).to_contain_text("first unexplained flip")
    stepper.photograph(screenshots / f"stepper-{theme}.png")
    found = contrasts(stepper.root)
    assert len(found) > 100
    assert [pair for pair in found if pair.ratio < READABLE] == []


def test_every_text_of_a_dialog_stands_out(theme: str, stepper: Stepper, screenshots: Path) -> None:
    for key, name in {"?": "help", "c": "classes", ":": "go-to"}.items():
        stepper.press_in_grid(key)
        expect(stepper.dialog).to_be_visible()
        stepper.photograph(screenshots / f"{name}-{theme}.png")
        assert [pair for pair in contrasts(stepper.dialog) if pair.ratio < READABLE] == []
        stepper.press("Escape")
        expect(stepper.dialog).to_have_count(0)


def test_no_text_is_cut(width: int, stepper: Stepper, screenshots: Path) -> None:
    stepper.press_in_grid("n")
    expect(stepper.headline).to_contain_text("first unexplained flip")
    stepper.photograph(screenshots / f"stepper-{width}.png")
    assert cut_texts(stepper.root) == []
