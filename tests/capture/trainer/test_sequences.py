from __future__ import annotations

import numpy as np
import pytest

from workbench.capture.trainer.calls import Segment
from workbench.capture.trainer.sequences import SequenceBook
from workbench.errors import RecordingError, UsageError


class Cache:
    """Stands for the model's cache; only its identity counts."""


def segment(row: int, length: int, start: int = 0) -> Segment:
    return Segment(row, np.arange(length), start, 0)


def test_names_count_on_over_calls() -> None:
    book = SequenceBook()
    first = book.assign([segment(0, 2), segment(1, 3)], None, 0)
    second = book.assign([segment(0, 2)], None, 0)
    assert [s.name for s in (*first, *second)] == ["r0", "r1", "r2"]


def test_told_names_are_taken_in_order_and_with_their_prompt_lengths() -> None:
    book = SequenceBook()
    book.tell(["b", "a", "c"], [1, 2, 3])
    found = book.assign([segment(0, 4), segment(1, 4)], None, 0)
    assert [(s.name, s.prompt_length) for s in found] == [("b", 1), ("a", 2)]
    assert book.left_over == ["c"]


def test_default_names_keep_clear_of_told_ones() -> None:
    book = SequenceBook()
    book.tell(["r0"])
    found = [*book.assign([segment(0, 1)], None, 0), *book.assign([segment(0, 1)], None, 0)]
    assert [s.name for s in found] == ["r0", "r1"]


def test_a_call_that_continues_a_cache_keeps_its_names() -> None:
    book, cache = SequenceBook(), Cache()
    first = book.assign([segment(0, 3), segment(1, 2)], None, 0)
    book.ended(first, cache)
    found = book.assign([segment(0, 1, 3), segment(1, 1, 2)], cache, 3)
    assert [s.name for s in found] == ["r0", "r1"]


@pytest.mark.parametrize("mistake", ["another cache", "a gap", "another row"])
def test_a_cache_that_was_not_recorded_from_its_beginning_is_refused(mistake: str) -> None:
    book, cache = SequenceBook(), Cache()
    book.ended(book.assign([segment(0, 3)], None, 0), cache)
    given = Cache() if mistake == "another cache" else cache
    start = 4 if mistake == "a gap" else 3
    row = 1 if mistake == "another row" else 0
    with pytest.raises(RecordingError, match="continues a cache"):
        book.assign([segment(row, 1, start)], given, 3)


def test_too_few_names_are_refused() -> None:
    book = SequenceBook()
    book.tell(["a"])
    with pytest.raises(RecordingError, match="fewer request names"):
        book.assign([segment(0, 1), segment(1, 1)], None, 0)


def test_a_name_used_twice_and_lengths_that_do_not_match_are_refused() -> None:
    book = SequenceBook()
    book.tell(["a"])
    with pytest.raises(UsageError, match="used twice"):
        book.tell(["a"])
    with pytest.raises(UsageError, match="prompt lengths"):
        book.tell(["b"], [1, 2])
