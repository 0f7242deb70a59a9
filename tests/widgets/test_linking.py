"""Two steppers in step: by token, by layer, by cell; no loop, no surprise where they differ."""

from __future__ import annotations

import pytest

from tests.view.synthetic import make_source
from tests.widgets.conftest import Wire
from workbench.errors import UsageError
from workbench.widgets.divergence import Divergence
from workbench.widgets.linking import By, link
from workbench.widgets.panel import Workbench, view


def stepper(num_rows: int = 60, num_layers: int = 4) -> Divergence:
    """One flip at L1 t5."""
    return Divergence(make_source(num_rows=num_rows, num_layers=num_layers, flips=((1, 5),)))


@pytest.mark.parametrize(
    ("by", "follower"), [("token", (2, 30)), ("layer", (3, 10)), ("cell", (3, 30))]
)
def test_what_is_followed(wire: Wire, by: By, follower: tuple[int, int]) -> None:
    first, second = stepper(), stepper()
    link(first, second, by=by)
    second.cursor = (2, first.cursor[1])
    first.cursor = (1, 10)
    second.cursor = (2, second.cursor[1] if by != "layer" else 10)
    first.cursor = (3, 30)
    assert second.cursor == follower


def test_both_lead(wire: Wire) -> None:
    first, second = stepper(), stepper()
    link(first, second, by="cell")
    second.cursor = (3, 40)
    assert first.cursor == (3, 40)
    assert first.link == second.link == "cell"


def test_a_move_is_told_once(wire: Wire) -> None:
    first, second = stepper(), stepper()
    link(first, second, by="cell")
    seen: list[object] = []
    for widget in (first, second):
        widget.observe(lambda change: seen.append(change["new"]), names="cursor")
    first.cursor = (2, 33)
    assert seen == [(2, 33), (2, 33)]


def test_windows_move_together(wire: Wire) -> None:
    first, second = stepper(3000), stepper(3000)
    link(first, second)
    size = first.window[3] - first.window[2]
    first.window = (0, 4, 700, 700 + size)
    assert second.window[2] == 700


def test_a_token_that_the_other_does_not_have_moves_nothing(wire: Wire) -> None:
    first, second = stepper(120), stepper(30)
    link(first, second)
    before = second.cursor
    first.cursor = (0, 110)
    assert second.cursor == before


def test_a_layer_that_the_other_does_not_have_is_its_last(wire: Wire) -> None:
    first, second = stepper(num_layers=6), stepper(num_layers=2)
    link(first, second, by="layer")
    first.cursor = (5, 3)
    assert second.cursor[0] == 1


@pytest.mark.parametrize("how", ["unlink", "trait"])
def test_they_let_go(wire: Wire, how: str) -> None:
    first, second = stepper(), stepper()
    found = link(first, second, by="cell")
    if how == "unlink":
        found.unlink()
    else:
        second.link = ""
    before = second.cursor
    first.cursor = (3, 44)
    assert second.cursor == before


def test_widgets_with_controls_are_linked_by_their_steppers(wire: Wire) -> None:
    first: Workbench = view(make_source(flips=((1, 5),)))
    second = stepper()
    link(first, second, by="cell")
    first.divergence.cursor = (0, 12)
    assert second.cursor == (0, 12)


def test_nonsense_is_refused(wire: Wire) -> None:
    one = stepper()
    with pytest.raises(UsageError, match="linked with itself"):
        link(one, one)
    with pytest.raises(UsageError, match="did you mean token"):
        link(one, stepper(), by="tokens")  # type: ignore[arg-type]
