"""The look of the drill, frozen as SVG. Update with `pytest tests/tui --snapshot-update`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import textual

from tests.tui.test_snapshots import EVENTS, guilty
from tests.view.synthetic import make_source
from tests.view.vectors import with_vectors
from tui.app import KldiveApp
from workbench.address import parse_address

pytestmark = pytest.mark.skipif(
    textual.__version__ != "8.2.8",
    reason=f"drawn with textual 8.2.8, and this is {textual.__version__}",
)
Compare = Callable[..., bool]
FLIP = parse_address("L2 t14 mlp_out")


@pytest.fixture(autouse=True)
def colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")


def app_at_a_flip() -> KldiveApp:
    return KldiveApp(with_vectors(make_source(num_rows=400, **EVENTS)), at=FLIP)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_the_vectors(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert snap_compare(app_at_a_flip(), press=["enter"], terminal_size=size)


def test_the_experts(snap_compare: Compare) -> None:
    assert snap_compare(app_at_a_flip(), press=["enter", "2"], terminal_size=(80, 24))


def test_down_the_layers(snap_compare: Compare) -> None:
    app = KldiveApp(guilty(), at=parse_address("L1 t20 mlp_out"))
    assert snap_compare(app, press=["enter", "3"], terminal_size=(80, 24))


def test_across_tokens_by_size(snap_compare: Compare) -> None:
    assert snap_compare(app_at_a_flip(), press=["enter", "4", "o"], terminal_size=(120, 40))


def test_against_the_pin(snap_compare: Compare) -> None:
    keys = ["p", "l", "l", "enter", "5"]
    assert snap_compare(app_at_a_flip(), press=keys, terminal_size=(80, 24))
