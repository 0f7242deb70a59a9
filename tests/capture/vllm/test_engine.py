"""A real engine, recorded: alignment, order of computation, legs, and no observer effect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from tests.capture.vllm.conftest import (
    BLOCK_SIZE,
    TOKEN_BUDGET,
    VOCAB_SIZE,
    assert_same_bits,
    of_request,
    random_requests,
    rows_of,
)
from workbench.capture.requests import Request, read_forced
from workbench.capture.vllm import engine as engine_module
from workbench.capture.vllm.engine import RolloutSettings, record_requests
from workbench.capture.vllm.settings import RecordSettings
from workbench.errors import RecordingError, UsageError
from workbench.names import LAYER_SITES, layer_site
from workbench.store import open_capture

pytestmark = pytest.mark.slow

MIXED = RolloutSettings(max_tokens=14, temperature=1.0, seed=7, logits=True, ignore_eos=True)


def run_plain(llm: Any, requests: list[Request], settings: RolloutSettings) -> dict[str, Any]:
    """The same requests without any recording."""
    engine_module._rpc(llm, "kldive_seed", settings.seed)
    prompts = {r.name: list(r.prompt_token_ids or ()) for r in requests}
    seeded = engine_module.seeds_each_request(llm, list(prompts.values()), settings)
    return engine_module.run_requests(llm, requests, prompts, settings, seeded=seeded)


@pytest.fixture(scope="module")
def mixed(engine: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """32 requests of mixed length at once: chunked, preempted, sampled."""
    engine.reset_prefix_cache()
    out = tmp_path_factory.mktemp("mixed") / "capture"
    return record_requests(engine, random_requests(32, seed=1), out, settings=MIXED)


def test_recording_changes_no_token_and_no_bit_of_a_logprob(llm: Any, mixed: Path) -> None:
    outputs = run_plain(llm, random_requests(32, seed=1), MIXED)
    for name, output in outputs.items():
        rows = of_request(mixed, name).filter(pl.col("phase") == "generated")
        answer = output.outputs[0]
        assert rows["token_id"].to_list() == list(answer.token_ids)
        plain = [
            entry[t].logprob for t, entry in zip(answer.token_ids, answer.logprobs, strict=True)
        ]
        assert rows["logprob"].to_list() == plain


def test_every_row_is_there_once_and_holds_its_requests_token(mixed: Path) -> None:
    capture = open_capture(mixed, verify=True)
    assert capture.complete
    for request in random_requests(32, seed=1):
        rows = of_request(mixed, request.name)
        assert rows["position"].to_list() == list(range(rows.height))
        prompt = rows.filter(pl.col("phase") == "prompt")
        assert tuple(prompt["token_id"]) == request.prompt_token_ids
        assert rows["state"].to_list() == ["computed"] * (rows.height - 1) + ["sampled"]


def test_preempted_requests_were_computed_again_and_kept_their_first_rows(mixed: Path) -> None:
    assert open_capture(mixed).manifest.counts["repeated_rows"] > 0


def test_long_prompts_were_spread_over_several_steps(mixed: Path) -> None:
    tokens = open_capture(mixed).tokens
    computed = tokens.filter(pl.col("state") == "computed")
    assert computed.group_by("step").len()["len"].max() <= TOKEN_BUDGET  # type: ignore[operator]
    steps = (
        computed.filter(pl.col("phase") == "prompt")
        .group_by("request")
        .agg(pl.col("step").n_unique())
    )
    assert (steps["step"] > 1).any()


def test_a_batch_equals_the_same_requests_run_one_at_a_time(
    llm: Any, mixed: Path, tmp_path: Path
) -> None:
    record = RecordSettings(out=str(tmp_path / "alone"), logits=True)
    engine_module._rpc(llm, "kldive_start", record.to_json())
    try:
        for request in read_forced(mixed):
            run_plain(llm, [request], MIXED)
    finally:
        engine_module._rpc(llm, "kldive_stop", None)
    assert_same_bits(rows_of(mixed), rows_of(tmp_path / "alone"))


def test_sampled_tokens_do_not_depend_on_neighbours_where_requests_carry_seeds(
    llm: Any, tmp_path: Path
) -> None:
    requests = random_requests(5, seed=8, low=3, high=6)
    settings = RolloutSettings(max_tokens=12, temperature=1.0, ignore_eos=True)
    both = record_requests(llm, requests, tmp_path / "both", settings=settings)
    assert open_capture(both).manifest.knobs["seeds_each_request"] is True
    fewer = record_requests(llm, requests[:2], tmp_path / "fewer", settings=settings)
    all_rows, rows = rows_of(both), rows_of(fewer)
    assert_same_bits({key: all_rows[key] for key in rows}, rows)


def test_requests_carry_no_seeds_where_the_engine_would_fail(mixed: Path) -> None:
    assert open_capture(mixed).manifest.knobs["seeds_each_request"] is False


def test_all_sites_of_every_layer_are_recorded(mixed: Path) -> None:
    capture = open_capture(mixed)
    expected = {layer_site(i, name) for i in range(4) for name in LAYER_SITES}
    expected |= {"embed", "final_norm", "logits"}
    expected -= {layer_site(i, "shared_out") for i in range(4)}
    assert set(capture.sites) == expected
    assert capture.manifest.missing == {
        layer_site(i, "shared_out"): "no shared expert" for i in range(4)
    }
    assert not any(info.derived for info in capture.manifest.sites.values())


def test_a_layers_output_is_the_next_layers_input_and_the_parts_add_up(mixed: Path) -> None:
    for row in rows_of(mixed).values():
        if not row.arrays:
            continue
        arrays = row.arrays
        assert np.array_equal(arrays["embed"], arrays["layers.0.input"])
        for layer in range(3):
            out, into = arrays[f"layers.{layer}.output"], arrays[f"layers.{layer + 1}.input"]
            assert np.array_equal(out, into)
        for layer in range(4):
            middle = arrays[f"layers.{layer}.input"] + arrays[f"layers.{layer}.attn_out"]
            total = middle + arrays[f"layers.{layer}.mlp_out"]
            assert np.array_equal(total, arrays[f"layers.{layer}.output"])
            # One expert block and nothing beside it.
            assert np.array_equal(
                arrays[f"layers.{layer}.routed_out"], arrays[f"layers.{layer}.mlp_out"]
            )


def test_gate_weights_and_ids_are_those_of_the_router_logits(mixed: Path) -> None:
    for row in rows_of(mixed).values():
        for layer in range(4) if row.arrays else ():
            logits = torch.from_numpy(row.arrays[f"layers.{layer}.router_logits"].copy())
            weights, ids = torch.softmax(logits, -1).topk(2)
            assert set(row.arrays[f"layers.{layer}.topk_ids"].tolist()) == set(ids.tolist())
            recorded = row.arrays[f"layers.{layer}.topk_weights"]
            assert recorded.dtype == np.float32
            np.testing.assert_allclose(recorded, weights / weights.sum(), atol=4 * 2**-24)


def test_logits_score_the_next_token_also_when_sampled_with_a_temperature(mixed: Path) -> None:
    rows = rows_of(mixed)
    checked = 0
    for (name, position), row in rows.items():
        if row.token["phase"] != "generated":
            continue
        logits = torch.from_numpy(rows[name, position - 1].arrays["logits"].copy())
        assert logits.shape == (VOCAB_SIZE,)
        logprobs = logits.log_softmax(-1, torch.float32)
        token = row.token["token_id"]
        np.testing.assert_allclose(row.token["logprob"], logprobs[token], rtol=4 * 2**-24)
        assert row.token["rank"] == int((logprobs >= logprobs[token]).sum())
        entropy = -(logprobs.double().exp() * logprobs.double()).sum()
        np.testing.assert_allclose(row.token["entropy"], entropy, rtol=1e-5, atol=1e-6)
        checked += 1
    assert checked > 100


def test_vocabulary_padding_is_not_recorded(runner: Any, mixed: Path) -> None:
    assert runner.model.lm_head.num_embeddings_padded > VOCAB_SIZE
    assert open_capture(mixed).manifest.sites["logits"].shape == (VOCAB_SIZE,)


def test_prompt_rows_have_no_logprob_unless_asked_for(llm: Any, tmp_path: Path) -> None:
    requests = random_requests(3, seed=2, low=45)
    plain = record_requests(
        llm, requests, tmp_path / "plain", settings=RolloutSettings(max_tokens=2)
    )
    settings = RolloutSettings(max_tokens=2, prompt_logprobs=True, logits=True)
    scored = record_requests(llm, requests, tmp_path / "scored", settings=settings)
    for request in requests:
        without = of_request(plain, request.name).filter(pl.col("phase") == "prompt")
        assert without["logprob"].null_count() == without.height
        rows = of_request(scored, request.name).filter(pl.col("phase") == "prompt")
        assert rows["logprob"].null_count() == 1
        assert rows["logprob"][0] is None
    # Scoring the prompt computes logits at all of its rows.
    assert all("logits" in row.arrays for row in rows_of(scored).values() if row.arrays)


def test_rows_from_the_prefix_cache_are_marked_and_not_invented(llm: Any, tmp_path: Path) -> None:
    (request,) = random_requests(1, seed=3, low=80, high=80)
    settings = RolloutSettings(max_tokens=4)
    fresh = record_requests(llm, [request], tmp_path / "fresh", settings=settings)
    again = record_requests(llm, [request], tmp_path / "again", settings=settings)
    states = of_request(again, request.name)["state"].to_list()
    assert states[: 2 * BLOCK_SIZE] == ["cached"] * 2 * BLOCK_SIZE
    assert "cached" not in states[2 * BLOCK_SIZE :]
    a, b = rows_of(fresh), rows_of(again)
    for key, row in b.items():
        if row.token["state"] == "cached":
            assert row.arrays == {}
            assert row.token["logprob"] is None
            assert row.token["token_id"] == a[key].token["token_id"]
    computed = {key for key, row in b.items() if row.token["state"] != "cached"}
    assert_same_bits({k: a[k] for k in computed}, {k: b[k] for k in computed})


def test_forced_tokens_go_through_decoding_with_the_same_bits(
    llm: Any, mixed: Path, tmp_path: Path
) -> None:
    forced = record_requests(
        llm, read_forced(mixed), tmp_path / "forced", settings=RolloutSettings(logits=True)
    )
    assert_same_bits(rows_of(mixed), rows_of(forced))
    assert open_capture(forced).manifest.knobs["forced"] is True


def test_a_forced_list_is_not_cut_at_the_engines_default_of_16(llm: Any, tmp_path: Path) -> None:
    tokens = tuple(i % VOCAB_SIZE for i in range(40))
    request = Request(name="long", prompt_token_ids=(1, 2), forced_token_ids=tokens)
    out = record_requests(llm, [request], tmp_path / "long")
    rows = of_request(out, "long").filter(pl.col("phase") == "generated")
    assert tuple(rows["token_id"]) == tokens


def test_the_prefill_leg_scores_the_same_tokens(llm: Any, mixed: Path, tmp_path: Path) -> None:
    settings = RolloutSettings(leg="prefill", logits=True)
    prefill = record_requests(llm, read_forced(mixed), tmp_path / "prefill", settings=settings)
    a, b = rows_of(mixed), rows_of(prefill)
    assert a.keys() == b.keys()
    for key, row in a.items():
        for column in ("token_id", "phase"):
            assert row.token[column] == b[key].token[column]
        if row.token["phase"] == "generated":
            # On CPU, at this size, decode and prefill agree to the bit.
            assert row.token["logprob"] == b[key].token["logprob"]


def test_small_chunks_hold_the_same_rows(llm: Any, tmp_path: Path) -> None:
    requests = random_requests(4, seed=5)
    whole = record_requests(
        llm, requests, tmp_path / "whole", settings=RolloutSettings(max_tokens=9)
    )
    llm.reset_prefix_cache()
    settings = RolloutSettings(max_tokens=9, chunk_bytes=100_000)
    parts = record_requests(llm, requests, tmp_path / "parts", settings=settings)
    assert len(open_capture(parts).chunks) > 3 > len(open_capture(whole).chunks)
    assert_same_bits(rows_of(whole), rows_of(parts))


def test_only_the_asked_sites_are_recorded(llm: Any, tmp_path: Path) -> None:
    settings = RolloutSettings(max_tokens=2, sites=("topk_ids", "final_norm"))
    out = record_requests(llm, random_requests(1, seed=6), tmp_path / "few", settings=settings)
    capture = open_capture(out)
    assert set(capture.sites) == {*(layer_site(i, "topk_ids") for i in range(4)), "final_norm"}
    assert capture.manifest.missing["embed"] == "not asked for"


def test_text_of_tokens_is_recorded(llm: Any, tmp_path: Path) -> None:
    out = record_requests(llm, [Request(name="t", prompt="<3,7,2=12|")], tmp_path / "text")
    assert "".join(of_request(out, "t")["text"]).startswith("<3,7,2=12|")


def test_ends_are_told_apart_from_positions_of_a_stop_token(llm: Any, tmp_path: Path) -> None:
    """The stop token itself was sampled, got a log-probability and was never fed."""
    settings = RolloutSettings(max_tokens=60)
    out = record_requests(
        llm, [Request(name="t", prompt="<3,7,2=12|")], tmp_path / "stop", settings=settings
    )
    last = of_request(out, "t").tail(1).to_dicts()[0]
    assert (last["text"], last["state"]) == (">", "sampled")
    assert last["logprob"] is not None


@pytest.mark.parametrize(
    ("request_", "settings", "match"),
    [
        (Request(name="r", prompt_token_ids=(1, 99)), RolloutSettings(), "token 99"),
        (Request(name="r", prompt_token_ids=()), RolloutSettings(), "empty prompt"),
        (Request(name="r", prompt_token_ids=(1,)), RolloutSettings(leg="prefill"), "scores given"),
        (
            Request(name="r", prompt_token_ids=(1,), forced_token_ids=(77,)),
            RolloutSettings(),
            "token 77",
        ),
    ],
)
def test_requests_that_cannot_run_are_refused_before_anything_is_written(
    llm: Any, tmp_path: Path, request_: Request, settings: RolloutSettings, match: str
) -> None:
    with pytest.raises(UsageError, match=match):
        record_requests(llm, [request_], tmp_path / "bad", settings=settings)
    assert not (tmp_path / "bad").exists()


def test_a_directory_with_files_is_not_overwritten(llm: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(RecordingError, match="over something else"):
        record_requests(llm, random_requests(1, seed=1), tmp_path)
    assert llm.collective_rpc("kldive_status") == [{"recording": False}]
