import numpy as np
import polars as pl

from tests.view.attributed import attributed
from tests.view.synthetic import make_source
from workbench.view.model import ViewModel
from workbench.view.palette import ABSENT, EQUAL, code_of_level
from workbench.view.sides import side_codes


def test_a_margin_rises_in_level_as_it_falls_and_a_tie_is_the_narrowest() -> None:
    source = make_source(num_rows=60)
    margins = source._columns["topk.margin_a"]
    margins[1, :7] = [1.0, 0.5, 0.05, 0.005, 0.0005, 0.00005, 0.0]
    codes = side_codes(source, "router", "a", None)
    assert codes[1, :7].tolist() == [code_of_level(n) for n in (0, 1, 2, 3, 4, 5, 5)]


def test_a_missing_number_is_no_number_of_any_size() -> None:
    source = make_source(num_rows=60)
    source._absent["topk.margin_b"][2, 4] = True
    source._absent["topk.margin_b"][3, :] = True
    codes = side_codes(source, "router", "b", None)
    assert codes[2, 4] == code_of_level(6)
    # A layer without any is one without a router.
    assert set(codes[3]) == {ABSENT}
    idle = (source.rows["state_b"] != "computed").to_numpy()
    assert set(codes[:, idle].ravel()) == {ABSENT}


def test_nan_is_charged_to_the_side_that_has_it() -> None:
    source = make_source(num_rows=60, nans=((1, 7),))
    assert side_codes(source, "combined", "a", None)[1, 7] == code_of_level(6)
    assert side_codes(source, "combined", "b", None)[1, 7] == EQUAL


def test_surprise_is_in_nats_and_rises() -> None:
    source = make_source(num_rows=60)
    values = [-0.001, -0.05, -0.5, -2.0, -5.0, -20.0, float("-inf"), float("nan"), None]
    column = pl.Series("logprob_a", [*values, *[-0.001] * 51], dtype=pl.Float32)
    source.rows = source.rows.with_columns(column)
    codes = side_codes(source, "logprob", "a", None)
    wanted = [code_of_level(n) for n in (0, 1, 2, 3, 4, 5, 6, 6)]
    assert codes[0, :9].tolist() == [*wanted, ABSENT]


def test_the_distance_from_the_arbiter_is_in_its_limits() -> None:
    source = attributed(make_source(num_rows=60), {(1, 7, "routed_experts"): 0.5}, who="A")
    model = ViewModel(source)
    codes_a = side_codes(source, "local", "a", model.attribution)
    codes_b = side_codes(source, "local", "b", model.attribution)
    assert codes_a[1, 7] > code_of_level(1)
    assert codes_b[1, 7] <= code_of_level(1)


def test_x_walks_from_the_difference_over_a_to_b() -> None:
    model = ViewModel(make_source(num_rows=60, flips=((1, 5),)))
    model.act("lens.router")
    plain = model.codes().copy()
    seen = [model.state.side]
    for _ in range(3):
        model.act("side.cycle")
        seen.append(model.state.side)
    assert seen == ["diff", "a", "b", "diff"]
    assert np.array_equal(model.codes(), plain)


def test_one_side_is_named_in_what_its_level_means() -> None:
    model = ViewModel(make_source(num_rows=60, flips=((1, 5),)))
    model.act("side.cycle")
    assert model.meaning()[1].startswith("A: margin ")
    assert len(model.legend()) == 7
