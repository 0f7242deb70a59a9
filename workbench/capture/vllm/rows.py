"""Which row of which engine step is which token of which request. Owns attribution, nothing else.

Stdlib and numpy only: no torch, no vLLM. The invariant: a line leaves this module only after the
token the engine really fed at that row was found equal to the request's own token at that position.

A ledger is told, in the engine's order, which requests exist (`admit`), what a step fed
(`begin_step`), what was scored and sampled (`score`, `sampled`), and gives back the step's lines
(`end_step`). Rows that the engine computes again after a preemption keep their first computation.

Axis legend: T row of one engine step (padding excluded).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from workbench.capture.vllm.row_values import KnownRequest, Line, MediaRange, Score, Span
from workbench.errors import RecordingError
from workbench.names import RowState

__all__ = ["Line", "MediaRange", "RowLedger", "Score", "Span"]


class RowLedger:
    """Attributes the rows of every engine step to (request, position).

    Attributes:
        step: Number of recorded steps so far.
        num_repeated: Rows computed again (preemption); their first computation was kept.
        num_ignored: Rows of requests that were already running when the recording began.
    """

    def __init__(self, *, prompt_lengths: Mapping[str, int] | None = None) -> None:
        self.step = 0
        self.num_repeated = 0
        self.num_ignored = 0
        self._prompt_lengths = dict(prompt_lengths or {})
        self._requests: dict[str, KnownRequest] = {}
        self._names: dict[str, int] = {}
        self._ignored: set[str] = set()
        self._new_rows: list[tuple[KnownRequest, int, int]] = []
        self._cached_rows: list[tuple[KnownRequest, int, int]] = []
        self._batch_size = 0

    def ignore(self, request_id: str) -> None:
        """Leaves a request out: it was running before the recording began."""
        self._ignored.add(request_id)

    def admit(
        self,
        request_id: str,
        *,
        name: str,
        prompt_ids: Sequence[int],
        stop_ids: Iterable[int] = (),
        media: Iterable[MediaRange] = (),
    ) -> None:
        """Makes a request known before its first step.

        A request whose id was used before is another request: it gets the name with `#2`, `#3`, ...

        Raises:
            RecordingError: The request has no token ids (prompt embeddings).
        """
        if not prompt_ids:
            raise RecordingError(
                "cannot record a request without token ids",
                where=f"request {name}",
                expected="a prompt of token ids",
                got="prompt embeddings, or an empty prompt",
                do="send token ids or text",
            )
        self._ignored.discard(request_id)
        count = self._names[name] = self._names.get(name, 0) + 1
        self._requests[request_id] = KnownRequest(
            name=name if count == 1 else f"{name}#{count}",
            token_ids=[int(token) for token in prompt_ids],
            given_length=len(prompt_ids),
            prompt_length=self._prompt_lengths.get(name, len(prompt_ids)),
            stop_ids=frozenset(stop_ids),
            media=tuple(media),
        )

    def names(self) -> dict[str, str]:
        """Name by engine request id, in order of admission."""
        return {request_id: request.name for request_id, request in self._requests.items()}

    def token_ids(self, request_id: str) -> list[int] | None:
        """All tokens known of a request (a copy); None when it is not recorded."""
        request = self._requests.get(request_id)
        return None if request is None else list(request.token_ids)

    def begin_step(
        self, spans: Sequence[Span], fed_ids_T: np.ndarray, positions_T: np.ndarray | None = None
    ) -> np.ndarray:
        """Checks what the step feeds and says which of its rows are to be recorded.

        Args:
            spans: The batch, in the engine's order; their counts cover `fed_ids_T` exactly.
            fed_ids_T: Token ids that the model is given, integers.
            positions_T: Positions that the model is given, where it takes plain ones.

        Returns:
            Indices of the rows that are new, ascending, int64.

        Raises:
            RecordingError: A row does not hold the token, or the position, that its request has
            there.
        """
        total = sum(span.num_rows for span in spans)
        if total != len(fed_ids_T):
            raise RecordingError(
                "the engine fed another number of rows than it scheduled",
                where=f"engine step {self.step}",
                expected=f"{total} rows",
                got=f"{len(fed_ids_T)} rows",
                do="record without padding, speculative decoding or micro-batches",
            )
        self._new_rows.clear()
        self._cached_rows.clear()
        self._batch_size = len(spans)
        keep: list[np.ndarray] = []
        row = 0
        for span in spans:
            request = self._known(span)
            if request is not None:
                self._check_span(request, span, row, fed_ids_T, positions_T)
                first_new = self._advance(request, span)
                keep.append(np.arange(row + first_new, row + span.num_rows))
            else:
                self.num_ignored += span.num_rows
            row += span.num_rows
        return np.concatenate(keep) if keep else np.empty(0, np.int64)

    def _known(self, span: Span) -> KnownRequest | None:
        if span.request_id in self._ignored:
            return None
        request = self._requests.get(span.request_id)
        if request is None:
            raise RecordingError(
                "the engine computes a request that it never announced",
                where=f"engine step {self.step}, request {span.request_id}",
                do="report this: the request bookkeeping of this engine version is not understood",
            )
        return request

    def _check_span(
        self,
        request: KnownRequest,
        span: Span,
        row: int,
        fed_ids_T: np.ndarray,
        positions_T: np.ndarray | None,
    ) -> None:
        stop = span.start + span.num_rows
        known = np.asarray(request.token_ids[span.start : stop], np.int64)
        fed = fed_ids_T[row : row + span.num_rows]
        if len(known) < span.num_rows or not np.array_equal(known, fed):
            first = next(
                (i for i, (a, b) in enumerate(zip(known, fed, strict=False)) if a != b), len(known)
            )
            raise RecordingError(
                "the engine fed a token that is not the request's; this step is not recorded",
                where=f"step {self.step}, request {request.name}, position {span.start + first}",
                expected=f"token {known[first]}" if first < len(known) else "no token yet",
                got=f"token {fed[first]}",
                do="report this: rows of this engine version are not attributed rightly",
            )
        if positions_T is not None:
            found = positions_T[row : row + span.num_rows]
            if not np.array_equal(found, np.arange(span.start, stop)):
                raise RecordingError(
                    "the engine fed positions that are not the request's",
                    where=f"step {self.step}, request {request.name}",
                    expected=f"positions {span.start} to {stop - 1}",
                    got=f"positions {found[0]} to {found[-1]}",
                    do="report this: rows of this engine version are not attributed rightly",
                )

    def _advance(self, request: KnownRequest, span: Span) -> int:
        """Marks the span's rows as seen; returns how many of its first rows were seen before."""
        if span.start > request.num_seen:
            self._cached_rows.append((request, request.num_seen, span.start))
        repeated = min(max(request.num_seen - span.start, 0), span.num_rows)
        self.num_repeated += repeated
        stop = span.start + span.num_rows
        if repeated < span.num_rows:
            self._new_rows.append((request, span.start + repeated, stop))
            request.num_seen = stop
        return repeated

    def score(self, request_id: str, position: int, score: Score) -> None:
        """Tells how a token of a prompt was scored; the first score of a position is kept."""
        request = self._requests.get(request_id)
        if request is not None:
            request.scores.setdefault(position, score)

    def sampled(self, request_id: str, position: int, token_id: int, score: Score | None) -> None:
        """Tells which token was sampled for a position, before any step feeds it.

        Raises:
            RecordingError: The position is not the request's next one.
        """
        request = self._requests.get(request_id)
        if request is None or request_id in self._ignored:
            return
        if request.num_seen <= position < len(request.token_ids):
            # The engine threw an in-flight token away (preemption under async scheduling).
            del request.token_ids[position:]
            request.scores.pop(position, None)
        if position != len(request.token_ids):
            raise RecordingError(
                "the engine sampled a token for a position that is not the next one",
                where=f"step {self.step}, request {request.name}",
                expected=f"position {len(request.token_ids)}",
                got=f"position {position}",
                do="record without speculative decoding",
            )
        request.token_ids.append(token_id)
        request.sampled_at[position] = (self.step, self._batch_size)
        if score is not None:
            request.scores[position] = score

    def end_step(self) -> tuple[list[Line], list[Line]]:
        """The step's lines: those served from the prefix cache, and the kept rows' in order."""
        cached = [
            self._line(request, position, "cached")
            for request, start, stop in self._cached_rows
            for position in range(start, stop)
        ]
        computed = [
            self._line(request, position, "computed")
            for request, start, stop in self._new_rows
            for position in range(start, stop)
        ]
        self.step += 1
        return cached, computed

    def _line(self, request: KnownRequest, position: int, state: RowState) -> Line:
        step, batch_size = self.step, self._batch_size
        if state == "sampled":
            step, batch_size = request.sampled_at[position]
        score = None if state == "cached" else request.scores.pop(position, None)
        if state == "computed" and position >= request.given_length:
            request.newest_score = (position, score)
            request.sampled_at.pop(position - 2, None)
        return Line(
            request=request.name,
            position=position,
            token_id=request.token_ids[position],
            phase=request.phase(position),
            state=state,
            modality=request.modality(position),
            step=step,
            batch_size=batch_size,
            score=score,
        )

    def newest(self) -> dict[str, int]:
        """Last computed position by name, of the requests whose last computed token was sampled.

        Under asynchronous scheduling the engine may compute that row, and sample from it, before it
        knows that the request had ended with the token.
        """
        return {
            request.name: request.num_seen - 1
            for request in self._requests.values()
            if request.num_seen > request.given_length
        }

    def undo_run_ahead(self, ends: Mapping[str, int]) -> dict[str, int]:
        """Forgets the last row of requests that the engine continued past their end.

        Returns:
            First position whose computed row must not be written, by name.
        """
        undone = {}
        for request in self._requests.values():
            end = ends[request.name]
            ran_ahead = len(request.token_ids) > end and request.num_seen >= end
            if ran_ahead and end > request.given_length:
                request.num_seen = end - 1
                position, score = request.newest_score
                if position == end - 1 and score is not None:
                    request.scores[position] = score
                undone[request.name] = end - 1
        return undone

    def ends(self, received: Mapping[str, int] | None) -> dict[str, int]:
        """First position that is not part of each request any more, by name.

        Args:
            received: Number of generated tokens that the client really got, by name. A request that
                is not named ends after its first stop token, or with its last token.

        Raises:
            RecordingError: A client got more tokens than were recorded.
        """
        ends = {}
        for request in self._requests.values():
            generated = request.token_ids[request.prompt_length :]
            count = (received or {}).get(request.name)
            if count is None:
                stops = (i + 1 for i, token in enumerate(generated) if token in request.stop_ids)
                count = next(stops, len(generated))
            elif count > len(generated):
                raise RecordingError(
                    "the client got more tokens than the recorder saw",
                    where=f"request {request.name}",
                    expected=f"{count} generated tokens",
                    got=f"{len(generated)}",
                    do="start the recording before the first request and stop it after the last",
                )
            ends[request.name] = request.prompt_length + count
        return ends

    def unfed_lines(self, ends: Mapping[str, int]) -> list[Line]:
        """Lines of the sampled tokens that no step fed back, up to each request's end."""
        return [
            self._line(request, position, "sampled")
            for request in self._requests.values()
            for position in range(
                max(request.num_seen, request.prompt_length),
                min(len(request.token_ids), ends[request.name]),
            )
            if position in request.sampled_at
        ]
