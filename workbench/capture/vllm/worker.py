"""The worker extension: recording calls that run where the model lives.

Give it to an engine as `worker_extension_cls="workbench.capture.vllm.worker.RecorderExtension"`, or
to a server as `--worker-extension-cls`, and call the methods through `collective_rpc`. Only text,
numbers and lists of them cross the process boundary: the first worker writes the capture directory
itself. Importing this module patches the engine's weight loader, which must happen before the model
loads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from workbench.capture.vllm import facts
from workbench.capture.vllm.buffer import RowBuffer
from workbench.capture.vllm.discover import ModelParts, find_parts
from workbench.capture.vllm.load_sums import LoadedSums, sums_of, watch_loading
from workbench.capture.vllm.recorder import Recorder
from workbench.capture.vllm.settings import RecordSettings, settings_from
from workbench.errors import KldiveError, RecordingError
from workbench.names import LAYER_SITES, MODEL_SITES, ROUTER_SITES, layer_site
from workbench.store import CaptureWriter, Manifest

watch_loading()


class RecorderExtension:
    """Methods added to the engine's worker. Each answers with a dict; `error` says what failed."""

    def kldive_start(self, settings: str | Mapping[str, Any]) -> dict[str, Any]:
        """Starts a recording; settings as a mapping or JSON text (`RecordSettings`)."""
        return _answer(lambda: _start(self, settings_from(settings)))

    def kldive_seed(self, seed: int) -> dict[str, Any]:
        """Sets the worker's random state, so that sampling repeats. Recording never does."""
        torch.manual_seed(int(seed))
        return {"seed": int(seed)}

    def kldive_status(self) -> dict[str, Any]:
        """Whether a recording runs, its rows so far, and its error if it failed."""
        session: _Session | None = getattr(self, "_kldive_session", None)
        if session is None:
            return {"recording": False}
        return session.status()

    def kldive_stop(self, received: str | Mapping[str, int] | None = None) -> dict[str, Any]:
        """Ends the recording; `received`: generated tokens that the client got, by name."""
        given = json.loads(received) if isinstance(received, str) else received
        return _answer(lambda: _stop(self, given))

    def kldive_abort(self, reason: str) -> dict[str, Any]:
        """Ends the recording because its run failed; what was written stays, marked incomplete."""
        session: _Session | None = getattr(self, "_kldive_session", None)
        if session is not None and session.recorder.error is None:
            session.recorder.fail(reason)
        self._kldive_session = None
        return {"recording": False}


class _Session:
    def __init__(self, worker: Any, settings: RecordSettings) -> None:
        runner = worker.model_runner
        self.config = worker.vllm_config
        facts.refuse_unrecordable(runner, self.config)
        text = self.config.model_config.hf_text_config
        self.settings = settings
        self.parts: ModelParts = find_parts(runner.model, text.num_hidden_layers)
        self.writer = None
        buffer = None
        if worker.rank == 0:
            self.writer = CaptureWriter(settings.out, _draft(worker, settings, self.parts))
            buffer = RowBuffer(
                self.writer, text=_detokenizer(self.config), chunk_bytes=settings.chunk_bytes
            )
        self.recorder = Recorder(runner, self.parts, settings, buffer, hidden_size=text.hidden_size)

    def status(self) -> dict[str, Any]:
        rows = self.writer.manifest.num_rows if self.writer else 0
        answer: dict[str, Any] = {
            "recording": self.recorder.error is None,
            "out": self.settings.out,
            "steps": self.recorder.ledger.step,
            "rows_written": rows,
        }
        if self.recorder.error is not None:
            answer["error"] = self.recorder.error
        return answer

    def stop(self, received: Mapping[str, int] | None) -> dict[str, Any]:
        recorder, writer = self.recorder, self.writer
        try:
            recorder.stop(received)
        except KldiveError:
            if writer is not None:
                writer.finish(complete=False, counts=self._counts())
            raise
        if writer is None:
            return {}
        manifest = writer.finish(
            complete=True,
            counts=self._counts(),
            missing=self._missing(),
            sites={
                name: replace(info, derived=name in recorder.sink.derived)
                for name, info in writer.manifest.sites.items()
            },
            contracts={**writer.manifest.contracts, **self._contracts()},
        )
        return {
            "out": str(writer.directory),
            "rows": manifest.num_rows,
            "steps": recorder.ledger.step,
            "requests": list(recorder.ledger.names().values()),
        }

    def _counts(self) -> dict[str, int]:
        ledger = self.recorder.ledger
        return {
            "steps": ledger.step,
            "requests": len(ledger.names()),
            "repeated_rows": ledger.num_repeated,
            "ignored_rows": ledger.num_ignored,
        }

    def _contracts(self) -> dict[str, Any]:
        recorder = self.recorder
        return facts.engine_contracts(
            self.parts,
            self.config.model_config.hf_text_config,
            first_arrays=recorder.first_arrays,
            logits_dtype=recorder.scoring.logits_dtype,
            topk_sorted=recorder.topk_sorted,
        )

    def _missing(self) -> dict[str, str]:
        have = self.writer.manifest.sites if self.writer else {}
        missing = {}
        for site in MODEL_SITES:
            if site not in have:
                missing[site] = self._why(site, {})
        for layer in self.parts.layers:
            for name in LAYER_SITES:
                site = layer_site(layer.index, name)
                if site not in have:
                    missing[site] = self._why(name, layer.missing, is_dense=layer.runner is None)
        return missing

    def _why(self, name: str, reasons: Mapping[str, str], *, is_dense: bool = False) -> str:
        if not self.settings.wants(name):
            return "not asked for"
        if name in reasons:
            return reasons[name]
        if is_dense and name in (*ROUTER_SITES, "routed_out", "shared_out"):
            return "a dense layer has no experts"
        if name == "shared_out":
            return "no shared expert"
        return "no row was computed" if self.recorder.ledger.step == 0 else "no hook saw it"


def _answer(call: Any) -> dict[str, Any]:
    """Errors go back as text: they would not survive the process boundary as exceptions."""
    try:
        result: dict[str, Any] = call()
    except KldiveError as error:
        return {"error": str(error)}
    return result


def _start(worker: Any, settings: RecordSettings) -> dict[str, Any]:
    if getattr(worker, "_kldive_session", None) is not None:
        raise RecordingError("a recording is running already", do="stop it first (kldive_stop)")
    session = _Session(worker, settings)
    worker._kldive_session = session
    return session.status()


def _stop(worker: Any, received: Mapping[str, int] | None) -> dict[str, Any]:
    session: _Session | None = getattr(worker, "_kldive_session", None)
    if session is None:
        raise RecordingError("no recording is running", do="start one first (kldive_start)")
    worker._kldive_session = None
    return session.stop(received)


def _draft(worker: Any, settings: RecordSettings, parts: ModelParts) -> Manifest:
    runner, config = worker.model_runner, worker.vllm_config
    sums = _current_sums(runner.model, config)
    contracts: dict[str, Any] = {}
    if sums is not None:
        contracts["router_row_norm"] = {str(k): v for k, v in sums.router_row_norm.items()}
        if sums.stale:
            contracts["weights_unknown"] = sorted(sums.stale)
    return Manifest(
        path="rollout",
        engine="vllm",
        versions=facts.engine_versions(),
        device=_device(worker.device),
        dtype=str(config.model_config.dtype).removeprefix("torch."),
        model=facts.engine_model_facts(config, parts),
        knobs={**facts.engine_knobs(runner, config, parts), **settings.knobs},
        contracts=contracts,
        weights=sums.canonical() if sums is not None else {},
        router_pair_norm=sums.router_pair_norm if sums is not None else {},
    )


def _current_sums(model: torch.nn.Module, config: Any) -> LoadedSums | None:
    """None under tensor parallelism: each rank holds only its part of the weights."""
    sums = sums_of(model)
    if sums is None or config.parallel_config.tensor_parallel_size > 1:
        return None
    sums.refresh(model)
    return sums


def _device(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _detokenizer(config: Any) -> Any:
    from vllm.tokenizers import cached_tokenizer_from_config

    if config.model_config.skip_tokenizer_init:
        return lambda _token_id: ""
    tokenizer = cached_tokenizer_from_config(config.model_config)
    known: dict[int, str] = {}

    def text(token_id: int) -> str:
        if token_id not in known:
            known[token_id] = tokenizer.decode([token_id])
        return known[token_id]

    return text
