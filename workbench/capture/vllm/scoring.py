"""Scores the tokens of one engine step: sampled ones, and those of prompts that asked for it.

Scores come from the logits as the model gave them: the engine overwrites them in place when it
samples. Logits at a row score the token after it, so each score is handed to the ledger for the
next position.

Axis legend: N row of the step that is kept, R row that predicts a token, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from workbench.capture.arrays import dtype_name, to_numpy
from workbench.capture.vllm.buffer import Sparse
from workbench.capture.vllm.rows import RowLedger, Span
from workbench.capture.vllm.scores import raw_logprobs, score_tokens
from workbench.errors import RecordingError


class PromptScoring(NamedTuple):
    """Prompt rows of one request whose logits the engine is about to compute."""

    request_id: str
    start: int
    num_rows: int


class StepScoring:
    """Follows the logits of a step from the model to the sampler.

    Args:
        runner: The engine's model runner.
        ledger: Is told every score and sampled token.
        keeps_logits: Whether the logits themselves are recorded.

    Attributes:
        logits_dtype: Element type of the logits as computed; empty before the first.
    """

    def __init__(self, runner: Any, ledger: RowLedger, *, keeps_logits: bool) -> None:
        self.logits_dtype = ""
        self._runner = runner
        self._ledger = ledger
        self._keeps_logits = keeps_logits
        self._spans: Sequence[Span] = ()
        self._keep_N: np.ndarray = np.empty(0, np.int64)
        self._logits: dict[int, np.ndarray] = {}
        self._logprobs_RV: torch.Tensor | None = None
        self._plan: list[PromptScoring] | None = None

    def begin(self, spans: Sequence[Span], keep_N: np.ndarray) -> None:
        """Starts a step with its batch and the rows that are kept."""
        self._spans, self._keep_N = spans, keep_N
        self._logits, self._logprobs_RV, self._plan = {}, None, None

    def saw_logits(self, logits_RV: torch.Tensor | None) -> None:
        """Takes what the model's head computed, for sampling or for a prompt.

        Raises:
            RecordingError: They are not the rows that the engine was expected to score.
        """
        if logits_RV is None:
            return
        self.logits_dtype = dtype_name(logits_RV.dtype)
        if self._plan is not None:
            self._score_prompt(self._plan, logits_RV)
        elif self._logprobs_RV is None:
            self._score_samples(logits_RV)

    def _score_samples(self, logits_RV: torch.Tensor) -> None:
        if len(logits_RV) != len(self._spans):
            raise RecordingError(
                "the engine computed logits for another number of rows than it has requests",
                expected=len(self._spans),
                got=len(logits_RV),
                do="record without speculative decoding",
            )
        self._logprobs_RV = raw_logprobs(logits_RV)
        # Rows in the middle of a chunked prompt get logits too; nothing is sampled from them.
        sampled_from = ~self._runner.discard_request_mask.np[: len(self._spans)]
        last_rows = np.cumsum([span.num_rows for span in self._spans]) - 1
        self._keep_logits(logits_RV[torch.from_numpy(sampled_from)], last_rows[sampled_from])

    def _keep_logits(self, logits_RV: torch.Tensor, rows: np.ndarray) -> None:
        if self._keeps_logits and len(self._keep_N):
            kept = np.isin(rows, self._keep_N)
            values = to_numpy(logits_RV.detach().clone())
            places = np.searchsorted(self._keep_N, rows[kept])
            self._logits.update(zip(places.tolist(), values[kept], strict=True))

    def saw_sampled(self, sampler_output: Any) -> None:
        """Takes the tokens that were sampled, one per request of the batch."""
        if self._logprobs_RV is None:
            return
        token_ids = [row[0] for row in sampler_output.sampled_token_ids.tolist()]
        scores = score_tokens(self._logprobs_RV, token_ids)
        self._logprobs_RV = None
        discarded = self._runner.discard_request_mask.np
        for i, (span, token_id, score) in enumerate(
            zip(self._spans, token_ids, scores, strict=True)
        ):
            if not discarded[i]:
                position = span.start + span.num_rows
                self._ledger.sampled(span.request_id, position, token_id, score)

    def plan_prompts(self, num_scheduled_tokens: dict[str, int]) -> None:
        """Works out which prompt rows the engine scores next, in its order.

        All rows of a prompt but the last, which predicts the first sampled token.
        """
        self._plan = []
        for request_id in self._runner.num_prompt_logprobs:
            count = num_scheduled_tokens.get(request_id)
            request = self._runner.requests[request_id]
            if count is None or request.prompt_token_ids is None:
                continue
            start = int(request.num_computed_tokens)
            count = min(count, len(request.prompt_token_ids) - start - 1)
            if count > 0:
                self._plan.append(PromptScoring(request_id, start, count))

    def end_prompts(self) -> None:
        """The engine has scored its prompts."""
        self._plan = None

    def _score_prompt(self, plan: list[PromptScoring], logits_RV: torch.Tensor) -> None:
        item = plan.pop(0) if plan else None
        if item is None or len(logits_RV) != item.num_rows:
            raise RecordingError(
                "the engine scored other prompt rows than expected",
                expected=item.num_rows if item else "no more prompts",
                got=len(logits_RV),
                do="report this: prompt scoring of this engine version is not understood",
            )
        prompt_ids = self._runner.requests[item.request_id].prompt_token_ids
        first = item.start + 1
        targets = [int(token) for token in prompt_ids[first : first + item.num_rows]]
        for i, score in enumerate(score_tokens(raw_logprobs(logits_RV), targets)):
            self._ledger.score(item.request_id, first + i, score)
        starts = np.cumsum([0, *(span.num_rows for span in self._spans)])
        for span, row in zip(self._spans, starts, strict=False):
            if span.request_id == item.request_id:
                self._keep_logits(logits_RV, np.arange(row, row + item.num_rows))

    def logits(self) -> dict[str, Sparse]:
        """The step's logits by site, with their places among the kept rows; empty without any."""
        if not self._logits:
            return {}
        places = sorted(self._logits)
        values = np.stack([self._logits[place] for place in places])
        return {"logits": Sparse(values, np.asarray(places))}
