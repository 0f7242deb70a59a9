import numpy as np
import pytest

from tests.view.synthetic import make_source
from workbench.errors import UsageError
from workbench.view.filters import NO_FILTER, Filter, parse_filter
from workbench.view.frame import cells_frame, chosen_cells
from workbench.view.model import ViewModel
from workbench.view.palette import HIDDEN, code_of_level
from workbench.view.state import Cell


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", NO_FILTER),
        ("  ", NO_FILTER),
        ("L3", Filter(layers=(3, 3))),
        ("l4-12 T100-", Filter(layers=(4, 12), rows=(100, None))),
        ("level >= 3", Filter(level=3)),
        (">=3 e17", Filter(level=3, expert=17)),
        ("≥2 L0-0", Filter(level=2, layers=(0, 0))),
    ],
)
def test_a_filter_is_read_from_a_line(text: str, wanted: Filter) -> None:
    assert parse_filter(text) == wanted
    assert parse_filter(str(wanted)) == wanted


@pytest.mark.parametrize("text", ["x", "L3 L4", "L5-3", ">=7", "L", "level", "e", "L-3", "3"])
def test_anything_else_is_said_to_be_wrong(text: str) -> None:
    with pytest.raises(UsageError):
        parse_filter(text)


def model() -> ViewModel:
    return ViewModel(make_source(num_rows=60, flips=((1, 5), (3, 12)), unexplained=((2, 9),)))


def test_hidden_cells_have_their_own_code_and_the_rest_is_untouched() -> None:
    found = model()
    plain_LT = found.codes().copy()
    found.choose_filter(parse_filter("L1-2 t5-9"))
    codes_LT = found.codes()
    assert np.array_equal(codes_LT[1:3, 5:10], plain_LT[1:3, 5:10])
    codes_LT = codes_LT.copy()
    codes_LT[1:3, 5:10] = HIDDEN
    assert set(codes_LT.ravel()) == {HIDDEN}
    found.act("filter.clear")
    assert np.array_equal(found.codes(), plain_LT)


def test_a_least_level_is_of_the_lens_that_is_looked_through() -> None:
    found = model()
    found.act("lens.router")
    found.choose_filter(parse_filter(">=5"))
    assert np.argwhere(found.codes() >= code_of_level(0)).tolist() == [[2, 9]]
    found.act("lens.gates")
    shown_LT = found.grids.shown(found.state)
    assert shown_LT is not None
    assert np.array_equal(shown_LT, found.grids.unfiltered(found.state) >= code_of_level(5))


def test_jumps_and_counts_keep_to_what_is_shown() -> None:
    found = model()
    assert len(found.jumps("flip", "token")) == 3
    found.choose_filter(parse_filter("t0-9"))
    assert len(found.jumps("flip", "token")) == 2
    found.choose_class("flip")
    assert found.count_in_layer(3, 0, 60) == 0
    assert found.first_rows()["flip"] == 5
    found.choose_filter(parse_filter("t20-"))
    found.act("jump.first")
    assert (
        "backspace" in found.state.message or found.state.message == "no other class has an entry"
    )


def test_an_expert_shows_where_either_side_selected_it() -> None:
    found = model()
    found.choose_filter(parse_filter("e3"))
    shown_LT = found.grids.shown(found.state)
    assert shown_LT is not None
    for layer, row in np.argwhere(shown_LT)[:10].tolist():
        pair = found.source.cell(layer, row, "topk_ids")
        assert pair.a is not None
        assert pair.b is not None
        assert 3 in pair.a or 3 in pair.b
    hidden = np.argwhere(~shown_LT & (found.source.rows["state_a"] == "computed").to_numpy())
    for layer, row in hidden[:10].tolist():
        pair = found.source.cell(layer, row, "topk_ids")
        assert pair.a is not None
        assert 3 not in pair.a


def test_the_table_of_cells_is_the_selection_else_the_shown_else_all() -> None:
    found = model()
    assert len(chosen_cells(found)[0]) == 4 * 60
    found.choose_filter(parse_filter("L1"))
    assert len(chosen_cells(found)[0]) == 60
    found.select(Cell(0, 4), Cell(1, 6))
    layers, rows = chosen_cells(found)
    assert list(zip(layers, rows, strict=True)) == [(1, 4), (1, 5), (1, 6)]
    frame = cells_frame(found)
    assert frame["row"].to_list() == [4, 5, 6]
    assert frame["topk.set_equal"].to_list() == [True, False, True]
    # Not judged where there is no flip: null, and no False that could be taken for a verdict.
    assert frame["topk.explained"].to_list() == [None, True, None]


def test_a_table_of_no_cell_has_its_columns() -> None:
    found = model()
    found.choose_filter(parse_filter("L1 t59-59 >=6"))
    frame = cells_frame(found)
    assert frame.height == 0
    assert "mlp_out.rel_l2" in frame.columns
