"""The token table of a forward call: names, positions, phases and scores of its real rows.

Axis legend: B row of the batch, S column of the call, V vocabulary, X row of a logits matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from workbench.capture.arrays import to_numpy
from workbench.capture.trainer.calls import Call
from workbench.capture.trainer.scores import Scores, score_tokens
from workbench.capture.trainer.sequences import Sequenced

RowScores = dict[int, tuple[float, int, float]]
"""(logprob, rank, entropy) by real row of a call, of the rows that could be scored."""


class RowScorer:
    """Scores each row from the row before it, across calls that continue a cache."""

    def __init__(self) -> None:
        self._tails: dict[str, torch.Tensor] = {}

    def score(
        self,
        call: Call,
        sequences: list[Sequenced],
        logits_BSV: torch.Tensor | None,
        arguments: Mapping[str, Any],
    ) -> RowScores:
        """Scores the rows of one call; rows without logits before them have no entry."""
        rows, sources, ids = [], [], []
        tail_rows, tails, tail_ids = [], [], []
        place_S = _logits_places(call, logits_BSV, arguments)
        num_kept = 0 if logits_BSV is None else logits_BSV.shape[1]
        row = 0
        for name, segment, _ in sequences:
            for index, column in enumerate(segment.columns):
                token = int(call.input_ids_BS[segment.batch_row, column])
                before = place_S[segment.columns[index - 1]] if index else -1
                if before >= 0:
                    rows.append(row)
                    sources.append(segment.batch_row * num_kept + before)
                    ids.append(token)
                elif not index and segment.first_position and name in self._tails:
                    tail_rows.append(row)
                    tails.append(self._tails[name])
                    tail_ids.append(token)
                row += 1
        scores: RowScores = {}
        if logits_BSV is not None and rows:
            flat_XV = logits_BSV.reshape(-1, logits_BSV.shape[-1])
            _put(scores, rows, score_tokens(flat_XV, np.array(sources), np.array(ids)))
        if tails:
            stacked = torch.stack(tails)
            _put(
                scores, tail_rows, score_tokens(stacked, np.arange(len(tails)), np.array(tail_ids))
            )
        return scores

    def ended(
        self,
        call: Call,
        sequences: list[Sequenced],
        logits_BSV: torch.Tensor | None,
        arguments: Mapping[str, Any],
        *,
        keep: bool,
    ) -> None:
        """Keeps each sequence's last logits, when a later call may continue it."""
        self._tails = {}
        if not keep or logits_BSV is None:
            return
        place_S = _logits_places(call, logits_BSV, arguments)
        for name, segment, _ in sequences:
            place = place_S[segment.columns[-1]]
            if place >= 0:
                self._tails[name] = logits_BSV[segment.batch_row, place].detach().clone()


def token_columns(
    call: Call,
    sequences: list[Sequenced],
    scores: RowScores,
    step: int,
    text: Callable[[int], str],
) -> dict[str, list[Any]]:
    """Token columns of a call's real rows, in batch order."""
    columns: dict[str, list[Any]] = {
        name: []
        for name in (
            "request",
            "position",
            "token_id",
            "text",
            "phase",
            "logprob",
            "rank",
            "entropy",
        )
    }
    row = 0
    for name, segment, prompt_length in sequences:
        for index, column in enumerate(segment.columns):
            token = int(call.input_ids_BS[segment.batch_row, column])
            position = segment.first_position + index
            is_prompt = prompt_length is None or position < prompt_length
            logprob, rank, entropy = scores.get(row, (None, None, None))
            columns["request"].append(name)
            columns["position"].append(position)
            columns["token_id"].append(token)
            columns["text"].append(text(token))
            columns["phase"].append("prompt" if is_prompt else "generated")
            columns["logprob"].append(logprob)
            columns["rank"].append(rank)
            columns["entropy"].append(entropy)
            row += 1
    columns["step"] = [step] * row
    columns["batch_size"] = [len(sequences)] * row
    return columns


def _put(scores: RowScores, rows: list[int], found: Scores) -> None:
    columns = (found.logprob_R.tolist(), found.rank_R.tolist(), found.entropy_R.tolist())
    for row, *values in zip(rows, *columns, strict=True):
        scores[row] = (values[0], values[1], values[2])


def _logits_places(
    call: Call, logits_BSV: torch.Tensor | None, arguments: Mapping[str, Any]
) -> np.ndarray:
    """Column of the logits for each column of the call, -1 where the call computed none."""
    num_columns = call.input_ids_BS.shape[1]
    place_S = np.full(num_columns, -1)
    if logits_BSV is None:
        return place_S
    num_kept = logits_BSV.shape[1]
    keep = arguments.get("logits_to_keep", 0)
    if isinstance(keep, torch.Tensor):
        kept = to_numpy(keep).astype(np.int64) % num_columns
        if len(kept) == num_kept:
            place_S[kept] = np.arange(num_kept)
    else:
        place_S[num_columns - num_kept :] = np.arange(num_kept)
    return place_S
