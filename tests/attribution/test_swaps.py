"""Swaps: what A's values and A's arithmetic do to B, and that all of A's arithmetic is A."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import workbench
from tests.attribution.matrix import Subject, capture, subject
from tests.capture.models import make_model, random_ids
from workbench.attribution.bench import Bench, Swap
from workbench.attribution.swappable import name_of
from workbench.attribution.swaps import run_swaps, swap_map
from workbench.capture.structure import find_parts
from workbench.comparison.result import Comparison
from workbench.comparison.run import compare
from workbench.errors import UsageError
from workbench.faults import Fault, inject

FAMILIES = ("qwen3_moe dense middle", "mixtral", "qwen2_moe", "glm4_moe")


def bench_of(
    tried: Subject, scratch: Path, *faults: Fault, logits: bool = True
) -> tuple[Bench, Comparison]:
    """The subject with faults as A against itself as B."""
    b = capture(tried, scratch / "b")
    contexts = [inject(tried.model, fault) for fault in faults]
    for context in contexts:
        context.__enter__()
    try:
        a = capture(tried, scratch / "a", path="rollout")
    finally:
        for context in reversed(contexts):
            context.__exit__(None, None, None)
    if not logits:
        _drop_logits(a)
    comparison = compare(a, b, out=scratch / "comparison")
    return Bench(comparison, find_parts(tried.model)), comparison


def _drop_logits(directory: Path) -> None:
    """The capture as if it had been recorded without logits."""
    import json

    path = directory / "manifest.json"
    body = json.loads(path.read_text())
    del body["sites"]["logits"]
    chunks = workbench.open_capture(directory)
    from workbench.store.arrays import encode_arrays

    for place, entry in enumerate(body["chunks"]):
        chunk = chunks.chunks[place]
        arrays = {site: chunk.array(site) for site in chunks.sites if site != "logits"}
        text = encode_arrays(arrays)
        (directory / entry["arrays"]).write_bytes(text)
        entry["arrays_bytes"] = len(text)
    path.write_text(json.dumps(body))


@pytest.fixture(autouse=True)
def _without_gradients() -> Any:
    with torch.no_grad():
        yield


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_all_of_a_is_a_to_the_bit(family: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """Faults everywhere, flips included: with every module swapped not one probability differs."""
    tried = subject(family, dtype)
    faults = [
        Fault(kind="batch-floor"),
        Fault(kind="attention", layer=0, size=0.1),
        Fault(kind="router_logits", layer=2, size=0.3),
        Fault(kind="top_k", layer=2, size=0.2),
        Fault(kind="lm_head", size=0.05),
    ]
    bench, _ = bench_of(tried, tmp_path, *faults)
    before, after = bench.run(
        [Swap(name="nothing"), Swap(name="all", modules=frozenset(bench.modules))]
    )
    assert before.kl > 1e-4
    assert after.kl == 0.0
    assert after.groups["all"].max_abs_dlogp == 0.0


@pytest.mark.slow
def test_the_map_charges_the_one_fault_and_nothing_else(tmp_path: Path) -> None:
    tried = subject("qwen2_moe")
    bench, _ = bench_of(tried, tmp_path, Fault(kind="shared_expert", layer=1, size=0.1))
    found = swap_map(bench)
    cells = {name_of((c["layer"], c["module"])): c for c in found["cells"]}
    guilty = cells.pop("L1 shared_expert")
    assert guilty["kl_removed"] == found["kl_before"] > 0
    assert guilty["kl_without"] == found["kl_before"]
    assert {c["kl_removed"] for c in cells.values()} == {0.0}
    assert {c["kl_without"] for c in cells.values()} == {0.0}
    assert found["kl_everything"] == 0.0
    # Modules that do the same on A's inputs are not run: nothing, everything, and two for the one.
    assert bench.num_passes == 4


@pytest.mark.slow
def test_named_swaps_remove_what_lies_in_them(tmp_path: Path) -> None:
    tried = subject("qwen3_moe")
    bench, comparison = bench_of(tried, tmp_path, Fault(kind="attention", layer=1, size=0.3))
    swaps = {swap["name"]: swap for swap in run_swaps(bench)}
    before = comparison.summary["kl"]["exact_mean"]
    assert swaps["routing ids"]["kl_before"] == pytest.approx(before, rel=1e-6)
    for name in ("layer 1", "up to layer 1", "up to layer 2", "LM head input", "everything"):
        assert swaps[name]["kl_after"] == 0.0, name
    for name in ("layer 0", "layer 2", "up to layer 0"):
        assert swaps[name]["kl_after"] == swaps[name]["kl_before"], name
    for name in ("routing ids", "routing", "attention outputs", "MoE outputs"):
        assert swaps[name]["kl_after"] != swaps[name]["kl_before"], name
    phases = swaps["layer 1"]["before"]["by_phase"]
    assert phases["prompt"]["rows_exact"] == swaps["layer 1"]["before"]["rows_exact"]
    assert swaps["layer 1"]["before"]["by_modality"]["text"]["kl"] == pytest.approx(before)


@pytest.mark.slow
def test_without_logits_the_head_is_swapped_by_log_probabilities(tmp_path: Path) -> None:
    tried = subject("mixtral")
    bench, _ = bench_of(tried, tmp_path, Fault(kind="lm_head", size=0.1), logits=False)
    before, after, rest = bench.run(
        [
            Swap(name="nothing"),
            Swap(name="head", modules=frozenset({(None, "lm_head")})),
            Swap(name="rest", modules=frozenset(bench.modules) - {(None, "lm_head")}),
        ]
    )
    assert before.estimator == "k3"
    assert before.kl > 1e-6
    assert after.groups["all"].max_abs_dlogp < 2.0**-20
    assert rest.kl == before.kl


def test_sums_do_not_depend_on_the_batches(tmp_path: Path) -> None:
    tried = subject("mixtral")
    bench, comparison = bench_of(tried, tmp_path, Fault(kind="gate_weights", layer=1, size=0.2))
    small = Bench(comparison, bench.parts, max_tokens=1)
    whole, parts = (b.run([Swap(name="nothing")])[0] for b in (bench, small))
    # In float32 another batch moves a logit by a few roundings.
    assert parts.kl == pytest.approx(whole.kl, rel=1e-3)
    assert parts.groups["all"].num_exact == whole.groups["all"].num_exact == 36


def test_a_broken_b_is_never_under_a_threshold(tmp_path: Path) -> None:
    tried = subject("mixtral")
    bench, _ = bench_of(tried, tmp_path)
    breaks = tried.model.lm_head.register_forward_hook(lambda _m, _a, out: out * math.nan)
    try:
        outcome = bench.run([Swap(name="nothing")])[0]
    finally:
        breaks.remove()
    assert outcome.kl == math.inf
    assert outcome.groups["all"].num_nonfinite == 36


def test_sequences_with_rows_from_a_cache_are_left_out_with_the_reason(tmp_path: Path) -> None:
    model = make_model("mixtral")
    from workbench.store import CaptureWriter

    tried = Subject(name="mixtral", model=model, ids=random_ids(8, 8))
    a, b = capture(tried, tmp_path / "whole", path="rollout"), capture(tried, tmp_path / "b")
    source = workbench.open_capture(a)
    chunk = source.chunks[0]
    keep = np.arange(chunk.num_array_rows) >= 3
    writer = CaptureWriter(
        tmp_path / "a",
        source.manifest.__class__(
            path="rollout",
            model=source.manifest.model,
            dtype=source.manifest.dtype,
            contracts=source.manifest.contracts,
            weights=source.manifest.weights,
        ),
    )
    columns = {n: chunk.tokens[n].to_list() for n in chunk.tokens.columns if n != "offset"}
    columns["state"] = ["cached" if row < 3 else s for row, s in enumerate(columns["state"])]
    writer.append(columns, {site: chunk.array(site)[keep] for site in source.sites})
    writer.finish(complete=True)
    bench = Bench(compare(tmp_path / "a", b, out=tmp_path / "c"), find_parts(model))
    assert bench.num_sequences == 1
    assert list(bench.left_out) == ["r0"]
    assert "prefix cache" in bench.left_out["r0"]


def test_nothing_to_experiment_on_is_an_error(tmp_path: Path) -> None:
    tried = subject("mixtral")
    bench, comparison = bench_of(tried, tmp_path)
    comparison.rows[0, "modality"] = "image"
    for request in ("r1", "r2"):
        place = int((comparison.rows["request"] == request).arg_max() or 0)
        comparison.rows[place, "modality"] = "image"
    with pytest.raises(UsageError, match="no sequence to experiment on"):
        Bench(comparison, bench.parts)
