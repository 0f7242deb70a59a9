from __future__ import annotations

import polars as pl
import pytest

from tests.view.attributed import attributed
from tests.view.synthetic import ArraySource, make_source
from tests.widgets.sources import put, seven_rows
from workbench.errors import UsageError
from workbench.widgets import layer_frames

NAN, INF = float("nan"), float("inf")


def margins(source: ArraySource, values: list[list[float]]) -> ArraySource:
    put(source, "topk.margin_a", values)
    return source


def test_flips_are_counted_by_half_decade_of_margin() -> None:
    source = seven_rows(flips=((0, 1), (1, 1)), unexplained=((0, 2),))
    margins(
        source,
        [[0.5, 0.002, 0.02, 0.0, 0.001, 0.5, NAN], [0.5, 0.0, 0.5, 0.5, 0.5, 0.5, NAN]],
    )
    found = layer_frames.flips_by_margin(source)
    frame = found.frame
    # 0.001 and 0.002 share a bin with one flip; two ties, one of them flips.
    assert frame.select("cells", "explained", "unexplained", "unjudged").rows() == [
        (2, 1, 0, 0),
        (2, 1, 0, 0),
        (1, 0, 1, 0),
        (7, 0, 0, 0),
    ]
    half = 10**0.5
    assert frame["margin_from"].to_list() == pytest.approx([0, 1e-3, 1e-2, 1e-1 * half])
    assert frame["margin_to"].to_list() == pytest.approx([0, 1e-3 * half, 1e-2 * half, 1])
    assert frame["flip_share"].to_list() == [0.5, 0.5, 1.0, 0.0]
    # A margin that is missing leaves its cell out; both layers of seven rows were expected.
    assert (found.compared, found.expected) == (12, 14)


@pytest.mark.parametrize("power", range(-6, 3))
def test_a_power_of_ten_begins_its_own_bin(power: int) -> None:
    source = margins(seven_rows(), [[10.0**power] * 7] * 2)
    frame = layer_frames.flips_by_margin(source).frame
    assert frame["margin_from"].to_list() == pytest.approx([10.0**power])


def test_margins_out_of_reach_count_in_the_outermost_bins() -> None:
    source = margins(seven_rows(), [[1e-12, 1e6, INF, 1.0, 1.0, 1.0, 1.0], [1.0] * 7])
    frame = layer_frames.flips_by_margin(source).frame
    assert frame.select("margin_from", "cells").rows()[0] == (pytest.approx(1e-6), 1)
    assert frame["margin_to"][-1] == pytest.approx(1e3)
    assert frame["cells"][-1] == 2


def test_a_flip_that_nobody_could_judge_is_neither() -> None:
    source = seven_rows(flips=((0, 1),))
    source._absent["topk.explained"][:] = True
    frame = layer_frames.flips_by_margin(source).frame
    assert int(frame["unjudged"].sum()) == 1
    assert int(frame["explained"].sum()) == 0


def test_a_layer_without_a_router_is_not_expected() -> None:
    source = margins(seven_rows(), [[1.0] * 7, [NAN] * 7])
    found = layer_frames.flips_by_margin(source)
    assert (found.compared, found.expected) == (6, 7)


def test_total_error_by_layer_has_quantiles_and_budget() -> None:
    source = make_source(num_layers=2, num_rows=7, texts=list("abcdefg"))
    put(source, "output.rel_l2", [[1, 2, 3, 4, 5, 6, NAN], [0, 0, 0, 0, 0, INF, NAN]])
    found = layer_frames.layer_profile(source, ["output"])
    frame = found.frame
    # The nearest rank: of six values the median is the third, the 95th percentile the last.
    assert frame.select("layer", "rows", "median", "p95", "max").rows() == [
        (0, 6, 3.0, 6.0, 6.0),
        (1, 6, 0.0, INF, INF),
    ]
    budget = source.budgets().layer["output"]
    assert frame["budget"].to_list() == pytest.approx(budget.tolist())
    assert (found.compared, found.expected) == (6, 7)


def test_a_layer_without_numbers_has_nulls() -> None:
    source = seven_rows()
    put(source, "output.rel_l2", [[NAN] * 7, [1.0] * 7])
    line = layer_frames.layer_profile(source, ["output"]).frame.row(0, named=True)
    assert (line["rows"], line["median"], line["p95"], line["max"]) == (0, None, None, None)


def test_a_site_without_a_budget_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean output"):
        layer_frames.layer_profile(seven_rows(), ["outputs"])


def test_local_errors_say_which_module_is_beyond() -> None:
    errors = {(1, row, "routed_experts"): 0.5 for row in range(5)}
    source = attributed(make_source(num_layers=2, num_rows=60), errors, noise=1e-3)
    found = layer_frames.local_errors(source, ["routed_experts", "combine"])
    frame = found.frame
    assert frame["module"].unique(maintain_order=True).to_list() == ["routed_experts", "combine"]
    local = frame.row(by_predicate=_at("routed_experts", 1, "local"), named=True)
    assert (local["over"], local["max"]) == (5, 0.5)
    assert local["median"] == pytest.approx(1e-3)
    assert local["budget"] == pytest.approx(0.004)
    other = frame.row(by_predicate=_at("routed_experts", 0, "total"), named=True)
    assert (other["budget"], other["over"]) == (None, None)
    assert (found.compared, found.expected) == (60, 60)


def test_what_could_not_be_attributed_is_not_compared() -> None:
    unseen = tuple((layer, row) for layer in range(2) for row in range(20))
    source = attributed(make_source(num_layers=2, num_rows=60), {}, unseen=unseen)
    found = layer_frames.local_errors(source)
    assert (found.compared, found.expected) == (40, 60)


def test_a_module_of_fewer_rows_takes_none_from_the_others() -> None:
    source = attributed(make_source(num_layers=2, num_rows=60), {})
    source._absent["combine.local"][:, 10:] = True
    source._columns["combine.local"][:, 10:] = NAN
    found = layer_frames.local_errors(source)
    assert (found.compared, found.expected) == (60, 60)
    by_module = dict(found.frame.group_by("module").agg(pl.col("rows").min()).iter_rows())
    assert (by_module["combine"], by_module["attention"]) == (10, 60)


def test_a_comparison_that_was_not_attributed_says_what_to_do() -> None:
    with pytest.raises(UsageError, match="kldive attribute"):
        layer_frames.local_errors(make_source())


def test_an_unknown_module_is_refused_with_the_nearest() -> None:
    source = attributed(make_source(), {})
    with pytest.raises(UsageError, match="routed_experts"):
        layer_frames.local_errors(source, ["routed_expert"])


def test_more_lines_than_a_chart_holds_are_refused() -> None:
    source = make_source(num_layers=2_600, num_rows=1, texts=["x"])
    with pytest.raises(UsageError, match="at most 5,000"):
        layer_frames.layer_profile(source, ["mlp_in", "output"])
    assert layer_frames.layer_profile(source, ["output"]).frame.height == 2_600


def _at(module: str, layer: int, number: str) -> pl.Expr:
    return (pl.col("module") == module) & (pl.col("layer") == layer) & (pl.col("number") == number)
