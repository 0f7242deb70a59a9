"""Log-probability, rank and entropy of given tokens, from the model's own logits.

The convention of every capture: logits at position p score the token at p + 1, so a row's score is
its own token's, under the distribution that the row before it gave. A first row has none.

Axis legend: R row to score, V vocabulary.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import torch

_BLOCK_VALUES: Final = 1 << 24


class Scores(NamedTuple):
    """Scores of some tokens.

    Attributes:
        logprob_R: float32 natural log-probabilities; NaN where the logits hold NaN.
        rank_R: int32, 1 for the most likely token; ties count against the token.
        entropy_R: float32, of the whole distribution, in nats; tokens of probability 0 add nothing.
    """

    logprob_R: np.ndarray
    rank_R: np.ndarray
    entropy_R: np.ndarray


def score_tokens(logits_XV: torch.Tensor, sources_R: np.ndarray, token_ids_R: np.ndarray) -> Scores:
    """Scores tokens from rows of a logits matrix, a block of rows at a time.

    Args:
        logits_XV: Any float type; log_softmax is taken in float32.
        sources_R: Row of `logits_XV` that scores each token.
        token_ids_R: The tokens.
    """
    block = max(1, _BLOCK_VALUES // max(1, logits_XV.shape[-1]))
    parts = []
    with torch.no_grad():
        for start in range(0, len(sources_R), block):
            stop = start + block
            sources = torch.from_numpy(sources_R[start:stop]).to(logits_XV.device)
            ids = torch.from_numpy(token_ids_R[start:stop]).to(logits_XV.device)
            parts.append(_score_block(logits_XV.detach()[sources], ids))
    if not parts:
        return Scores(np.empty(0, np.float32), np.empty(0, np.int32), np.empty(0, np.float32))
    return Scores(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _score_block(logits_RV: torch.Tensor, ids_R: torch.Tensor) -> Scores:
    logprobs_RV = torch.log_softmax(logits_RV.to(torch.float32), dim=-1)
    own_R1 = logprobs_RV.gather(-1, ids_R.unsqueeze(-1))
    rank_R = (logprobs_RV >= own_R1).sum(-1)
    entropy_R = torch.special.entr(logprobs_RV.exp()).sum(-1)
    return Scores(
        own_R1.squeeze(-1).cpu().numpy(),
        rank_R.to(torch.int32).cpu().numpy(),
        entropy_R.cpu().numpy(),
    )
