"""Log-probability, rank and entropy of tokens from raw logits, by the engine's own arithmetic.

Axis legend: R row that predicts a token, V vocabulary.
"""

from __future__ import annotations

import torch
from vllm.v1.sample.sampler import Sampler

from workbench.capture.vllm.rows import Score


def raw_logprobs(logits_RV: torch.Tensor) -> torch.Tensor:
    """float32 log_softmax of the logits as the model gave them: the engine's `raw_logprobs`."""
    logprobs_RV: torch.Tensor = Sampler.compute_logprobs(logits_RV)
    return logprobs_RV


def score_tokens(logprobs_RV: torch.Tensor, token_ids: list[int]) -> list[Score]:
    """One score per row, of the given token.

    The rank counts tokens at least as likely, the token itself included, as the engine does. NaN
    anywhere in a row makes its entropy NaN; tokens of probability zero add nothing to it.
    """
    if not token_ids:
        return []
    ids_R1 = torch.tensor(token_ids, device=logprobs_RV.device).unsqueeze(-1)
    own_R1 = logprobs_RV.gather(-1, ids_R1)
    rank_R = (logprobs_RV >= own_R1).sum(-1)
    entropy_R = torch.special.entr(logprobs_RV.exp()).sum(-1)
    return [
        Score(logprob, rank, entropy)
        for logprob, rank, entropy in zip(
            own_R1.squeeze(-1).tolist(), rank_R.tolist(), entropy_R.tolist(), strict=True
        )
    ]
