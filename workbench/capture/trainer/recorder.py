"""Recording anyone's own forward pass. Owns the life of a recording: hooks on, rows out, hooks off.

The invariant: nothing the model computes changes, and only whole forward calls of the model itself
are recorded, each row once.

Axis legend: B row of the batch, S column of the call, T real row, V vocabulary.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from torch import nn
from torch.utils.hooks import RemovableHandle

from workbench import names
from workbench.capture.contracts import model_contracts
from workbench.capture.structure import find_parts
from workbench.capture.taps import install_taps
from workbench.capture.trainer.arguments import find_logits, full_logits, read_call
from workbench.capture.trainer.buffer import RowBuffer
from workbench.capture.trainer.calls import Call, find_segments
from workbench.capture.trainer.facts import (
    draft_manifest,
    known_missing,
    live_knobs,
    silent_sites,
    weights_fingerprint,
    weights_version,
)
from workbench.capture.trainer.rows import RowScorer, token_columns
from workbench.capture.trainer.sequences import SequenceBook, Sequenced
from workbench.capture.trainer.sink import CallSink
from workbench.errors import RecordingError
from workbench.store import CaptureWriter, SiteInfo
from workbench.store.manifest import with_changes


class Tokenizer(Protocol):
    """The part of a tokenizer that names tokens."""

    def decode(self, token_ids: list[int]) -> str:
        """Text of some token ids."""
        ...


class _OpenCall(NamedTuple):
    call: Call
    sequences: list[Sequenced]
    rows_T: np.ndarray
    arguments: Mapping[str, Any]


def record(
    model: nn.Module,
    directory: str | os.PathLike[str],
    *,
    path: names.Path = "trainer",
    logits: bool = False,
    model_id: str | None = None,
    knobs: Mapping[str, Any] | None = None,
    tokenizer: Tokenizer | None = None,
) -> Recorder:
    """Records what a transformers model computes inside a `with` block.

    ```python
    with workbench.record(model, "run/trainer") as recording:
        recording.requests(["a", "b"])
        model(input_ids=input_ids, attention_mask=attention_mask)
    ```

    Every forward call of the model becomes rows: padding is dropped, packed sequences are told
    apart by position ids, sequences are named r0, r1, ... unless `requests` names them. Works in
    training and under `no_grad`; the model's results and gradients stay the same to the bit. All
    arrays of one forward are held in host memory until it ends.

    Args:
        model: A transformers causal language model, adapters and data-parallel wrappers included.
        directory: New or empty directory for the capture.
        path: Which side this is.
        logits: Record the full logits too (large).
        model_id: Name for the manifest; the model's own when left out.
        knobs: Settings of yours to keep beside those read from the model.
        tokenizer: Gives the text of tokens.

    Raises:
        RecordingError: The model cannot be recorded, or a call cannot be told apart into rows.
        CaptureError: The directory is not empty, or cannot be written.
    """
    return Recorder(
        model,
        directory,
        path=path,
        logits=logits,
        model_id=model_id,
        knobs=knobs or {},
        tokenizer=tokenizer,
    )


class Recorder:
    """A recording; made by `record`, used as a context manager.

    Attributes:
        tokenizer: Gives the text of tokens; may be set at any time before a call.
        step: Number of forward calls recorded so far.
    """

    def __init__(
        self,
        model: nn.Module,
        directory: str | os.PathLike[str],
        *,
        path: names.Path,
        logits: bool,
        model_id: str | None,
        knobs: Mapping[str, Any],
        tokenizer: Tokenizer | None,
    ) -> None:
        self.tokenizer = tokenizer
        self.step = 0
        self._parts = find_parts(model)
        self._with_logits = logits
        self._writer = CaptureWriter(
            directory, draft_manifest(self._parts, path=path, model_id=model_id, knobs=knobs)
        )
        self._weights_version = weights_version(self._parts.model)
        self._sink = CallSink(self._parts.hidden_size)
        self._book = SequenceBook()
        self._scorer = RowScorer()
        self._buffer = RowBuffer(self._writer)
        self._sites: frozenset[str] = frozenset()
        self._open: _OpenCall | None = None
        self._num_aborted = 0
        self._num_shifted = 0
        self._own_knobs = dict(knobs)
        self._handles: list[RemovableHandle] = []
        self._texts: dict[int, str] = {}

    def requests(
        self, request_names: Sequence[str], *, prompt_lengths: Sequence[int] | None = None
    ) -> None:
        """Names the sequences of the next calls, in batch order.

        Args:
            request_names: One name per sequence.
            prompt_lengths: Tokens of each that are the prompt; the rest get phase `generated`.

        Raises:
            UsageError: A name is used twice, or the lengths do not match.
        """
        self._book.tell(request_names, prompt_lengths)

    def __enter__(self) -> Self:
        model = self._parts.model
        self._handles = install_taps(self._parts, self._sink)
        # Installing taps found the last of what cannot be had.
        self._writer.finish(complete=False, missing=known_missing(self._parts))
        self._handles.append(model.register_forward_pre_hook(self._begin, with_kwargs=True))
        self._handles.append(model.register_forward_hook(self._end))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._buffer.flush()
        problem = self._problem() if error is None else None
        counts = {
            "forward_calls": self.step,
            "aborted_calls": self._num_aborted,
            "rows_at_shifted_positions": self._num_shifted,
        }
        self._writer.finish(complete=error is None and problem is None, counts=counts)
        if problem is not None:
            raise problem

    def _problem(self) -> RecordingError | None:
        if self.step == 0:
            return RecordingError(
                "nothing was recorded: the model was not called",
                where=self._writer.directory,
                expected="at least one forward call of the recorded model inside the with block",
                do="call the model that was given to record, not a copy or a compiled version",
            )
        if self._book.left_over:
            return RecordingError(
                "there are more request names than sequences",
                where=self._writer.directory,
                expected="one sequence for every name",
                got=f"none for {', '.join(self._book.left_over)[:80]}",
                do="name the sequences of the batch in order, padding rows left out",
            )
        return None

    def _begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._open is not None:
            self._num_aborted += 1
            self._sink.close()
            self._open = None
        self._check_weights()
        bound = inspect.signature(module.forward).bind_partial(*args, **kwargs).arguments
        arguments = {**{k: v for k, v in bound.items() if k != "kwargs"}, **bound.get("kwargs", {})}
        cache = arguments.get("past_key_values")
        call = read_call(arguments)
        sequences = self._book.assign(find_segments(call), cache, call.num_cached)
        num_columns = call.input_ids_BS.shape[1]
        rows_T = np.concatenate(
            [s.segment.batch_row * num_columns + s.segment.columns for s in sequences]
            or [np.empty(0, np.int64)]
        )
        if len(rows_T):
            self._sink.open(call.input_ids_BS.size, rows_T)
        self._open = _OpenCall(call, sequences, rows_T, arguments)

    def _end(self, _module: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
        if self._open is None:
            return
        (call, sequences, rows_T, arguments), self._open = self._open, None
        arrays = self._sink.close()
        logits_BSV = find_logits(output)
        cache = getattr(output, "past_key_values", None)
        if len(rows_T):
            scores = self._scorer.score(call, sequences, logits_BSV, arguments)
            if self._with_logits:
                arrays["logits"] = full_logits(logits_BSV, call, rows_T)
            self._check_sites(arrays)
            columns = token_columns(call, sequences, scores, self.step, self._text)
            self._buffer.add(columns, arrays)
            self._num_shifted += sum(len(s.segment.columns) for s in sequences if s.segment.shift)
        self._scorer.ended(call, sequences, logits_BSV, arguments, keep=cache is not None)
        self._book.ended(sequences, cache)
        self.step += 1
        if len(rows_T) > len(sequences) or self._buffer.is_full:
            self._buffer.flush()

    def _check_sites(self, arrays: Mapping[str, np.ndarray]) -> None:
        if not self._sites:
            self._sites = frozenset(arrays)
            self._describe(arrays)
        elif self._sites != frozenset(arrays):
            odd = sorted(self._sites ^ frozenset(arrays))
            raise RecordingError(
                "this forward call went through other modules than the first",
                where=", ".join(odd[:4]),
                expected=f"{len(self._sites)} sites",
                got=f"{len(arrays)} sites",
                do="record calls of one kind in one recording",
            )

    def _describe(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Completes the manifest with what the first forward showed."""
        missing = {
            **known_missing(self._parts),
            **silent_sites(self._parts, set(arrays)),
            **self._sink.refused,
        }
        if not self._with_logits:
            missing["logits"] = "not asked for"
        derived = {
            site: SiteInfo(
                dtype=arrays[site].dtype.name, shape=arrays[site].shape[1:], derived=True
            )
            for site in self._sink.derived
        }
        self._writer.manifest = with_changes(
            self._writer.manifest,
            {
                "missing": missing,
                "sites": derived,
                "contracts": model_contracts(self._parts, arrays),
                "knobs": {**live_knobs(self._parts), **self._own_knobs},
            },
        )

    def _check_weights(self) -> None:
        """A capture holds one set of weights: its fingerprint would lie about a second."""
        version = weights_version(self._parts.model)
        if version == self._weights_version:
            return
        self._weights_version = version
        weights = weights_fingerprint(self._parts.model)
        if weights == self._writer.manifest.weights:
            return
        if self.step:
            raise RecordingError(
                "the weights changed while recording",
                where=f"before forward call {self.step}",
                expected="one set of weights per capture",
                do="close this recording before the optimizer step and open another after it",
            )
        self._writer.finish(complete=False, weights=weights)

    @property
    def _text(self) -> Callable[[int], str]:
        def text(token_id: int) -> str:
            if self.tokenizer is None:
                return ""
            if token_id not in self._texts:
                self._texts[token_id] = self.tokenizer.decode([token_id])
            return self._texts[token_id]

        return text
