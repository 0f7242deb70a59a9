from dataclasses import replace

import pytest

from tests.view.synthetic import make_source
from workbench.address import parse_address
from workbench.errors import CaptureError
from workbench.view.cell_text import cell_text
from workbench.view.geometry import Viewport
from workbench.view.model import ViewModel
from workbench.view.state import DENSE_ZOOM, TEXT_ZOOM, Cell

FLIPS = ((1, 5), (3, 2), (0, 8))


def model_of(**events: object) -> ViewModel:
    model = ViewModel(make_source(**events))  # type: ignore[arg-type]
    model.resize(Viewport(columns=60, lines=20), opening=True)
    return model


def act(model: ViewModel, *ids: str) -> ViewModel:
    for action_id in ids:
        model.act(action_id)
    return model


def test_opens_at_the_first_entry_of_the_leading_class() -> None:
    model = model_of(flips=FLIPS, unexplained=((2, 9),))
    assert model.state.klass == "unexplained_flip"
    assert model.state.cell == Cell(2, 9)
    assert (model.state.lens, model.state.site) == ("router", "topk_ids")


def test_opens_where_it_is_asked_to() -> None:
    model = ViewModel(make_source(flips=FLIPS), at=parse_address("L1 t7 mlp_out"))
    assert model.state.cell == Cell(1, 7)
    assert model.state.site == "mlp_out"


def test_an_address_beyond_the_end_is_kept_inside() -> None:
    model = ViewModel(make_source(num_rows=20), at=parse_address("L99 t9999"))
    assert model.state.cell == Cell(3, 19)


def test_opens_where_the_error_enters_when_total_error_tells() -> None:
    source = make_source(flips=FLIPS)
    source.summary["jump"] = {"layer": 2, "site": "mlp_out", "scale": 1.02, "constant": True}
    model = ViewModel(source)
    assert (model.state.layer, model.state.site, model.state.lens) == (2, "mlp_out", "combined")


@pytest.mark.parametrize(
    ("action", "cell"),
    [
        ("cursor.left", Cell(1, 4)),
        ("cursor.right", Cell(1, 6)),
        ("cursor.up", Cell(0, 5)),
        ("cursor.down", Cell(2, 5)),
        ("token.first", Cell(1, 0)),
        ("token.last", Cell(1, 59)),
        ("layer.first", Cell(0, 5)),
        ("layer.last", Cell(3, 5)),
    ],
)
def test_moving(action: str, cell: Cell) -> None:
    model = model_of()
    model.move_to(Cell(1, 5))
    assert act(model, action).state.cell == cell


def test_moving_stops_at_the_edges() -> None:
    model = model_of(num_rows=3)
    act(model, *["cursor.left", "cursor.up"] * 3)
    assert model.state.cell == Cell(0, 0)
    act(model, *["cursor.right", "cursor.down"] * 9)
    assert model.state.cell == Cell(3, 2)


def test_a_column_is_the_step_when_zoomed_out() -> None:
    model = model_of(num_rows=500)
    model.state = replace(model.state, zoom=DENSE_ZOOM + 3, row=0)
    assert act(model, "cursor.right").state.row == 8


def test_next_follows_the_scan_order() -> None:
    model = model_of(flips=FLIPS)
    assert model.state.cell == Cell(3, 2)
    assert act(model, "jump.next").state.cell == Cell(1, 5)
    assert act(model, "jump.next").state.cell == Cell(0, 8)
    assert act(model, "jump.previous").state.cell == Cell(1, 5)
    act(model, "order.toggle")
    assert act(model, "jump.next").state.cell == Cell(3, 2)
    assert act(model, "jump.previous").state.cell == Cell(1, 5)


def test_the_end_of_the_class_is_said_and_the_cursor_stays() -> None:
    model = act(model_of(flips=FLIPS), "jump.next", "jump.next", "jump.next")
    assert model.state.cell == Cell(0, 8)
    assert "no flip after this cell" in model.state.message
    assert act(model, "back").state.message == ""


def test_first_again_goes_to_the_next_class() -> None:
    model = model_of(flips=FLIPS, unexplained=((2, 9),))
    act(model, "cursor.right", "jump.first")
    assert (model.state.klass, model.state.cell) == ("unexplained_flip", Cell(2, 9))
    act(model, "jump.first")
    assert model.state.klass != "unexplained_flip"
    assert len(model.jumps(model.state.klass, "token"))


def test_choosing_an_empty_class_changes_nothing_but_the_message() -> None:
    model = model_of(flips=FLIPS)
    before = model.choose_class("local_error")
    assert replace(model.state, message="") == replace(before, message="")
    assert "no local error" in model.state.message


def test_a_lens_puts_its_site_in_focus() -> None:
    model = act(model_of(), "lens.combined")
    assert (model.state.lens, model.state.site) == ("combined", "mlp_out")


def test_stepping_goes_through_the_sites_of_a_layer_and_on_to_the_next() -> None:
    model = ViewModel(make_source(), at=parse_address("L1 t7 input"))
    walked = [model.state.site] + [act(model, "site.next").state.site for _ in model.sites[1:]]
    assert tuple(walked) == model.sites
    assert act(model, "site.next").state.cell == Cell(2, 7)
    assert model.state.site == model.sites[0]


def test_zooming_goes_between_text_and_everything() -> None:
    model = model_of(num_rows=3000)
    assert model.state.zoom == TEXT_ZOOM
    act(model, "zoom.in")
    assert model.state.zoom == TEXT_ZOOM
    assert model.state.message
    act(model, "zoom.fit")
    fit = model.state.zoom
    assert fit > DENSE_ZOOM
    assert act(model, "zoom.out").state.zoom == fit


def test_pin_and_marks() -> None:
    model = act(model_of(), "pin.set", "mark.toggle")
    here = model.state.cell
    assert (model.state.pin, model.state.marks) == (here, frozenset({here}))
    act(model, "pin.clear", "mark.toggle")
    assert (model.state.pin, model.state.marks) == (None, frozenset())


def test_a_page_is_what_can_be_seen() -> None:
    model = model_of(num_rows=3000)
    model.move_to(Cell(0, 0))
    # 30 cells of two columns in a band, and three bands of six lines in 20 lines.
    assert act(model, "page.forward").state.row == 90
    assert act(model, "page.back").state.row == 0


def test_actions_of_the_face_are_refused() -> None:
    with pytest.raises(KeyError, match="belongs to the face"):
        model_of().act("quit")


def test_requests_are_runs_of_rows() -> None:
    model = model_of(num_rows=60)
    first, stop = model.request_rows(30)
    names = model.source.rows["request"]
    assert set(names[first:stop]) == {names[30]}
    assert first == 0 or names[first - 1] != names[30]
    assert stop == 60 or names[stop] != names[30]


def test_a_comparison_without_rows_opens() -> None:
    model = model_of(num_rows=0)
    act(model, "cursor.right", "jump.next", "jump.first", "zoom.fit", "token.last")
    assert model.state.cell == Cell(0, 0)


def test_a_moved_capture_leaves_the_numbers_that_need_no_vectors() -> None:
    source = make_source(flips=FLIPS)

    def moved(layer: int, row: int, site: str) -> object:
        raise CaptureError("the capture of side A is not where it was compared")

    source.cell = moved  # type: ignore[method-assign,assignment]
    facts = ViewModel(source).cell_facts()
    assert facts.router is None
    assert "not where it was" in facts.problem
    assert any(site.known for site in facts.sites)


def test_the_worst_of_a_window_is_the_worst_of_its_cells() -> None:
    model = model_of(flips=((1, 5),))
    codes = model.codes()
    assert model.worst_code(0, 4, 0, 60) == codes.max()
    assert model.worst_code(0, 1, 0, 60) == codes[0].max()
    assert model.worst_code(1, 2, 4, 7) == codes[1, 4:7].max()


def test_the_copied_text_names_sides_and_direction() -> None:
    text = cell_text(model_of(flips=FLIPS))
    assert "A (rollout)" in text
    assert "B (trainer)" in text
    assert "A minus B" in text
    assert "expert" in text
