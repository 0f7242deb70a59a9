from tests.view.synthetic import make_source
from workbench.view.model import ViewModel
from workbench.view.state import Area, Cell

FLIPS = ((1, 5), (3, 2), (0, 8))


def model() -> ViewModel:
    return ViewModel(make_source(num_rows=60, flips=FLIPS))


def test_back_and_forward_retrace_the_leaps() -> None:
    found = model()
    for _ in range(2):
        found.act("jump.next")
    assert found.state.cell == Cell(0, 8)
    found.act("history.back")
    found.act("history.back")
    assert found.state.cell == Cell(3, 2)
    found.act("history.forward")
    assert found.state.cell == Cell(1, 5)
    found.act("history.forward")
    found.act("history.forward")
    assert found.state.cell == Cell(0, 8)
    assert found.state.message == "no later place"


def test_steps_of_the_cursor_are_no_leaps_but_lead_back_to_where_they_ended() -> None:
    found = model()
    found.act("cursor.right")
    found.act("cursor.down")
    assert found.state.past == ()
    left = found.state.cell
    found.act("jump.next")
    found.act("history.back")
    assert found.state.cell == left


def test_a_new_leap_forgets_what_lay_ahead() -> None:
    found = model()
    found.act("jump.next")
    found.act("history.back")
    found.move_to(Cell(2, 40))
    assert found.state.future == ()


def test_there_is_nothing_before_the_first_place() -> None:
    found = model()
    found.act("history.back")
    assert "no earlier place" in found.state.message


def test_an_area_follows_the_cursor_until_it_is_kept() -> None:
    found = model()
    found.move_to(Cell(1, 10))
    found.act("area.select")
    for action in ("cursor.down", "cursor.left", "cursor.left"):
        found.act(action)
    assert found.state.area == Area(Cell(1, 10), Cell(2, 8))
    assert (found.state.area.layers, found.state.area.rows) == ((1, 3), (8, 11))
    found.act("area.select")
    found.act("cursor.down")
    assert found.state.area == Area(Cell(1, 10), Cell(2, 8))
    found.act("back")
    assert found.state.area is None
