"""What the recorder refuses, leaves out and survives, on the real engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pytest

from tests.capture.vllm.conftest import of_request, random_requests, rows_of
from tests.capture.vllm.test_engine import run_plain
from workbench.capture.vllm import engine as engine_module
from workbench.capture.vllm.engine import RolloutSettings, record_requests
from workbench.capture.vllm.patches import Patches
from workbench.capture.vllm.settings import RecordSettings
from workbench.errors import CaptureError, RecordingError
from workbench.store import open_capture

pytestmark = pytest.mark.slow

FEW = RolloutSettings(max_tokens=6, ignore_eos=True)


@contextmanager
def wrapped(owner: Any, name: str, make: Any) -> Iterator[None]:
    patches = Patches()
    patches.wrap(owner, name, make)
    try:
        yield
    finally:
        patches.remove()


@contextmanager
def recording(llm: Any, out: Path) -> Iterator[None]:
    engine_module._rpc(llm, "kldive_start", RecordSettings(out=str(out)).to_json())
    try:
        yield
    finally:
        llm.collective_rpc("kldive_stop")


def swap_ids_of_step(number: int) -> Any:
    """Makes the engine feed two tokens the wrong way round in one step."""
    steps = iter(range(1000))

    def make(original: Any) -> Any:
        def _preprocess(*args: Any, **kwargs: Any) -> Any:
            input_ids, *rest = original(*args, **kwargs)
            if next(steps) == number:
                input_ids[:2] = input_ids[:2].flip(0)
            return input_ids, *rest

        return _preprocess

    return make


def test_a_misaligned_row_is_refused_and_the_engine_lives_on(
    llm: Any, runner: Any, tmp_path: Path
) -> None:
    requests = random_requests(3, seed=11)
    with (
        wrapped(runner, "_preprocess", swap_ids_of_step(4)),
        pytest.raises(RecordingError, match="not the request's; this step is not recorded"),
    ):
        record_requests(llm, requests, tmp_path / "bad", settings=FEW)
    capture = open_capture(tmp_path / "bad")
    assert not capture.complete
    assert capture.tokens["step"].is_empty() or capture.tokens["step"].max() < 4  # type: ignore[operator]
    llm.reset_prefix_cache()
    good = record_requests(llm, requests, tmp_path / "good", settings=FEW)
    assert open_capture(good).complete


def test_finished_chunks_of_a_failed_recording_stay_readable(
    llm: Any, runner: Any, tmp_path: Path
) -> None:
    settings = RolloutSettings(max_tokens=6, ignore_eos=True, chunk_bytes=1)
    with (
        wrapped(runner, "_preprocess", swap_ids_of_step(4)),
        pytest.raises(RecordingError),
    ):
        record_requests(llm, random_requests(3, seed=11), tmp_path / "bad", settings=settings)
    capture = open_capture(tmp_path / "bad", verify=True)
    assert [int(c.tokens["step"][0]) for c in capture.chunks] == [0, 1, 2, 3]
    assert capture.damaged == []


def test_warm_up_and_dummy_runs_are_not_recorded(llm: Any, runner: Any, tmp_path: Path) -> None:
    def make(original: Any) -> Any:
        def execute_model(*args: Any, **kwargs: Any) -> Any:
            runner._dummy_run(7)
            return original(*args, **kwargs)

        return execute_model

    requests = random_requests(2, seed=12)
    with wrapped(runner, "execute_model", make):
        out = record_requests(llm, requests, tmp_path / "out", settings=FEW)
    expected = sum(len(r.prompt_token_ids or ()) + FEW.max_tokens for r in requests)
    assert open_capture(out).num_rows == expected


def test_requests_that_were_running_before_are_left_out(llm: Any, tmp_path: Path) -> None:
    early, late = random_requests(2, seed=13)
    sampling = engine_module._sampling(early, FEW)
    llm.llm_engine.add_request(
        "early", {"prompt_token_ids": list(early.prompt_token_ids or ())}, sampling
    )
    llm.llm_engine.step()
    with recording(llm, tmp_path / "out"):
        run_plain(llm, [late], FEW)
    capture = open_capture(tmp_path / "out")
    assert capture.complete
    assert capture.tokens["request"].unique().to_list() == [late.name]
    assert capture.manifest.counts["ignored_rows"] > 0
    fresh = record_requests(llm, [late], tmp_path / "fresh", settings=FEW)
    logprobs = of_request(tmp_path / "out", late.name)["logprob"]
    assert logprobs.to_list() == of_request(fresh, late.name)["logprob"].to_list()


def test_logical_expert_ids_are_recorded_before_load_balancing_maps_them(
    llm: Any, runner: Any, tmp_path: Path
) -> None:
    router = runner.model.model.layers[1].mlp.experts.router
    with wrapped(router, "_apply_eplb_mapping", lambda _original: lambda ids: 7 - ids):
        out = record_requests(llm, random_requests(1, seed=14), tmp_path / "out", settings=FEW)
    for row in rows_of(out).values():
        if row.arrays:
            scores = row.arrays["layers.1.router_logits"]
            best = set(np.argsort(scores)[-2:].tolist())
            assert set(row.arrays["layers.1.topk_ids"].tolist()) == best


def test_compiled_engines_are_refused(llm: Any, runner: Any, tmp_path: Path) -> None:
    from vllm.config import CompilationMode

    config = runner.vllm_config.compilation_config
    before, config.mode = config.mode, CompilationMode.VLLM_COMPILE
    try:
        with pytest.raises(RecordingError, match="enforce_eager"):
            record_requests(llm, random_requests(1, seed=1), tmp_path / "out")
    finally:
        config.mode = before
    assert not (tmp_path / "out").exists()


def test_hooks_that_stay_silent_are_an_error_and_not_an_empty_capture(
    llm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a captured graph does: the model runs, and no Python of ours is called."""
    monkeypatch.setattr("workbench.capture.vllm.taps.tap_runner", lambda *_args, **_kwargs: None)
    monkeypatch.setattr("workbench.capture.vllm.taps._guarded", lambda _sink, _call: _nothing)
    with pytest.raises(RecordingError, match="no hook fired"):
        record_requests(llm, random_requests(1, seed=1), tmp_path / "out", settings=FEW)
    assert not open_capture(tmp_path / "out").complete


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    return None


def test_speculative_steps_are_refused(llm: Any, runner: Any, tmp_path: Path) -> None:
    def make(original: Any) -> Any:
        def execute_model(scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
            drafts, scheduler_output.scheduled_spec_decode_tokens = (
                scheduler_output.scheduled_spec_decode_tokens,
                {"x": [1]},
            )
            try:
                return original(scheduler_output, *args, **kwargs)
            finally:
                scheduler_output.scheduled_spec_decode_tokens = drafts

        return execute_model

    def outside(original: Any) -> Any:
        return make(original)

    engine_module._rpc(llm, "kldive_start", RecordSettings(out=str(tmp_path / "out")).to_json())
    with wrapped(runner, "execute_model", outside):
        run_plain_tolerant(llm)
    (answer,) = llm.collective_rpc("kldive_stop")
    assert "speculative decoding cannot be recorded" in answer["error"]


def run_plain_tolerant(llm: Any) -> None:
    """One request; what the engine itself makes of made-up drafts does not matter."""
    try:
        run_plain(llm, random_requests(1, seed=15), FEW)
    except (RuntimeError, KeyError, AssertionError):
        llm.llm_engine.abort_request(["c00"])


def test_a_recording_that_runs_is_not_replaced(llm: Any, tmp_path: Path) -> None:
    with recording(llm, tmp_path / "first"):
        answers = llm.collective_rpc(
            "kldive_start", args=(RecordSettings(out=str(tmp_path / "second")).to_json(),)
        )
        assert "running already" in answers[0]["error"]
        (status,) = llm.collective_rpc("kldive_status")
        assert status["recording"] is True
        assert status["out"] == str(tmp_path / "first")


def test_stopping_without_a_recording_says_so(llm: Any) -> None:
    (answer,) = llm.collective_rpc("kldive_stop")
    assert "no recording is running" in answer["error"]


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"outt": "x"}, "did you mean out"),
        ({}, "lack a directory"),
        ({"out": "x", "sites": ["router_logit"]}, "router_logits"),
        ([1], "not an object"),
    ],
)
def test_settings_that_are_wrong_name_the_nearest(llm: Any, given: Any, match: str) -> None:
    (answer,) = llm.collective_rpc("kldive_start", args=(json.dumps(given),))
    assert match in answer["error"]


def test_after_stopping_the_runner_is_as_it_was(llm: Any, runner: Any, tmp_path: Path) -> None:
    def state() -> tuple[Any, ...]:
        hooks = sum(
            len(m._forward_hooks) + len(m._forward_pre_hooks) for m in runner.model.modules()
        )
        layer = runner.model.model.layers[0].mlp.experts
        return (
            hooks,
            sorted(vars(runner)),
            sorted(vars(runner.model)),
            sorted(vars(layer)),
            layer.router.capture_fn,
        )

    before = state()
    with recording(llm, tmp_path / "out"):
        assert state() != before
    assert state() == before


def test_the_manifest_names_what_really_ran(llm: Any, tmp_path: Path) -> None:
    out = record_requests(llm, random_requests(1, seed=1), tmp_path / "out", settings=FEW)
    manifest = open_capture(out).manifest
    assert manifest.path == "rollout"
    assert manifest.engine == "vllm"
    assert manifest.dtype == "float32"
    assert manifest.knobs["attention_backend"] == ["CPUAttentionBackend"]
    assert manifest.knobs["moe_backend"] == ["CPUUnquantizedExperts"]
    assert manifest.knobs["max_num_batched_tokens"] == 40
    assert manifest.knobs["leg"] == "decode"
    assert manifest.model.layer_kinds == ("moe",) * 4
    assert (manifest.model.num_experts, manifest.model.top_k) == (8, 2)
    assert manifest.contracts["renormalise"] is True
    assert manifest.contracts["scoring"] == "softmax"
    assert manifest.contracts["gate_weight_dtype"] == "float32"
    assert sorted(manifest.router_pair_norm) == [0, 1, 2, 3]
    assert "raw logits" in manifest.convention


def test_rows_of_a_batch_know_its_size(llm: Any, tmp_path: Path) -> None:
    requests = random_requests(3, seed=16, low=3, high=5)
    out = record_requests(llm, requests, tmp_path / "out", settings=FEW)
    first = open_capture(out).tokens.filter(pl.col("step") == 0)
    assert first["batch_size"].unique().to_list() == [3]


def test_a_run_that_fails_leaves_an_incomplete_capture_and_a_free_engine(
    llm: Any, runner: Any, tmp_path: Path
) -> None:
    def make(_original: Any) -> Any:
        def fail(*_args: Any) -> Any:
            raise KeyboardInterrupt

        return fail

    with (
        wrapped(llm.llm_engine, "has_unfinished_requests", make),
        pytest.raises(KeyboardInterrupt),
    ):
        record_requests(llm, random_requests(1, seed=1), tmp_path / "out", settings=FEW)
    assert not open_capture(tmp_path / "out").complete
    assert llm.collective_rpc("kldive_status") == [{"recording": False}]
    while llm.llm_engine.has_unfinished_requests():
        llm.llm_engine.step()


def test_a_fault_inside_a_hook_ends_the_recording_and_not_the_engine(
    llm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: Any) -> None:
        raise ZeroDivisionError("made up")

    requests = random_requests(2, seed=17)
    with monkeypatch.context() as patch:
        patch.setattr("workbench.capture.vllm.taps._hidden", fail)
        with pytest.raises(RecordingError, match="ZeroDivisionError: made up"):
            record_requests(llm, requests, tmp_path / "bad", settings=FEW)
    assert not open_capture(tmp_path / "bad").complete
    assert open_capture(record_requests(llm, requests, tmp_path / "good", settings=FEW)).complete


def test_a_full_disk_ends_the_recording_and_not_the_engine(
    llm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: Any, **_kwargs: Any) -> None:
        raise CaptureError("cannot write a capture", got="No space left on device")

    monkeypatch.setattr("workbench.store.CaptureWriter.append", fail)
    settings = RolloutSettings(max_tokens=6, chunk_bytes=1)
    with pytest.raises(RecordingError, match="No space left"):
        record_requests(llm, random_requests(1, seed=17), tmp_path / "out", settings=settings)
    assert not open_capture(tmp_path / "out").complete


def test_a_prompt_that_is_streamed_in_parts_is_refused(
    llm: Any, runner: Any, tmp_path: Path
) -> None:
    engine_module._rpc(llm, "kldive_start", RecordSettings(out=str(tmp_path / "out")).to_json())
    recorder = runner.__dict__["execute_model"]

    class Schedule:
        scheduled_spec_decode_tokens: ClassVar[dict[str, Any]] = {}
        scheduled_new_reqs: ClassVar[list[Any]] = [SimpleNamespace(req_id="live")]
        finished_req_ids: ClassVar[set[str]] = set()

    runner.requests["live"] = None
    try:
        with pytest.raises(AttributeError):
            recorder(Schedule())
    finally:
        del runner.requests["live"]
        (answer,) = llm.collective_rpc("kldive_stop")
    assert "streamed" in answer["error"]
