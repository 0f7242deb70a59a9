"""Plain values of attribution: what a row is, how a token was scored. Stdlib only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from workbench.names import Phase, RowState


class Score(NamedTuple):
    """How the raw distribution scored one token.

    Attributes:
        logprob: Natural log-probability, float32 value.
        rank: 1 for the most likely token; ties count against the token.
        entropy: Of the whole distribution, in nats.
    """

    logprob: float
    rank: int
    entropy: float


class Span(NamedTuple):
    """Consecutive rows that one step feeds for one request."""

    request_id: str
    start: int
    num_rows: int


class MediaRange(NamedTuple):
    """Prompt positions that hold features of another modality, not text."""

    modality: str
    start: int
    stop: int


class Line(NamedTuple):
    """One row of the token table, without its place in the arrays."""

    request: str
    position: int
    token_id: int
    phase: Phase
    state: RowState
    modality: str
    step: int
    batch_size: int
    score: Score | None


@dataclass(slots=True, kw_only=True)
class KnownRequest:
    """What is known of a request while it runs.

    Attributes:
        name: In the capture.
        token_ids: Prompt and sampled tokens.
        given_length: Tokens that the engine was given.
        prompt_length: Tokens that count as the prompt.
        stop_ids: Tokens that end it.
        media: Where its prompt is not text.
        num_seen: Leading positions that were computed or served from the cache.
        scores: Of tokens that were not seen yet, by position.
        newest_score: Position and score of the last computed sampled token.
        sampled_at: Step and batch size in which a position was sampled.
    """

    name: str
    token_ids: list[int]
    given_length: int
    prompt_length: int
    stop_ids: frozenset[int]
    media: tuple[MediaRange, ...] = ()
    num_seen: int = 0
    scores: dict[int, Score] = field(default_factory=dict)
    newest_score: tuple[int, Score | None] = (-1, None)
    sampled_at: dict[int, tuple[int, int]] = field(default_factory=dict)

    def phase(self, position: int) -> Phase:
        return "prompt" if position < self.prompt_length else "generated"

    def modality(self, position: int) -> str:
        for item in self.media:
            if item.start <= position < item.stop:
                return item.modality
        return "text"
