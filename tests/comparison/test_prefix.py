"""Captures whose tokens part: what comes before is compared, and never called equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from tests.captures import TRAINER, Side, Toy, make_capture, make_pair
from workbench.comparison.align import Alignment, align
from workbench.comparison.prefix import Cut, cut_at_other_tokens
from workbench.comparison.run import compare
from workbench.errors import AlignmentError
from workbench.store import open_capture

TOY = Toy(lengths=(12, 9, 15))


def aligned(pair: tuple[Path, Path]) -> Alignment:
    return align(*map(open_capture, pair), common_prefix=True)


def lengths(found: Alignment) -> dict[str, int]:
    """Rows kept of each request; they have to be its first."""
    by_request = found.rows.group_by("request", maintain_order=True).agg("position")
    kept = dict(by_request.iter_rows())
    assert all(positions == list(range(len(positions))) for positions in kept.values())
    return {name: len(positions) for name, positions in kept.items()}


def joined(lines: Sequence[tuple[str, int, int | None, int | None]]) -> pl.DataFrame:
    """Rows as alignment joins them: request, position, and the token of each side or None."""
    frame = pl.DataFrame(
        lines, schema=["request", "position", "token_id", "token_id_b"], orient="row"
    )
    return frame.with_columns(
        pl.col("request").rle_id().alias("order"),
        *(
            pl.when(pl.col(token).is_not_null()).then(pl.lit("computed")).alias(state)
            for token, state in (("token_id", "state_a"), ("token_id_b", "state_b"))
        ),
    )


def test_rows_before_the_first_other_token_stay() -> None:
    lines = [("x", 0, 5, 5), ("x", 1, 6, 7), ("x", 2, 8, 8), ("y", 0, 5, 5), ("y", 1, 9, 9)]
    kept, cut = cut_at_other_tokens(joined(lines), lost=False)
    # x parts at 1; that its tokens at 2 are the same again means nothing.
    assert kept.select("request", "position").rows() == [("x", 0), ("y", 0), ("y", 1)]
    assert cut == Cut(request="x", position=1, num_requests=1, of_requests=2, num_rows=2)


def test_same_tokens_are_not_cut() -> None:
    lines = joined([("x", 0, 5, 5), ("x", 1, 6, 6)])
    kept, cut = cut_at_other_tokens(lines, lost=False)
    assert cut is None
    assert kept.equals(lines)


def test_a_row_that_one_side_lacks_parts_unless_a_capture_is_damaged() -> None:
    lines = joined([("x", 0, 5, 5), ("x", 1, 6, None), ("x", 2, 8, 8)])
    kept, cut = cut_at_other_tokens(lines, lost=False)
    assert (kept.height, cut and cut.position) == (1, 1)
    kept, cut = cut_at_other_tokens(lines, lost=True)
    assert (kept.height, cut) == (3, None)


def test_a_token_that_was_only_sampled_does_not_part() -> None:
    lines = joined([("x", 0, 5, 5), ("x", 1, 6, None)]).with_columns(
        pl.when(pl.col("position") == 1)
        .then(pl.lit("sampled"))
        .otherwise("state_a")
        .alias("state_a")
    )
    assert cut_at_other_tokens(lines, lost=False)[1] is None


def test_each_request_is_cut_where_it_parts(tmp_path: Path) -> None:
    b = replace(TRAINER, tokens={(1, 3): 40, (1, 7): 40, (2, 0): 40})
    found = aligned(make_pair(tmp_path, toy=TOY, b=b))
    assert lengths(found) == {"r0": 12, "r1": 3}
    assert found.cut == Cut(request="r1", position=3, num_requests=2, of_requests=3, num_rows=21)


def test_a_shorter_and_a_missing_request(tmp_path: Path) -> None:
    a = make_capture(tmp_path / "a", toy=TOY)
    b = make_capture(tmp_path / "b", toy=Toy(lengths=(12, 5)), side=TRAINER)
    # Captures made with other lengths draw other texts; r0 and the start of r1 are the same.
    found = aligned((a, b))
    assert lengths(found) == {"r0": 12, "r1": 5}
    assert found.cut is not None
    assert (found.cut.request, found.cut.position, found.cut.num_rows) == ("r1", 5, 19)


def test_it_is_not_comparable_and_says_what_was_left_out(tmp_path: Path) -> None:
    pair = make_pair(tmp_path, toy=TOY, b=replace(TRAINER, tokens={(1, 3): 40}))
    found = compare(*pair, out=tmp_path / "comparison", common_prefix=True).summary
    assert (found["status"], found["verdict"]) == ("not_comparable", "alignment")
    assert found["reason"] == (
        "other tokens in 1 of 3 requests, first at r1 p3; only what comes before is compared, "
        "6 rows left out"
    )
    assert found["rows"]["compared"] == 30
    assert found["rows"]["expected"] == 36
    assert found["rows"]["other_tokens"] == 6
    assert found["cut"]["request"] == "r1"


def test_an_error_before_the_tokens_part_is_found(tmp_path: Path) -> None:
    wrong = Side(path="trainer", tokens={(1, 3): 40}, scale_experts=(1, 1.3))
    pair = make_pair(tmp_path, toy=TOY, b=wrong)
    found = compare(*pair, out=tmp_path / "comparison", common_prefix=True)
    assert found.summary["status"] == "not_comparable"
    assert found.summary["jump"]["layer"] == 1


def test_the_same_tokens_are_compared_as_ever(tmp_path: Path) -> None:
    pair = make_pair(tmp_path, toy=TOY)
    plain = compare(*pair, out=tmp_path / "plain").summary
    found = compare(*pair, out=tmp_path / "prefix", common_prefix=True).summary
    assert found["cut"] is None
    assert (found["status"], found["rows"]) == (plain["status"], plain["rows"])


@pytest.mark.parametrize(
    ("tokens", "num_before"), [({(1, 3): 40}, 30), ({(0, 0): 40, (1, 0): 40, (2, 0): 40}, 0)]
)
def test_a_refusal_says_how_much_could_be_compared(
    tmp_path: Path, tokens: dict[tuple[int, int], int], num_before: int
) -> None:
    pair = make_pair(tmp_path, toy=TOY, b=replace(TRAINER, tokens=tokens))
    with pytest.raises(AlignmentError, match="other tokens") as caught:
        compare(*pair, out=tmp_path / "comparison")
    assert caught.value.num_before == num_before
    offered = "compare the 30 rows before that with --common-prefix" in (caught.value.do or "")
    assert offered == bool(num_before)


def test_nothing_before_the_tokens_part(tmp_path: Path) -> None:
    b = replace(TRAINER, tokens={(0, 0): 40, (1, 0): 40, (2, 0): 40})
    pair = make_pair(tmp_path, toy=TOY, b=b)
    with pytest.raises(AlignmentError, match="no row in common before their tokens part"):
        compare(*pair, out=tmp_path / "comparison", common_prefix=True)
    assert not (tmp_path / "comparison").exists()


def test_other_models_are_refused_all_the_same(tmp_path: Path) -> None:
    a = make_capture(tmp_path / "a", toy=TOY)
    b = make_capture(tmp_path / "b", toy=replace(TOY, num_experts=4), side=TRAINER)
    with pytest.raises(AlignmentError, match="different models"):
        compare(a, b, out=tmp_path / "comparison", common_prefix=True)
