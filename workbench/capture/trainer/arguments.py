"""Reading a forward call: what its arguments say it computes, and the logits among its results.

Axis legend: B row of the batch, S column of the call, T real row, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from workbench.capture.arrays import to_numpy
from workbench.capture.trainer.calls import Call
from workbench.errors import RecordingError


def read_call(arguments: Mapping[str, Any]) -> Call:
    """The part of a forward call's arguments that says what it computes.

    Raises:
        RecordingError: No token ids.
    """
    input_ids = arguments.get("input_ids")
    if not isinstance(input_ids, torch.Tensor) or input_ids.dim() != 2:
        got = list(input_ids.shape) if isinstance(input_ids, torch.Tensor) else "no input_ids"
        raise RecordingError(
            "cannot record a forward call without token ids",
            expected="input_ids of shape [batch, tokens]",
            got=got,
            do="call the model with input_ids; embeddings alone do not say which tokens they are",
        )
    cache = arguments.get("past_key_values")
    mask, positions = arguments.get("attention_mask"), arguments.get("position_ids")
    ids_BS = to_numpy(input_ids).astype(np.int64)
    boundaries = arguments.get("cu_seq_lens_q")
    return Call(
        input_ids_BS=ids_BS,
        attention_mask=None if mask is None else _mask(mask),
        position_ids_BS=_positions(positions, ids_BS.shape),
        boundaries=None if boundaries is None else to_numpy(boundaries),
        num_cached=0 if cache is None else int(cache.get_seq_length()),
    )


def _mask(mask: Any) -> np.ndarray:
    if isinstance(mask, torch.Tensor):
        return to_numpy(mask).astype(np.int64) if mask.dim() == 2 else np.empty(mask.shape)
    # A mask per kind of layer, or a block mask: no rows can be read off it.
    return np.empty(())


def _positions(positions: Any, shape: tuple[int, ...]) -> np.ndarray | None:
    """Position ids that number tokens; multimodal ones count along several axes: None."""
    if not isinstance(positions, torch.Tensor) or positions.dim() > 2:
        return None
    found = to_numpy(positions).astype(np.int64).reshape(-1, positions.shape[-1])
    return np.broadcast_to(found, shape) if found.shape[0] == 1 else found


def find_logits(output: Any) -> torch.Tensor | None:
    """The logits among a model's results, [batch, tokens, V]; None when it gave none."""
    logits = getattr(output, "logits", None)
    if logits is None and isinstance(output, tuple):
        logits = next(
            (item for item in output if isinstance(item, torch.Tensor) and item.dim() == 3), None
        )
    return logits if isinstance(logits, torch.Tensor) and logits.dim() == 3 else None


def full_logits(logits_BSV: torch.Tensor | None, call: Call, rows_T: np.ndarray) -> np.ndarray:
    """Logits of the real rows.

    Raises:
        RecordingError: The call did not compute all of them.
    """
    if logits_BSV is None or logits_BSV.shape[:2] != call.input_ids_BS.shape:
        raise RecordingError(
            "logits were asked for, and this call did not compute them all",
            expected=f"logits for {list(call.input_ids_BS.shape)} tokens",
            got="none" if logits_BSV is None else list(logits_BSV.shape),
            do="call without logits_to_keep and fused losses, or record with logits=False",
        )
    flat_XV = logits_BSV.detach().reshape(-1, logits_BSV.shape[-1])
    return to_numpy(flat_XV[torch.from_numpy(rows_T).to(flat_XV.device)])
