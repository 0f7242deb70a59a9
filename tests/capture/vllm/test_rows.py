"""Attribution of rows, without an engine."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.capture.vllm.rows import MediaRange, RowLedger, Score, Span
from workbench.errors import RecordingError

SCORE = Score(-0.5, 2, 1.25)


def ledger_with(*prompts: list[int]) -> RowLedger:
    ledger = RowLedger()
    for i, prompt in enumerate(prompts):
        ledger.admit(f"id{i}", name=f"r{i}", prompt_ids=prompt, stop_ids=(9,))
    return ledger


def feed(ledger: RowLedger, *spans: tuple[str, int, list[int]]) -> np.ndarray:
    """One step that feeds these (request id, start, tokens)."""
    return ledger.begin_step(
        [Span(request_id, start, len(tokens)) for request_id, start, tokens in spans],
        np.array([token for _, _, tokens in spans for token in tokens]),
    )


def test_rows_of_several_requests_are_attributed_in_batch_order() -> None:
    ledger = ledger_with([1, 2, 3], [4, 5])
    keep = feed(ledger, ("id1", 0, [4, 5]), ("id0", 0, [1, 2]))
    assert keep.tolist() == [0, 1, 2, 3]
    cached, computed = ledger.end_step()
    assert cached == []
    assert [(line.request, line.position, line.token_id) for line in computed] == [
        ("r1", 0, 4),
        ("r1", 1, 5),
        ("r0", 0, 1),
        ("r0", 1, 2),
    ]
    assert {line.batch_size for line in computed} == {2}


def test_a_chunked_prompt_continues_where_it_stopped() -> None:
    ledger = ledger_with([1, 2, 3])
    feed(ledger, ("id0", 0, [1, 2]))
    ledger.end_step()
    feed(ledger, ("id0", 2, [3]))
    _, computed = ledger.end_step()
    assert [(line.position, line.step) for line in computed] == [(2, 1)]


def test_a_token_that_is_not_the_requests_is_refused() -> None:
    ledger = ledger_with([1, 2, 3])
    with pytest.raises(RecordingError) as caught:
        feed(ledger, ("id0", 0, [1, 7, 3]))
    assert "position 1" in str(caught.value)
    assert "token 2" in str(caught.value)
    assert "token 7" in str(caught.value)


def test_a_token_that_nobody_sampled_is_refused() -> None:
    ledger = ledger_with([1, 2])
    with pytest.raises(RecordingError, match="no token yet"):
        feed(ledger, ("id0", 0, [1, 2, 3]))


def test_two_requests_swapped_in_the_batch_are_refused() -> None:
    ledger = ledger_with([1, 2], [4, 5])
    with pytest.raises(RecordingError):
        feed(ledger, ("id0", 0, [4, 5]), ("id1", 0, [1, 2]))


def test_positions_that_are_not_the_requests_are_refused() -> None:
    ledger = ledger_with([1, 1, 1])
    with pytest.raises(RecordingError, match="positions 0 to 1"):
        ledger.begin_step([Span("id0", 0, 2)], np.array([1, 1]), np.array([1, 2]))


def test_padding_rows_are_refused_rather_than_attributed() -> None:
    ledger = ledger_with([1, 2])
    with pytest.raises(RecordingError, match="3 rows"):
        ledger.begin_step([Span("id0", 0, 2)], np.array([1, 2, 0]))


def test_an_unknown_request_is_refused() -> None:
    with pytest.raises(RecordingError, match="never announced"):
        feed(RowLedger(), ("ghost", 0, [1]))


def test_a_request_without_token_ids_is_refused() -> None:
    with pytest.raises(RecordingError, match="without token ids"):
        RowLedger().admit("id0", name="r0", prompt_ids=())


def test_rows_served_from_the_cache_are_lines_without_computation() -> None:
    ledger = ledger_with([1, 2, 3, 4])
    keep = feed(ledger, ("id0", 3, [4]))
    assert keep.tolist() == [0]
    cached, computed = ledger.end_step()
    assert [(line.position, line.state, line.score) for line in cached] == [
        (0, "cached", None),
        (1, "cached", None),
        (2, "cached", None),
    ]
    assert [(line.position, line.state) for line in computed] == [(3, "computed")]


def test_recomputed_rows_keep_their_first_computation() -> None:
    ledger = ledger_with([1, 2])
    feed(ledger, ("id0", 0, [1, 2]))
    ledger.sampled("id0", 2, 5, SCORE)
    ledger.end_step()
    keep = feed(ledger, ("id0", 0, [1, 2, 5]))
    assert keep.tolist() == [2]
    _, computed = ledger.end_step()
    assert [(line.position, line.score) for line in computed] == [(2, SCORE)]
    assert ledger.num_repeated == 2


def test_a_sampled_token_carries_the_score_of_the_step_that_sampled_it() -> None:
    ledger = ledger_with([1])
    feed(ledger, ("id0", 0, [1]))
    ledger.sampled("id0", 1, 5, SCORE)
    _, prompt = ledger.end_step()
    feed(ledger, ("id0", 1, [5]))
    _, generated = ledger.end_step()
    assert prompt[0].score is None
    assert (generated[0].phase, generated[0].score) == ("generated", SCORE)


def test_the_last_sampled_token_is_a_line_of_its_own() -> None:
    ledger = ledger_with([1])
    feed(ledger, ("id0", 0, [1]))
    ledger.sampled("id0", 1, 5, SCORE)
    ledger.end_step()
    (line,) = ledger.unfed_lines(ledger.ends(None))
    assert (line.position, line.token_id, line.state, line.step) == (1, 5, "sampled", 0)
    assert line.score == SCORE


def test_what_the_engine_ran_ahead_is_taken_back() -> None:
    ledger = ledger_with([1])
    feed(ledger, ("id0", 0, [1]))
    ledger.sampled("id0", 1, 9, SCORE)
    ledger.end_step()
    # 9 ended the request, and an asynchronous engine had already scheduled the next step.
    feed(ledger, ("id0", 1, [9]))
    ledger.sampled("id0", 2, 6, SCORE)
    ledger.end_step()
    ends = ledger.ends({"r0": 1})
    assert ends == ledger.ends(None) == {"r0": 2}
    assert ledger.newest() == {"r0": 1}
    assert ledger.undo_run_ahead(ends) == {"r0": 1}
    (line,) = ledger.unfed_lines(ends)
    assert (line.position, line.token_id, line.state, line.score) == (1, 9, "sampled", SCORE)


def test_nothing_is_taken_back_when_the_engine_stopped_in_time() -> None:
    ledger = ledger_with([1])
    feed(ledger, ("id0", 0, [1]))
    ledger.sampled("id0", 1, 5, SCORE)
    ledger.end_step()
    feed(ledger, ("id0", 1, [5]))
    ledger.sampled("id0", 2, 9, SCORE)
    ledger.end_step()
    assert ledger.undo_run_ahead(ledger.ends({"r0": 2})) == {}


def test_a_client_that_got_more_than_was_seen_is_an_error() -> None:
    with pytest.raises(RecordingError, match="more tokens"):
        ledger_with([1]).ends({"r0": 3})


def test_a_token_thrown_away_in_flight_can_be_sampled_again() -> None:
    ledger = ledger_with([1])
    feed(ledger, ("id0", 0, [1]))
    ledger.sampled("id0", 1, 5, SCORE)
    ledger.sampled("id0", 1, 6, None)
    assert ledger.token_ids("id0") == [1, 6]


def test_sampling_past_the_next_position_is_refused() -> None:
    ledger = ledger_with([1])
    feed(ledger, ("id0", 0, [1]))
    with pytest.raises(RecordingError, match="not the next one"):
        ledger.sampled("id0", 3, 5, SCORE)


def test_a_given_continuation_counts_as_generated_and_the_extra_token_is_dropped() -> None:
    ledger = RowLedger(prompt_lengths={"r0": 1})
    ledger.admit("id0", name="r0", prompt_ids=[1, 2, 3])
    ledger_rows = feed(ledger, ("id0", 0, [1, 2, 3]))
    ledger.score("id0", 1, SCORE)
    ledger.sampled("id0", 3, 7, SCORE)
    _, computed = ledger.end_step()
    assert len(ledger_rows) == 3
    assert [line.phase for line in computed] == ["prompt", "generated", "generated"]
    ends = ledger.ends({"r0": 2})
    assert ledger.undo_run_ahead(ends) == {}
    assert ledger.unfed_lines(ends) == []


def test_requests_that_ran_before_the_recording_are_left_out() -> None:
    ledger = ledger_with([1, 2])
    ledger.ignore("old")
    keep = feed(ledger, ("old", 5, [8]), ("id0", 0, [1, 2]))
    ledger.sampled("old", 6, 3, SCORE)
    assert keep.tolist() == [1, 2]
    assert ledger.num_ignored == 1


def test_a_request_id_used_again_is_another_request() -> None:
    ledger = ledger_with([1])
    ledger.admit("id0", name="r0", prompt_ids=[2])
    assert ledger.names() == {"id0": "r0#2"}


def test_rows_of_images_are_marked() -> None:
    ledger = RowLedger()
    ledger.admit("id0", name="r0", prompt_ids=[1, 2, 3], media=[MediaRange("image", 1, 2)])
    feed(ledger, ("id0", 0, [1, 2, 3]))
    _, computed = ledger.end_step()
    assert [line.modality for line in computed] == ["text", "image", "text"]
