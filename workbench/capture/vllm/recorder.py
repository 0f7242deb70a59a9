"""Follows a live model runner step by step and turns what it does into a capture.

One recorder wraps one runner's own methods, on that object only, between start and stop. It reads
what the engine schedules, feeds and samples, and never changes it. A fault of the recording ends
the recording with its reason; it does not take the engine down.

Axis legend: N row that is kept.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import torch

from workbench.capture.vllm.buffer import RowBuffer
from workbench.capture.vllm.discover import ModelParts
from workbench.capture.vllm.patches import Patches
from workbench.capture.vllm.rows import Line, MediaRange, RowLedger, Span
from workbench.capture.vllm.scoring import StepScoring
from workbench.capture.vllm.settings import RecordSettings
from workbench.capture.vllm.sink import StepSink
from workbench.capture.vllm.taps import install_taps
from workbench.errors import KldiveError, RecordingError

_log = logging.getLogger("vllm.kldive")


class Recorder:
    """Records the steps of a model runner.

    Args:
        runner: The engine's model runner.
        parts: Where the sites of its model are.
        settings: What to record.
        buffer: Takes finished rows; None on ranks that only take part in reductions.
        hidden_size: Width of the residual stream.

    Attributes:
        error: Why the recording ended early; None while all is well.
        first_arrays: Arrays of the first step that had rows to keep, by site.
        topk_sorted: Whether gate weights came sorted, largest first, in every row so far.
    """

    def __init__(
        self,
        runner: Any,
        parts: ModelParts,
        settings: RecordSettings,
        buffer: RowBuffer | None,
        *,
        hidden_size: int,
    ) -> None:
        self.error: str | None = None
        self.topk_sorted = True
        self.first_arrays: dict[str, np.ndarray] = {}
        self.ledger = RowLedger(prompt_lengths=settings.prompt_lengths)
        self.sink = StepSink(settings.wants)
        self.scoring = StepScoring(runner, self.ledger, keeps_logits=settings.logits)
        self._runner = runner
        self._names = settings.names
        self._buffer = buffer
        self._patches = Patches()
        self._schedule: Any = None
        self._keep_N: np.ndarray = np.empty(0, np.int64)
        self._arrays: dict[str, np.ndarray] = {}
        self._write_error: str | None = None
        for request_id in runner.requests:
            self.ledger.ignore(request_id)
        try:
            self._finish_taps = install_taps(
                parts, self.sink, self._patches, hidden_size=hidden_size
            )
            self._wrap_runner()
        except Exception:
            self._patches.remove()
            raise

    def _wrap_runner(self) -> None:
        runner, patches = self._runner, self._patches
        patches.wrap(runner, "execute_model", self._around_execute)
        patches.wrap(runner, "_model_forward", self._around_forward)
        patches.wrap(runner.model, "compute_logits", self._after(self._saw_logits))
        patches.wrap(runner, "_sample", self._after(self._saw_sampled))
        patches.wrap(runner, "_get_prompt_logprobs_dict", self._around_prompt_logprobs)
        patches.wrap(runner, "sample_tokens", self._after(self._end_step))

    # Guards: the engine's own result always goes back unchanged.

    def _try(self, call: Callable[..., None], *args: Any) -> None:
        if self.error is not None:
            return
        try:
            call(*args)
        except KldiveError as error:
            self.fail(str(error))
        except Exception as error:  # noqa: BLE001 - a fault here must not end the engine's step
            _log.exception("recording failed")
            self.fail(f"recording failed inside the engine: {type(error).__name__}: {error}")

    def fail(self, reason: str) -> None:
        """Ends the recording; what was written stays, marked incomplete."""
        self.error = reason
        self.sink.discard()
        self._patches.remove()
        _log.error("recording stopped: %s", reason)

    def _after(self, call: Callable[[Any], None]) -> Callable[[Any], Any]:
        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                result = original(*args, **kwargs)
                self._try(call, result)
                return result

            return wrapper

        return make

    # The engine's step, in order.

    def _around_execute(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def execute_model(scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
            self._try(self._announce, scheduler_output)
            return original(scheduler_output, *args, **kwargs)

        return execute_model

    def _announce(self, scheduler_output: Any) -> None:
        if self._schedule is not None:
            raise RecordingError(
                "the engine began a step before it sampled from the last one",
                do="record without pipeline parallelism",
            )
        if scheduler_output.scheduled_spec_decode_tokens:
            raise RecordingError(
                "speculative decoding cannot be recorded",
                expected="one sampled token per request and step",
                do="start the engine without a speculative configuration",
            )
        for new in scheduler_output.scheduled_new_reqs:
            is_live = new.req_id in self._runner.requests
            if is_live and new.req_id not in scheduler_output.finished_req_ids:
                raise RecordingError(
                    "a request whose prompt is streamed cannot be recorded",
                    where=f"request {new.req_id}",
                    do="send each prompt whole",
                )
            self._admit(new)
        if scheduler_output.total_num_scheduled_tokens > 0:
            self._schedule = scheduler_output

    def _admit(self, new: Any) -> None:
        params = new.sampling_params
        stops: set[int] = set()
        if params is not None:
            stops.update(params.stop_token_ids or ())
            if params._eos_token_id is not None and not params.ignore_eos:
                stops.add(params._eos_token_id)
        self.ledger.admit(
            new.req_id,
            name=client_name(new.req_id, self._names),
            prompt_ids=new.prompt_token_ids or (),
            stop_ids=stops,
            media=[
                MediaRange(
                    item.modality,
                    item.mm_position.offset,
                    item.mm_position.offset + item.mm_position.length,
                )
                for item in new.mm_features or ()
            ],
        )

    def _around_forward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def _model_forward(*args: Any, **kwargs: Any) -> Any:
            # Warm-up, profiling and dummy runs come without a schedule.
            real = self._schedule is not None and self.error is None
            if real:
                self._try(self._begin_step, *_inputs(args, kwargs))
            output = original(*args, **kwargs)
            if real:
                self._try(self._saw_output, output)
            return output

        return _model_forward

    def _begin_step(
        self,
        input_ids: torch.Tensor | None,
        positions: torch.Tensor | None,
        embeds: torch.Tensor | None,
    ) -> None:
        batch, scheduled = self._runner.input_batch, self._schedule.num_scheduled_tokens
        computed = batch.num_computed_tokens_cpu
        spans = [
            Span(request_id, int(computed[i]), int(scheduled[request_id]))
            for i, request_id in enumerate(batch.req_ids[: batch.num_reqs])
        ]
        num_rows = int(self._schedule.total_num_scheduled_tokens)
        ids = self._runner.input_ids.gpu if input_ids is None else input_ids
        plain = positions is not None and positions.dim() == 1
        self._keep_N = self.ledger.begin_step(
            spans,
            ids[:num_rows].cpu().numpy(),
            positions[:num_rows].cpu().numpy() if plain and positions is not None else None,
        )
        self._arrays = {}
        self.scoring.begin(spans, self._keep_N)
        if len(self._keep_N):
            self.sink.open(num_rows)
            if embeds is not None:
                self.sink.record("embed", embeds)

    def _saw_output(self, output: Any) -> None:
        if self.sink.is_open:
            self._finish_taps()
            final = output[0] if isinstance(output, (tuple, list)) else output
            self.sink.record("final_norm", final)
            self._arrays = self.sink.close(self._keep_N)
            self.first_arrays = self.first_arrays or self._arrays

    def _saw_logits(self, logits: torch.Tensor | None) -> None:
        if self._schedule is not None:
            self.scoring.saw_logits(logits)

    def _saw_sampled(self, sampler_output: Any) -> None:
        if self._schedule is not None:
            self.scoring.saw_sampled(sampler_output)

    def _around_prompt_logprobs(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def _get_prompt_logprobs_dict(*args: Any, **kwargs: Any) -> Any:
            if self._schedule is not None:
                self._try(self.scoring.plan_prompts, self._schedule.num_scheduled_tokens)
            try:
                return original(*args, **kwargs)
            finally:
                self.scoring.end_prompts()

        return _get_prompt_logprobs_dict

    def _end_step(self, _result: Any) -> None:
        if self._schedule is None:
            return
        self._schedule = None
        cached, computed = self.ledger.end_step()
        if self._buffer is None:
            return
        self._note_order()
        self._buffer.add(cached, computed, self._arrays, self.scoring.logits())
        self._arrays = {}
        if self._buffer.is_full:
            self._write(self._buffer)

    def _write(self, buffer: RowBuffer) -> None:
        try:
            buffer.flush(self._ready())
        except KldiveError as error:
            # Only this rank writes. The hooks stay: other ranks wait for it in their sums.
            self._write_error = str(error)
            self._buffer = None
            _log.error("recording cannot be written: %s", error)

    def _note_order(self) -> None:
        for site, array in self._arrays.items():
            if site.endswith(".topk_weights") and self.topk_sorted:
                self.topk_sorted = not np.any(np.diff(array.astype(np.float32), axis=1) > 0)

    def _ready(self) -> Callable[[Line], bool] | None:
        if not self._runner.use_async_scheduling:
            return None
        newest = self.ledger.newest()
        return lambda line: newest.get(line.request) != line.position

    def stop(self, received: Mapping[str, int] | None) -> None:
        """Takes every hook away and writes what is left.

        Args:
            received: Number of generated tokens the client really got, by name.

        Raises:
            RecordingError: The recording failed earlier, or the client got more than was recorded.
        """
        self._patches.remove()
        failed = self.error or self._write_error
        if failed is not None:
            raise RecordingError(failed)
        ends = self.ledger.ends(received)
        undone = self.ledger.undo_run_ahead(ends)
        if self._buffer is not None:
            self._buffer.drop(
                lambda line: line.position >= undone.get(line.request, line.position + 1)
            )
            self._buffer.add(self.ledger.unfed_lines(ends), [], {})
            self._buffer.flush()


_SERVER_ID: Final = re.compile(r"(?:chatcmpl|cmpl)-(.+?)(?:-0)?")


def client_name(request_id: str, names: Mapping[str, str]) -> str:
    """Name of a request in the capture, from the engine's own request id.

    The engine adds a dash and eight characters to the id that the client chose; its server puts the
    kind of request before that id, and the number of the prompt behind it.

    >>> client_name("c00-0123abcd", {"c00": "first"})
    'first'
    >>> client_name("cmpl-c00-0-0123abcd", {})
    'c00'
    """
    head, dash, tail = request_id.rpartition("-")
    chosen = head if dash and len(tail) == 8 else request_id
    match = _SERVER_ID.fullmatch(chosen)
    chosen = match[1] if match else chosen
    return names.get(chosen, chosen)


def _inputs(args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
    """(input_ids, positions, inputs_embeds) of a call of the runner's forward."""
    names = ("input_ids", "positions", "intermediate_tensors", "inputs_embeds")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    return given.get("input_ids"), given.get("positions"), given.get("inputs_embeds")
