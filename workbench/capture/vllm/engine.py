"""Recording a rollout with an engine of our own, or any `LLM` that has the worker extension.

The engine is the real one: continuous batching, chunked prefill, prefix cache, sampled decode. What
was recorded is checked against what the engine itself returned, token by token and log-probability
by log-probability, bit for bit, before the capture counts as complete.
"""

from __future__ import annotations

import gc
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from workbench.capture.requests import Request
from workbench.capture.vllm.buffer import DEFAULT_CHUNK_BYTES
from workbench.capture.vllm.check import check_against_outputs
from workbench.capture.vllm.settings import RecordSettings
from workbench.errors import RecordingError, UsageError

if TYPE_CHECKING:
    from vllm import LLM, SamplingParams
    from vllm.outputs import RequestOutput

EXTENSION: Final = "workbench.capture.vllm.worker.RecorderExtension"
"""`worker_extension_cls` of an engine that is to be recorded."""

FORCE_PROCESSOR: Final = "workbench.capture.vllm.force:ForceTokens"
"""`logits_processors` entry of an engine that is to be driven with given tokens."""

DEFAULT_ENVIRONMENT: Final[dict[str, str]] = {
    # One sampler helper goes through torch.compile even in eager mode: 17 s for nothing.
    "TORCH_COMPILE_DISABLE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    # The recorder follows this model runner; the other one cannot be hooked in eager.
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    # Start-up says which memory policy it took, as a warning.
    "TORCH_CPP_LOG_LEVEL": "ERROR",
}
"""Set for an engine of our own where the user has not."""


def _silent(_stage: str) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSettings:
    """How a rollout runs and what is recorded of it.

    Attributes:
        max_tokens: Generated tokens per request; forced requests run to the end of their list.
        temperature: 0 is greedy. Recorded log-probabilities are raw either way.
        top_p: Mass that is sampled from.
        ignore_eos: Go on past the end token, to `max_tokens`.
        seed: Of sampling. Each request gets one of its own (`seed` plus its place), so that its
            tokens do not depend on its neighbours; where the engine cannot do that (see
            `seeds_each_request`) the whole engine is seeded before each recorded batch.
        dtype: Element type of the model; `auto` takes the checkpoint's.
        max_model_len: Longest prompt plus answer.
        max_num_batched_tokens: Token budget of one engine step; small values chunk prompts.
        max_num_seqs: Requests in one engine step.
        num_kv_blocks: KV cache blocks; few of them provoke preemption.
        enable_prefix_caching: Whether prompts may be served from earlier ones.
        prompt_logprobs: Score the prompt rows too. Such requests do not read the prefix cache.
        logits: Record full logits where the engine computes them.
        sites: Short names of the sites to record; all when empty.
        leg: `decode` drives tokens through decoding; `prefill` scores given tokens at once.
        multiprocess: Run the engine in a process of its own, as the engine does by default.
        chunk_bytes: Bytes of arrays per chunk of the capture.
        engine_options: Further arguments of the engine.
    """

    max_tokens: int = 64
    temperature: float = 0.0
    top_p: float = 1.0
    ignore_eos: bool = False
    seed: int = 0
    dtype: str = "auto"
    max_model_len: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    num_kv_blocks: int | None = None
    enable_prefix_caching: bool = False
    prompt_logprobs: bool = False
    logits: bool = False
    sites: tuple[str, ...] = ()
    leg: Literal["decode", "prefill"] = "decode"
    multiprocess: bool = False
    chunk_bytes: int = DEFAULT_CHUNK_BYTES
    engine_options: Mapping[str, Any] = field(default_factory=dict)


def capture_rollout(
    model: str | os.PathLike[str],
    requests: Sequence[Request],
    out: str | os.PathLike[str],
    *,
    settings: RolloutSettings | None = None,
    progress: Callable[[str], None] = _silent,
) -> Path:
    """Runs requests through a fresh engine and records what happens inside.

    Args:
        model: Directory or name of the checkpoint.
        requests: What to run; those with `forced_token_ids` are driven, not sampled.
        out: Capture directory, new or empty.
        settings: How to run and what to record.
        progress: Told each stage as it begins.

    Returns:
        The capture's directory.

    Raises:
        UsageError: Requests and settings do not go together.
        RecordingError: The engine cannot be recorded, or what was recorded is not what it returned.
    """
    settings = settings or RolloutSettings()
    llm = open_engine(model, settings, progress=progress)
    try:
        return record_requests(llm, requests, out, settings=settings, progress=progress)
    finally:
        close_engine(llm)


def open_engine(
    model: str | os.PathLike[str],
    settings: RolloutSettings,
    *,
    progress: Callable[[str], None] = _silent,
) -> LLM:
    """An engine with the recorder's worker extension and the processor that forces tokens.

    Environment variables that the user has set are left alone.
    """
    for name, value in DEFAULT_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1" if settings.multiprocess else "0"
    progress("importing vLLM")
    llm_class = _import_engine()
    progress("loading the model")
    given = {
        "max_model_len": settings.max_model_len,
        "max_num_batched_tokens": settings.max_num_batched_tokens,
        "max_num_seqs": settings.max_num_seqs,
        "num_gpu_blocks_override": settings.num_kv_blocks,
    }
    options: dict[str, Any] = {
        "model": os.fspath(model),
        "dtype": settings.dtype,
        "seed": settings.seed,
        "enforce_eager": True,
        "enable_prefix_caching": settings.enable_prefix_caching,
        "logprobs_mode": "raw_logprobs",
        "worker_extension_cls": EXTENSION,
        "logits_processors": [FORCE_PROCESSOR],
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
        **{name: value for name, value in given.items() if value is not None},
        **settings.engine_options,
    }
    with _cheap_collections():
        return llm_class(**options)


def close_engine(llm: LLM) -> None:
    """Shuts an engine down and frees its memory."""
    with _cheap_collections():
        llm.llm_engine.engine_core.shutdown()


@contextmanager
def _cheap_collections() -> Iterator[None]:
    """The engine collects garbage by hand when it loads and ends: 3 s over its own imports."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _import_engine() -> type[LLM]:
    collects = gc.isenabled()
    # Importing allocates so much that collection alone costs one to two seconds.
    gc.disable()
    # Before it sets its own logging up the engine speaks through Python's last resort.
    logging.getLogger("vllm").addHandler(logging.NullHandler())
    # Raised by torch whenever the engine looks through a module's attributes.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"vllm\.")
    try:
        from vllm import LLM
    finally:
        if collects:
            gc.enable()
    engine: type[LLM] = LLM
    return engine


def record_requests(
    llm: LLM,
    requests: Sequence[Request],
    out: str | os.PathLike[str],
    *,
    settings: RolloutSettings | None = None,
    progress: Callable[[str], None] = _silent,
) -> Path:
    """Records one batch of requests on a live engine that has the worker extension.

    Settings of the engine itself (dtype, budgets, cache) are not applied here, only those of the
    run. Arguments and errors as for `capture_rollout`.
    """
    settings = settings or RolloutSettings()
    prompts = _prompt_ids(llm, requests, settings)
    seeded = seeds_each_request(llm, list(prompts.values()), settings)
    record = RecordSettings(
        out=str(Path(out).absolute()),
        sites=settings.sites,
        logits=settings.logits,
        prompt_lengths=_prompt_lengths(prompts, settings),
        knobs={**_run_knobs(requests, settings), "seeds_each_request": seeded},
        chunk_bytes=settings.chunk_bytes,
    )
    _rpc(llm, "kldive_seed", settings.seed)
    _rpc(llm, "kldive_start", record.to_json())
    try:
        progress(f"running {len(requests)} requests")
        outputs = run_requests(llm, requests, prompts, settings, seeded=seeded)
        progress("writing the capture")
    except BaseException as error:
        # The recording must not outlive its run; the first error is the one to show.
        llm.collective_rpc("kldive_abort", args=(f"the run ended: {type(error).__name__}",))
        raise
    _rpc(llm, "kldive_stop", _received(requests, outputs, settings))
    check_against_outputs(Path(out), outputs, prefill=settings.leg == "prefill")
    return Path(out)


def _prompt_ids(
    llm: LLM, requests: Sequence[Request], settings: RolloutSettings
) -> dict[str, list[int]]:
    vocab_size = llm.llm_engine.model_config.get_vocab_size()
    prompts: dict[str, list[int]] = {}
    for request in requests:
        if settings.leg == "prefill" and not request.forced_token_ids:
            raise UsageError(
                "the prefill leg scores given tokens",
                where=f"request {request.name}",
                expected="forced_token_ids",
                got="none",
            )
        if request.name in prompts:
            raise UsageError(f"request {request.name!r} is named twice")
        ids = request.prompt_token_ids
        if ids is None:
            ids = tuple(llm.get_tokenizer().encode(request.prompt or ""))
        bad = [t for t in (*ids, *request.forced_token_ids) if not 0 <= t < vocab_size]
        if not ids or bad:
            raise UsageError(
                "a request cannot be run",
                where=f"request {request.name}",
                expected=f"a prompt of token ids from 0 to {vocab_size - 1}",
                got=f"token {bad[0]}" if bad else "an empty prompt",
            )
        prompts[request.name] = list(ids)
    return prompts


def _prompt_lengths(prompts: Mapping[str, list[int]], settings: RolloutSettings) -> dict[str, int]:
    if settings.leg != "prefill":
        return {}
    return {name: len(ids) for name, ids in prompts.items()}


def _run_knobs(requests: Sequence[Request], settings: RolloutSettings) -> dict[str, Any]:
    return {
        "leg": settings.leg,
        "forced": any(request.forced_token_ids for request in requests),
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "max_tokens": settings.max_tokens,
        "prompt_logprobs": settings.prompt_logprobs or settings.leg == "prefill",
        "multiprocess": settings.multiprocess,
    }


def seeds_each_request(
    llm: LLM, prompts: Sequence[Sequence[int]], settings: RolloutSettings
) -> bool:
    """Whether requests can carry seeds of their own.

    On CPU the engine fails when it computes the prompt of such a request in parts, so there all
    prompts must fit into one step, and all requests into the KV cache to the end.
    """
    if settings.temperature == 0 or settings.leg == "prefill":
        return False
    config = llm.llm_engine.vllm_config
    if config.device_config.device_type != "cpu":
        return True
    cache, longest = config.cache_config, settings.max_tokens
    blocks = sum((len(ids) + longest) // cache.block_size + 1 for ids in prompts)
    in_one_step = sum(len(ids) for ids in prompts) <= config.scheduler_config.max_num_batched_tokens
    return bool(in_one_step and blocks < (cache.num_gpu_blocks or 0))


def run_requests(
    llm: LLM,
    requests: Sequence[Request],
    prompts: Mapping[str, Sequence[int]],
    settings: RolloutSettings,
    *,
    seeded: bool,
) -> dict[str, RequestOutput]:
    """Runs all requests at once, recording or not; the engine's final outputs by name."""
    for i, request in enumerate(requests):
        prompt = list(prompts[request.name])
        if settings.leg == "prefill":
            prompt += request.forced_token_ids
        sampling = _sampling(request, settings)
        if seeded:
            sampling.seed = settings.seed + i
        llm.llm_engine.add_request(request.name, {"prompt_token_ids": prompt}, sampling)
    outputs: dict[str, RequestOutput] = {}
    while llm.llm_engine.has_unfinished_requests():
        for output in llm.llm_engine.step():
            if output.finished:
                outputs[output.request_id] = output
    return outputs


def _sampling(request: Request, settings: RolloutSettings) -> SamplingParams:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    from workbench.capture.vllm.force import FORCE_KEY

    common: dict[str, Any] = {
        "logprobs": 0,
        "prompt_logprobs": 0 if settings.prompt_logprobs or settings.leg == "prefill" else None,
        "detokenize": False,
        "output_kind": RequestOutputKind.FINAL_ONLY,
    }
    if settings.leg == "prefill":
        return SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True, **common)
    if request.forced_token_ids:
        return SamplingParams(
            max_tokens=len(request.forced_token_ids),
            temperature=0.0,
            ignore_eos=True,
            extra_args={FORCE_KEY: list(request.forced_token_ids)},
            **common,
        )
    return SamplingParams(
        max_tokens=settings.max_tokens,
        temperature=settings.temperature,
        top_p=settings.top_p,
        ignore_eos=settings.ignore_eos,
        **common,
    )


def _received(
    requests: Sequence[Request], outputs: Mapping[str, RequestOutput], settings: RolloutSettings
) -> dict[str, int]:
    if settings.leg == "prefill":
        return {request.name: len(request.forced_token_ids) for request in requests}
    return {name: len(output.outputs[0].token_ids) for name, output in outputs.items()}


def _rpc(llm: LLM, method: str, argument: Any) -> dict[str, Any]:
    answers: list[dict[str, Any]] = llm.collective_rpc(method, args=(argument,))
    for answer in answers:
        if answer.get("error"):
            raise RecordingError(str(answer["error"]))
    return answers[0]
