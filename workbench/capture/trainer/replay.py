"""Replaying a rollout's exact token ids through a transformers model. Owns loading and batching.

The invariant: every row of every request is computed, cached and sampled ones included, in forward
calls that start fresh; the recorder does the rest.

Axis legend: B row of the batch, S column of the call.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal, get_args

import torch
from torch import nn

from workbench.capture.arrays import dtype_by_name
from workbench.capture.requests import Request, read_forced
from workbench.capture.structure import ModelParts, find_parts
from workbench.capture.trainer.facts import attention_implementations, experts_implementation
from workbench.capture.trainer.loading import load_causal_lm
from workbench.capture.trainer.recorder import Tokenizer, record
from workbench.errors import UsageError, did_you_mean

Layout = Literal["padded", "packed"]

MAX_TOKENS: Final = 8192
"""Tokens per forward, padding included, unless one sequence alone is longer."""


def capture_trainer(  # noqa: PLR0913 - one keyword for each option of the command
    model: str | os.PathLike[str] | nn.Module,
    out: str | os.PathLike[str],
    *,
    like: str | os.PathLike[str] | Sequence[Request],
    dtype: str = "auto",
    attn_implementation: str | None = None,
    experts_implementation: str | None = None,
    batch: int = 16,
    layout: Layout = "padded",
    logits: bool = False,
    device: str = "cpu",
    tokenizer: Tokenizer | None = None,
    progress: Callable[[str], None] | None = None,
) -> Path:
    """Records a trainer that computes exactly the tokens of a rollout, teacher-forced.

    Args:
        model: Directory or name of a model in the local cache, or a loaded model.
        out: New or empty directory for the capture.
        like: The rollout's capture, a file of token lists, or requests with token ids.
        dtype: Type to load the weights in; `auto` takes the checkpoint's.
        attn_implementation: For example `eager` or `sdpa`; transformers' choice when left out.
        experts_implementation: For example `eager` or `grouped_mm`; likewise.
        batch: Most sequences per forward.
        layout: `padded` on the right, or `packed` into one row.
        logits: Record the full logits too.
        device: Where to load the model, for example `cpu` or `cuda`.
        tokenizer: Gives the text of tokens; looked for beside the model when left out.
        progress: Told what is being done, in a few words.

    Returns:
        The capture's directory.

    Raises:
        MissingDependencyError: transformers is not installed.
        UsageError: The model cannot be loaded as asked, or its vocabulary lacks a token.
        CaptureError: The rollout cannot be read, or the capture not written.
    """
    say = progress or (lambda _stage: None)
    _check_options(batch, layout)
    requests = _requests(like)
    say("loading the model")
    live, name = _loaded(model, dtype, attn_implementation, experts_implementation, device)
    parts = find_parts(live)
    _check_model(parts, attn_implementation, experts_implementation, layout)
    _check_vocabulary(parts, requests)
    knobs = {"batch": batch, "layout": layout, "dtype_asked": dtype, "like": _source(like)}
    if tokenizer is None and name is not None:
        tokenizer = _tokenizer(name)
    place = next(live.parameters()).device
    num_tokens = sum(len(_ids(request)) for request in requests)
    say(f"computing {len(requests)} requests, {num_tokens} tokens")
    was_training = live.training
    live.eval()
    try:
        with (
            torch.no_grad(),
            record(
                live, out, logits=logits, model_id=name, knobs=knobs, tokenizer=tokenizer
            ) as recording,
        ):
            for group in _batches(requests, batch, layout):
                recording.requests(
                    [request.name for request in group],
                    prompt_lengths=[len(request.prompt_token_ids or ()) for request in group],
                )
                live(**_arguments(group, layout, parts, place), use_cache=False)
    finally:
        live.train(was_training)
    return Path(out)


def _check_options(batch: int, layout: str) -> None:
    if batch < 1:
        raise UsageError("a batch needs at least one sequence", expected="1 or more", got=batch)
    if layout not in get_args(Layout):
        raise UsageError(f"unknown layout {layout!r}", do=did_you_mean(layout, get_args(Layout)))


def _requests(like: str | os.PathLike[str] | Sequence[Request]) -> list[Request]:
    if isinstance(like, (str, os.PathLike)):
        return read_forced(Path(like))
    for request in like:
        if not request.prompt_token_ids:
            raise UsageError(
                f"request {request.name!r} has no token ids",
                expected="prompt_token_ids, as a rollout recorded them",
                do="record a rollout first and replay its capture",
            )
    if not like:
        raise UsageError("no requests to replay", expected="at least one")
    return list(like)


def _source(like: object) -> str:
    return str(like) if isinstance(like, (str, os.PathLike)) else "requests"


def _ids(request: Request) -> tuple[int, ...]:
    return (*(request.prompt_token_ids or ()), *request.forced_token_ids)


def _loaded(
    model: str | os.PathLike[str] | nn.Module,
    dtype: str,
    attention: str | None,
    experts: str | None,
    device: str,
) -> tuple[nn.Module, str | None]:
    if isinstance(model, nn.Module):
        return model, None
    options: dict[str, Any] = {"dtype": dtype if dtype == "auto" else dtype_by_name(dtype)}
    if attention is not None:
        options["attn_implementation"] = attention
    if experts is not None:
        options["experts_implementation"] = experts
    live = load_causal_lm(
        model,
        purpose="to record a trainer",
        expected=f"a causal language model on disk, for device {device}",
        do="check the directory, and the options --dtype, --attn, --experts and --device",
        **options,
    )
    return _moved(live, model, device), str(model)


def _moved(live: nn.Module, model: object, device: str) -> nn.Module:
    try:
        return live.to(torch.device(device))
    except (RuntimeError, AssertionError) as error:
        raise UsageError(
            f"cannot put the model on device {device}",
            where=model,
            expected="a device that this torch can use, such as cpu or cuda",
            got=(str(error).strip().splitlines() or [type(error).__name__])[0][:300],
            do="choose another --device",
        ) from error


def _check_model(
    parts: ModelParts, attention: str | None, experts: str | None, layout: Layout
) -> None:
    """What was asked for must be what runs."""
    live = attention_implementations(parts)
    if attention is not None and live and live != [attention]:
        raise UsageError(
            "the model does not use the attention implementation that was asked for",
            expected=attention,
            got=", ".join(live),
            do="load the model with it, or leave --attn out",
        )
    found = sorted(
        {_experts_in_use(layer.experts) for layer in parts.layers if layer.experts is not None}
    )
    if experts is not None and found and found != [experts]:
        raise UsageError(
            "the model does not use the experts implementation that was asked for",
            expected=experts,
            got=", ".join(found),
            do="load the model with it, or leave --experts out",
        )
    mixers = {
        type(p.attention).__name__
        for p in parts.layers
        if p.attention is not None and "Attention" not in type(p.attention).__name__
    }
    if layout == "packed" and mixers:
        raise UsageError(
            "this model cannot be replayed packed: its state would leak between sequences",
            got=", ".join(sorted(mixers)),
            do="use the layout padded",
        )


def _experts_in_use(experts: nn.Module) -> str:
    return experts_implementation(experts)


def _check_vocabulary(parts: ModelParts, requests: list[Request]) -> None:
    embedding = parts.embedding
    num_rows = getattr(embedding, "num_embeddings", None) or int(parts.config.vocab_size)
    for request in requests:
        for position, token in enumerate(_ids(request)):
            if not 0 <= token < num_rows:
                raise UsageError(
                    "a token of the rollout is not in this model's vocabulary",
                    where=f"request {request.name}, position {position}",
                    expected=f"an id below {num_rows}",
                    got=token,
                    do="give the model that the rollout ran",
                )


def _tokenizer(name: str) -> Tokenizer | None:
    """The tokenizer beside the model; None when there is none: texts stay empty then."""
    from transformers import AutoTokenizer

    try:
        found: Tokenizer = AutoTokenizer.from_pretrained(name, local_files_only=True)
    except (OSError, ValueError, KeyError, ImportError):
        return None
    return found


def _batches(requests: list[Request], batch: int, layout: Layout) -> Iterator[list[Request]]:
    """Consecutive requests, as many as fit."""
    group: list[Request] = []
    for request in requests:
        lengths = [len(_ids(item)) for item in (*group, request)]
        num_tokens = sum(lengths) if layout == "packed" else max(lengths) * len(lengths)
        if group and (len(group) == batch or num_tokens > MAX_TOKENS):
            yield group
            group = []
        group.append(request)
    yield group


def _arguments(
    group: list[Request], layout: Layout, parts: ModelParts, device: torch.device
) -> dict[str, torch.Tensor]:
    sequences = [_ids(request) for request in group]
    if layout == "packed":
        tokens = [token for ids in sequences for token in ids]
        positions = [position for ids in sequences for position in range(len(ids))]
        # No mask: transformers tells packed sequences apart by their positions only without one.
        return {
            "input_ids": torch.tensor([tokens], device=device),
            "position_ids": torch.tensor([positions], device=device),
        }
    longest = max(len(ids) for ids in sequences)
    pad = getattr(parts.config, "pad_token_id", None)
    pad = pad if isinstance(pad, int) and pad >= 0 else 0
    input_ids_BS = torch.full((len(sequences), longest), pad, device=device)
    mask_BS = torch.zeros_like(input_ids_BS)
    for row, ids in enumerate(sequences):
        input_ids_BS[row, : len(ids)] = torch.tensor(ids, device=device)
        mask_BS[row, : len(ids)] = 1
    return {"input_ids": input_ids_BS, "attention_mask": mask_BS}
