"""Alignment: what is proved, and what is refused with both sides shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.captures import ALPHABET, ROLLOUT, TRAINER, Side, Toy, make_capture, make_pair
from workbench.comparison.align import Alignment, align, window
from workbench.comparison.run import compare
from workbench.errors import AlignmentError, ExitCode
from workbench.store import CaptureWriter, Manifest, ModelFacts, open_capture

Refused = Callable[..., AlignmentError]


@pytest.fixture
def refused(tmp_path: Path) -> Refused:
    """The error of comparing a pair; checks that it leaves nothing behind."""

    def run(a: Side = ROLLOUT, b: Side = TRAINER, *, toy_b: Toy | None = None) -> AlignmentError:
        make_capture(tmp_path / "a", side=a)
        make_capture(tmp_path / "b", side=b, toy=toy_b)
        before = sorted(p.name for p in tmp_path.iterdir())
        with pytest.raises(AlignmentError) as caught:
            compare(tmp_path / "a", tmp_path / "b", out=tmp_path / "comparison")
        assert sorted(p.name for p in tmp_path.iterdir()) == before
        assert caught.value.exit_code == ExitCode.UNREADABLE
        return caught.value

    return run


def aligned(a: Path, b: Path) -> Alignment:
    return align(open_capture(a), open_capture(b))


def test_another_token_is_refused_with_both_texts(refused: Refused) -> None:
    error = refused(replace(ROLLOUT, tokens={(1, 3): 5}), replace(TRAINER, tokens={(1, 3): 6}))
    assert error.what == "the captures hold other tokens: 1 of 36 rows differ"
    assert error.where == "request 'r1', position 3 (the first)"
    assert ">>f<<" in str(error.expected)
    assert str(error.expected).startswith("A: token 5 in")
    assert ">>g<<" in str(error.got)
    assert str(error.got).startswith("B: token 6 in")


def test_a_mismatch_carries_both_texts_for_a_screen(refused: Refused) -> None:
    tokens_a = {(1, 3): 5, (2, 0): 5}
    error = refused(replace(ROLLOUT, tokens=tokens_a), replace(TRAINER, tokens={(1, 3): 6}))
    found = error.mismatch
    assert found is not None
    # Requests have 12, 9 and 15 rows; three rows of the second are the same before the first.
    assert (found.position, found.num_same, found.num_rows) == (3, 3, 36)
    assert found.num_differing == 2
    assert [len(found.a), len(found.b)] == [9, 9]
    assert (found.a[3].token_id, found.b[3].token_id) == (5, 6)
    assert found.a[3].text == ALPHABET[5]
    assert found.a[:3] == found.b[:3]


def test_the_first_mismatch_is_first_in_as_order(refused: Refused) -> None:
    changed = {(0, 9): 40, (2, 1): 40}
    error = refused(replace(ROLLOUT, order=(2, 1, 0)), replace(TRAINER, tokens=changed))
    assert error.where == "request 'r2', position 1 (the first)"
    assert error.what.endswith("2 of 36 rows differ")


def test_the_window_is_twenty_tokens_and_escapes_controls() -> None:
    tokens = pl.DataFrame(
        {
            "request": ["r"] * 50,
            "position": list(range(50)),
            "token_id": list(range(50)),
            "text": ["\x1b[31m" if i == 24 else "" if i == 26 else "x" for i in range(50)],
        }
    )
    shown = window(tokens, "r", 25)
    assert shown == '"' + "x" * 19 + r"\x1b[31m" + ">>x<<" + "[26]" + "x" * 19 + '"'


def test_a_request_that_one_side_lacks(refused: Refused) -> None:
    error = refused(toy_b=Toy(lengths=(12, 9)))
    assert error.what == "side B lacks a request: 'r2'"
    assert "A has 15 rows at positions 0..14" in str(error.expected)
    assert "B has none of it" in str(error.got)


def test_a_request_of_another_length(tmp_path: Path) -> None:
    a = make_capture(tmp_path / "a", toy=Toy(lengths=(12,)))
    b = make_capture(tmp_path / "b", toy=Toy(lengths=(14,)), side=TRAINER)
    with pytest.raises(AlignmentError, match="side A has a request of another length: 'r0'"):
        aligned(a, b)


def test_rows_that_were_not_computed_may_be_missing_on_the_other_side(tmp_path: Path) -> None:
    a = make_capture(
        tmp_path / "a", toy=Toy(lengths=(12,)), side=replace(ROLLOUT, sampled_last=True)
    )
    b = make_capture(tmp_path / "b", toy=Toy(lengths=(11,)), side=TRAINER)
    found = aligned(a, b)
    assert found.rows.height == 11
    assert (found.only_a, found.only_b, found.expected) == (1, 0, 12)


def test_requests_with_other_names_have_nothing_in_common(tmp_path: Path) -> None:
    sides = []
    for name, request, state in (("a", "x", "sampled"), ("b", "y", "cached")):
        writer = CaptureWriter(tmp_path / name, Manifest(path="rollout"))
        writer.append(
            {"request": [request], "position": [0], "token_id": [1], "state": [state]}, {}
        )
        writer.finish()
        sides.append(tmp_path / name)
    with pytest.raises(AlignmentError, match="no row in common"):
        aligned(*sides)


def test_no_rows_at_all(tmp_path: Path) -> None:
    CaptureWriter(tmp_path / "a", Manifest(path="rollout")).finish()
    b = make_capture(tmp_path / "b", side=TRAINER)
    with pytest.raises(AlignmentError, match="side A has no rows"):
        aligned(tmp_path / "a", b)


def test_a_row_twice(tmp_path: Path) -> None:
    writer = CaptureWriter(tmp_path / "a", Manifest(path="rollout"))
    for _ in range(2):
        writer.append({"request": ["r0"], "position": [0], "token_id": [1]}, {})
    writer.finish()
    with pytest.raises(AlignmentError, match="side A holds a row twice"):
        aligned(tmp_path / "a", make_capture(tmp_path / "b", side=TRAINER))


def test_another_configuration(refused: Refused) -> None:
    model = ModelFacts(id="other", config_hash="ffff")
    error = refused(b=replace(TRAINER, changes={"model": model}))
    assert error.what == "the captures are of different models"
    assert error.expected == "A: toy, config_hash 0123456789abcdef"
    assert error.got == "B: other, config_hash ffff"


def test_other_shapes_without_a_configuration(refused: Refused) -> None:
    model = {"model": ModelFacts(id="x")}
    error = refused(
        replace(ROLLOUT, changes=model),
        replace(TRAINER, changes=model),
        toy_b=Toy(hidden=32),
    )
    assert error.what == "the captures are of different models"
    assert "embed [64]" in str(error.expected)
    assert "embed [32]" in str(error.got)


def test_padded_vocabularies_are_one_model(tmp_path: Path) -> None:
    facts: dict[str, Any] = {"model": ModelFacts(id="x", vocab_size=len(ALPHABET))}
    pair = make_pair(
        tmp_path, a=replace(ROLLOUT, changes=facts), b=replace(TRAINER, changes=facts, pad_vocab=3)
    )
    found = compare(pair.a, pair.b, out=tmp_path / "comparison").summary
    assert (found["status"], found["kl"]["exact_mean"]) == ("equal", 0)
    assert found["sites"]["logits"]["bit_equal"] == 1


def test_names_with_control_characters_are_escaped(tmp_path: Path) -> None:
    writer = CaptureWriter(tmp_path / "a", Manifest(path="rollout"))
    writer.append({"request": ["\x1b[2J"], "position": [0], "token_id": [1]}, {})
    writer.finish()
    with pytest.raises(AlignmentError) as caught:
        aligned(tmp_path / "a", make_capture(tmp_path / "b", side=TRAINER))
    assert "\x1b" not in str(caught.value)
