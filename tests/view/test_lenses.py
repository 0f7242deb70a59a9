import numpy as np

from tests.view.synthetic import make_source
from workbench.view.lenses import (
    LENSES,
    is_error_lens,
    lens_codes,
    lens_of_site,
    missing_cells,
)
from workbench.view.palette import ABSENT, EQUAL, code_of_level


def test_an_equal_pair_is_equal_through_every_lens() -> None:
    source = make_source(num_rows=50)
    idle = (source.rows["state_a"] != "computed").to_numpy()
    unscored = source.rows["logprob_a"].is_null().to_numpy()
    for lens in (lens for lens in LENSES if not is_error_lens(lens)):
        codes = lens_codes(source, lens)
        absent = unscored if lens == "logprob" else idle
        assert codes.dtype == np.uint8
        assert codes.shape == (4, 50)
        assert set(codes[:, ~absent].ravel()) == {EQUAL}
        assert set(codes[:, absent].ravel()) == {ABSENT}


def test_router_levels_tell_an_explained_flip_from_an_unexplained_one() -> None:
    codes = lens_codes(make_source(flips=((1, 5),), unexplained=((2, 6),)), "router")
    assert codes[1, 5] == code_of_level(3)
    assert codes[2, 6] == code_of_level(5)
    assert codes[1, 6] == EQUAL


def test_numeric_levels_are_decades_above_the_budget() -> None:
    budget = float(make_source().budgets().layer["mlp_out"][1])
    jumps = {(1, row): budget * factor for row, factor in enumerate((0.5, 5, 50, 500, 5000))}
    codes = lens_codes(make_source(jumps=jumps), "combined")
    assert codes[1, :5].tolist() == [code_of_level(level) for level in (1, 2, 3, 4, 5)]


def test_levels_do_not_depend_on_what_else_is_there() -> None:
    alone = lens_codes(make_source(jumps={(1, 3): 0.2}), "combined")[1, 3]
    beside = lens_codes(make_source(jumps={(1, 3): 0.2, (2, 9): 1e6}), "combined")[1, 3]
    assert alone == beside


def test_nan_has_the_highest_level() -> None:
    codes = lens_codes(make_source(nans=((1, 4),)), "combined")
    assert codes[1, 4] == code_of_level(6)


def test_a_site_that_was_never_recorded_is_absent_and_not_equal() -> None:
    source = make_source(num_rows=20)
    source._columns = {k: v for k, v in source._columns.items() if not k.startswith("mlp_out")}
    assert set(lens_codes(source, "combined").ravel()) == {ABSENT}
    assert missing_cells(source, "combined") == 0


def test_a_layer_that_was_lost_is_missing_and_counted() -> None:
    source = make_source(num_rows=20)
    source._absent["mlp_out.rel_l2"][2] = True
    source._columns["mlp_out.rel_l2"][2] = np.nan
    source._columns["mlp_out.bit_equal"][2] = False
    computed = (source.rows["state_a"] == "computed").to_numpy()
    assert set(lens_codes(source, "combined")[2, computed]) == {code_of_level(6)}
    assert missing_cells(source, "combined") == computed.sum()
    assert missing_cells(source, "residual") == 0


def test_dense_layers_have_no_router_to_compare() -> None:
    source = make_source(num_rows=20)
    source.summary["a"]["model"]["layer_kinds"] = ["dense", "moe", "moe", "moe"]
    source._absent["topk.set_equal"][0] = True
    codes = lens_codes(source, "router")
    assert set(codes[0]) == {ABSENT}
    assert EQUAL in codes[1]


def test_logprob_levels_are_the_same_for_every_layer() -> None:
    codes = lens_codes(make_source(dlogp={7: 3.0}), "logprob")
    assert (codes == codes[0]).all()
    assert codes[0, 7] > code_of_level(1)


def test_every_recorded_site_has_a_lens() -> None:
    assert lens_of_site("topk_ids") == "router"
    assert lens_of_site("topk_weights") == "gates"
    assert lens_of_site("routed_out") == "combined"
    assert lens_of_site("attn_in") == "residual"
    assert lens_of_site("logprobs") == "logprob"


def test_lens_keys_and_legends_are_complete() -> None:
    assert [lens.key for lens in LENSES.values()] == ["1", "2", "3", "4", "5", "6", "6", "6"]
    assert all(len(lens.legend) == 7 for lens in LENSES.values())
