"""Names of the sequences that forward calls compute, also across calls that continue a cache.

The invariant: a request's positions are recorded once each and without a gap.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from workbench.capture.trainer.calls import Segment
from workbench.errors import RecordingError, UsageError


class Sequenced(NamedTuple):
    """A segment with its name, and how many of the sequence's tokens are the prompt (None: all)."""

    name: str
    segment: Segment
    prompt_length: int | None


class _Stream(NamedTuple):
    name: str
    next_position: int


class SequenceBook:
    """Gives every sequence its name: those told in advance, in order, else r0, r1, ..."""

    def __init__(self) -> None:
        self._told: deque[str] = deque()
        self._used: set[str] = set()
        self._prompt_lengths: dict[str, int] = {}
        self._num_named = 0
        self._cache: weakref.ref[Any] | None = None
        self._streams: dict[int, _Stream] = {}

    @property
    def left_over(self) -> list[str]:
        """Names that were told and that no sequence has taken."""
        return list(self._told)

    def tell(self, names: Sequence[str], prompt_lengths: Sequence[int] | None = None) -> None:
        """Names the next sequences, in the order of the batch.

        Raises:
            UsageError: A name is used twice, or there are not as many prompt lengths as names.
        """
        if prompt_lengths is not None and len(prompt_lengths) != len(names):
            raise UsageError(
                "prompt lengths do not match the request names",
                expected=f"{len(names)} lengths",
                got=f"{len(prompt_lengths)}",
            )
        for place, name in enumerate(names):
            if name in self._used:
                raise UsageError(
                    f"request name {name!r} is used twice", do="give every sequence its own name"
                )
            self._used.add(name)
            self._told.append(name)
            if prompt_lengths is not None:
                self._prompt_lengths[name] = prompt_lengths[place]

    def assign(self, segments: list[Segment], cache: Any, num_cached: int) -> list[Sequenced]:
        """Names the sequences of one call.

        Args:
            segments: In batch order.
            cache: The cache the call continues, when it holds something.
            num_cached: Columns it holds; 0 for a call that starts fresh.

        Raises:
            RecordingError: Fewer names were told than the call has sequences, or the call
                continues a cache whose beginning was not recorded.
        """
        if num_cached:
            return [self._continued(segment, cache) for segment in segments]
        if self._told and len(self._told) < len(segments):
            raise RecordingError(
                "there are fewer request names than sequences",
                expected=f"{len(segments)} names for the sequences of this call",
                got=f"{len(self._told)}: {', '.join(self._told)[:80]}",
                do="name every sequence with rec.requests([...]), or none",
            )
        self._streams = {}
        return [
            Sequenced(name, segment, self._prompt_lengths.get(name))
            for segment in segments
            for name in [self._next_name()]
        ]

    def ended(self, sequences: list[Sequenced], cache: Any) -> None:
        """Remembers where a call left its sequences, so that the next may continue them."""
        if cache is None:
            self._cache, self._streams = None, {}
            return
        self._cache = weakref.ref(cache)
        for name, segment, _ in sequences:
            position = segment.first_position + len(segment.columns)
            self._streams[segment.batch_row] = _Stream(name, position)

    def _next_name(self) -> str:
        if self._told:
            return self._told.popleft()
        while True:
            name = f"r{self._num_named}"
            self._num_named += 1
            if name not in self._used:
                self._used.add(name)
                return name

    def _continued(self, segment: Segment, cache: Any) -> Sequenced:
        stream = self._streams.get(segment.batch_row)
        known = self._cache is not None and self._cache() is cache
        if stream is None or not known or stream.next_position != segment.first_position:
            raise RecordingError(
                "this forward call continues a cache whose beginning was not recorded",
                where=f"row {segment.batch_row} of the batch",
                expected=(
                    f"position {stream.next_position} of request {stream.name}"
                    if stream is not None and known
                    else "a call that starts at position 0"
                ),
                got=f"position {segment.first_position}",
                do="start the recording before the prompt, and keep one cache per batch",
            )
        return Sequenced(stream.name, segment, self._prompt_lengths.get(stream.name))
