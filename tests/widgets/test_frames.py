from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from tests.view.synthetic import make_source
from tests.widgets.sources import LN2, seven_rows
from workbench.errors import UsageError
from workbench.widgets import frames
from workbench.widgets.frames import Safeguard

# dlogp = ln 2: ratio = p_B / p_A = 1/2, k3 = 1/2 - 1 + ln 2.
K3 = LN2 - 0.5
NOTHING = (None,) * 7


def lines(frame: pl.DataFrame, *columns: str) -> list[tuple[object, ...]]:
    return frame.select(columns).rows()


def test_only_sampled_tokens_with_both_scores_are_compared() -> None:
    found = frames.by_position(seven_rows())
    # Generated rows are 2, 3, 4, 5, 6; rows 4 and 6 lack a score.
    assert (found.compared, found.expected) == (3, 5)
    assert found.over == "tokens sampled from A"
    assert found.coverage == "n = 3 of 5 rows compared (60.0%)"


def test_k3_and_exact_kl_are_averaged_by_position() -> None:
    frame = frames.by_position(seven_rows()).frame
    assert lines(frame, "position_from", "expected", "rows") == [
        (0, 1, 0),
        (1, 1, 1),
        (2, 2, 1),
        (3, 1, 1),
    ]
    # Position 2 holds the row with ln 2, and one without a score that enters no average.
    assert frame["k3"].to_list() == [None, 0.0, pytest.approx(K3, rel=1e-6), 0.0]
    assert frame["kl_exact"].to_list() == [None, 0.0, *map(pytest.approx, (0.2, 0.4))]
    assert frame["max_abs_dlogp"][2] == pytest.approx(LN2, rel=1e-6)


def test_positions_are_put_together_when_there_are_more_than_bins() -> None:
    frame = frames.by_position(seven_rows(), num_bins=2).frame
    assert lines(frame, "position_from", "position_to", "expected", "rows") == [
        (0, 1, 2, 1),
        (2, 3, 3, 2),
    ]
    assert frame["k3"][1] == pytest.approx(K3 / 2, rel=1e-6)


def test_without_sampled_tokens_every_scored_row_counts() -> None:
    found = frames.by_position(seven_rows(phase=("prompt",) * 7))
    # Every row but the first of each request should have a score; row 6 has none on B.
    assert (found.compared, found.expected) == (4, 5)
    assert found.over == "all rows with both log-probabilities"


def test_rows_of_one_capture_alone_are_expected() -> None:
    source = seven_rows()
    source.summary["rows"] |= {"only_a": 2, "only_b": 1}
    assert frames.by_position(source).expected == 5 + 3


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_score_that_is_no_number_is_not_compared(bad: float) -> None:
    found = frames.by_position(seven_rows(b=(None, -1.0, bad, -0.5, None, -2.0, None)))
    assert found.compared == 2
    assert found.frame.filter(pl.col("position_from") == 2)["k3"].to_list() == [None]


def test_a_token_counts_to_the_layers_of_the_row_before() -> None:
    source = seven_rows(flips=((1, 1), (0, 5)))
    frame = frames.by_first_layer(source, "flip").frame
    by_state = {(line["state"], line["layer"]): line for line in frame.to_dicts()}
    # The flip of row 1, layer 1 meets the token of row 2; that of row 5 the unscored row 6.
    assert by_state["diverged", 1]["k3"] == pytest.approx(K3, rel=1e-6)
    assert by_state["diverged", 1]["k3_share"] == 1.0
    assert (by_state["diverged", 0]["expected"], by_state["diverged", 0]["rows"]) == (1, 0)
    assert by_state["diverged", 0]["k3"] is None
    assert (by_state["none", None]["rows"], by_state["none", None]["k3"]) == (2, 0.0)


def test_a_row_without_arrays_is_not_taken_as_equal() -> None:
    source = seven_rows()
    offsets = pl.Series([0, None, 2, 3, 4, 5, 6], dtype=pl.Int32)
    source.rows = source.rows.with_columns(offsets.alias("offset_b"))
    frame = frames.by_first_layer(source).frame
    # Row 2 was scored by row 1, of which B has no arrays; row 4 has no row before it.
    assert lines(frame, "state", "expected") == [("none", 3), ("not recorded", 2)]


def test_no_k3_at_all_gives_no_share() -> None:
    equal = (None, -1.0, -1.0, -0.5, None, -2.0, -1.0)
    frame = frames.by_first_layer(seven_rows(b=equal)).frame
    assert frame["k3_share"].to_list() == [None] * frame.height
    assert frame["k3"].drop_nulls().to_list() == [0.0]


def test_modalities_are_taken_over_prompts_too() -> None:
    kinds = ("text", "image", "text", "text", "text", "image", "image")
    found = frames.by_modality(seven_rows(modality=kinds))
    assert lines(found.frame, "modality", "expected", "rows") == [("image", 3, 2), ("text", 2, 2)]
    assert found.frame["k3"].to_list() == [0.0, pytest.approx(K3 / 2, rel=1e-6)]


def test_probabilities_fall_into_square_bins() -> None:
    found = frames.probability_bins(seven_rows(), num_bins=4)
    # exp(-1) = 0.37 and half of it, 0.18; exp(-0.5) = 0.61; exp(-2) = 0.14.
    assert found.frame.rows() == [
        (0.0, 0.25, 0.0, 0.25, 1),
        (0.25, 0.5, 0.0, 0.25, 1),
        (0.5, 0.75, 0.5, 0.75, 1),
    ]


def test_probability_one_belongs_to_the_last_bin() -> None:
    frame = frames.probability_bins(seven_rows(b=(None, 0.0, 0.0, 0.0, None, 0.0, 0.0))).frame
    assert frame["p_b_to"].max() == 1.0
    assert frame["rows"].sum() == 4


def test_ratios_lie_round_one_in_bins_of_one_width_of_log() -> None:
    frame = frames.ratio_bins(seven_rows(), num_bins=3).frame
    # Two tokens with ratio 1, one with 1/2; the bins reach from 1/2 to 2.
    assert frame["rows"].to_list() == [1, 2, 0]
    edges = [2 ** (step / 3) for step in (-3, -1, 1, 3)]
    assert frame["ratio_from"].to_list() == pytest.approx(edges[:-1], rel=1e-6)
    assert frame["ratio_to"].to_list() == pytest.approx(edges[1:], rel=1e-6)


def test_equal_sides_have_one_bin_at_one() -> None:
    equal = (None, -1.0, -1.0, -0.5, None, -2.0, -1.0)
    assert frames.ratio_bins(seven_rows(b=equal)).frame.rows() == [(1.0, 1.0, 4)]


def test_safeguards_count_what_is_outside_their_window() -> None:
    windows = (
        Safeguard("clip", 0.8, 1.2),
        Safeguard("open below", None, 2.0),
        Safeguard("edge", 0.5 + 1e-6, 2.0),
        Safeguard("sequence", 0.9, 1.1, "sequences"),
    )
    frame = frames.safeguards(seven_rows(), windows).frame
    assert lines(frame, "name", "n", "below", "above") == [
        ("clip", 3, 1, 0),
        ("open below", 3, 0, 0),
        ("edge", 3, 1, 0),
        # r0: ratios 1/2 and 1, geometric mean 0.71; r1: 1.
        ("sequence", 2, 1, 0),
    ]
    assert frame["outside"].to_list() == pytest.approx([1 / 3, 0.0, 1 / 3, 0.5])
    assert frame["least"][3] == pytest.approx(2**-0.5, rel=1e-6)


def test_the_windows_are_those_in_use() -> None:
    known = {guard.name: (guard.low, guard.high) for guard in frames.SAFEGUARDS}
    assert known["PPO clip"] == (0.8, 1.2)
    assert known["IcePop"] == (0.5, 5.0)
    assert known["rejection"] == (0.5, 2.0)
    assert known["geometric mask"] == (0.99, 1.001)


def test_nothing_scored_gives_empty_numbers_and_no_error() -> None:
    source = seven_rows(b=NOTHING)
    assert frames.by_position(source).compared == 0
    assert frames.by_position(source).frame["k3"].null_count() == 3
    assert frames.probability_bins(source).frame.height == 0
    assert frames.ratio_bins(source).frame.rows() == [(1.0, 1.0, 0)]
    assert frames.safeguards(source).frame["outside"].null_count() == len(frames.SAFEGUARDS)


def test_no_rows_at_all() -> None:
    source = make_source(num_layers=2, num_rows=0)
    found = frames.by_position(source)
    assert (found.compared, found.expected, found.frame.height) == (0, 0, 0)
    assert found.coverage == "n = 0 of 0 rows compared"


@pytest.mark.parametrize("num_bins", [0, -1, 5_001])
def test_bins_are_aggregates(num_bins: int) -> None:
    with pytest.raises(UsageError, match="aggregates"):
        frames.by_position(seven_rows(), num_bins=num_bins)
    with pytest.raises(UsageError, match="aggregates"):
        frames.probability_bins(seven_rows(), num_bins=71 if num_bins > 0 else num_bins)


def test_many_rows_stay_an_aggregate() -> None:
    source = make_source(num_layers=1, num_rows=12_000, noise=0.1, texts=["x"] * 12_000)
    source.rows = source.rows.with_columns(
        pl.lit("r").alias("request"), pl.Series("position", np.arange(12_000), dtype=pl.Int32)
    )
    assert frames.by_position(source).frame.height <= 120
    assert frames.probability_bins(source).frame.height <= frames.MAX_LINES
