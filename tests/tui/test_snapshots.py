"""The look of the screen, frozen as SVG. Update with `pytest tests/tui --snapshot-update`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import textual

from tests.view.attributed import attributed
from tests.view.synthetic import ArraySource, make_source
from tui.app import KldiveApp

pytestmark = pytest.mark.skipif(
    textual.__version__ != "8.2.8",
    reason=f"drawn with textual 8.2.8, and this is {textual.__version__}",
)
Compare = Callable[..., bool]
EVENTS: dict[str, Any] = {
    "noise": 1e-3,
    "flips": ((2, 14), (1, 40)),
    "unexplained": ((2, 58),),
    "jumps": {(2, 59): 2.0, (3, 60): 0.3},
    "nans": ((1, 90),),
    "dlogp": {60: -0.9},
}


def guilty() -> ArraySource:
    """Everything at once, and L1's routed experts wrong from row 7 on."""
    culprits = {(1, row, "routed_experts"): 0.002 * row for row in range(7, 30)}
    source = make_source(num_rows=400, **EVENTS)
    return attributed(source, culprits, noise=1e-3, unseen=((2, 20),), swaps=True)


@pytest.fixture(autouse=True)
def colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
def test_the_main_screen(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert snap_compare(KldiveApp(make_source(num_rows=400, **EVENTS)), terminal_size=size)


def test_many_layers(snap_compare: Compare) -> None:
    app = KldiveApp(make_source(num_layers=48, num_rows=600, **EVENTS))
    assert snap_compare(app, press=["3"], terminal_size=(120, 40))


def test_identical(snap_compare: Compare) -> None:
    assert snap_compare(KldiveApp(make_source(num_rows=60)), terminal_size=(100, 35))


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_a_local_error(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert snap_compare(KldiveApp(guilty()), terminal_size=size)


def test_the_screen_of_swaps(snap_compare: Compare) -> None:
    assert snap_compare(KldiveApp(guilty()), press=["w"], terminal_size=(120, 40))


def test_the_menu_of_classes(snap_compare: Compare) -> None:
    app = KldiveApp(make_source(num_rows=400, **EVENTS))
    assert snap_compare(app, press=["c"], terminal_size=(100, 35))


def test_on_light_ground(snap_compare: Compare) -> None:
    assert snap_compare(KldiveApp(guilty()), press=["T"], terminal_size=(120, 40))


def test_a_filter_and_a_selection(snap_compare: Compare) -> None:
    app = KldiveApp(make_source(num_rows=400, **EVENTS))
    keys = ["v", "l", "l", "j", "v", "F", *"L1-3", "enter"]
    keys[keys.index("-")] = "minus"
    assert snap_compare(app, press=keys, terminal_size=(120, 40))


def test_the_prompt_with_an_error(snap_compare: Compare) -> None:
    app = KldiveApp(make_source(num_rows=400, **EVENTS))
    assert snap_compare(app, press=["colon", *"L9"], terminal_size=(100, 35))


def test_without_colour(snap_compare: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = KldiveApp(make_source(num_rows=400, **EVENTS))
    assert snap_compare(app, press=["3", "Z"], terminal_size=(100, 35))
