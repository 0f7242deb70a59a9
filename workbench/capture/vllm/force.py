"""Driving given tokens through the engine's real decode loop.

A custom logits processor, handed to the engine as a class. It acts after the engine has taken the
raw log-probabilities, so they stay the model's own. `max_tokens` must be set to the list's length,
or the engine stops at its default of 16.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import torch
from vllm.v1.sample.logits_processor import LogitsProcessor, process_dict_updates

if TYPE_CHECKING:
    from vllm import SamplingParams
    from vllm.config import VllmConfig
    from vllm.v1.sample.logits_processor import BatchUpdate

FORCE_KEY: Final = "kldive_force"
"""Key of the token list in `SamplingParams.extra_args`."""


class ForceTokens(LogitsProcessor):  # type: ignore[misc]
    """Leaves, for each request that carries a token list, only the list's next token to sample."""

    def __init__(self, vllm_config: VllmConfig, device: torch.device, is_pin_memory: bool) -> None:
        del vllm_config, device, is_pin_memory  # the engine's own signature; nothing is needed
        self._forced: dict[int, tuple[Sequence[int], list[int]]] = {}

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Refuses a token list that is not one.

        Raises:
            ValueError: The list holds something that is not a token id.
        """
        tokens = (sampling_params.extra_args or {}).get(FORCE_KEY)
        if tokens is not None and not all(type(t) is int and t >= 0 for t in tokens):
            raise ValueError(f"{FORCE_KEY} must be a list of token ids, got {str(tokens)[:80]}")

    def is_argmax_invariant(self) -> bool:
        """It changes what is sampled, also greedily."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follows requests through the engine's batch."""
        process_dict_updates(self._forced, batch_update, _state)

    def apply(self, logits_RV: torch.Tensor) -> torch.Tensor:
        """Masks, in place, every other token of the rows that are forced."""
        for row, (tokens, output_ids) in self._forced.items():
            if len(output_ids) < len(tokens):
                logits_RV[row] = float("-inf")
                logits_RV[row, tokens[len(output_ids)]] = 0.0
        return logits_RV


def _state(
    params: SamplingParams, _prompt_ids: list[int] | None, output_ids: list[int]
) -> tuple[Sequence[int], list[int]] | None:
    tokens: Any = (params.extra_args or {}).get(FORCE_KEY)
    return (tokens, output_ids) if tokens else None
