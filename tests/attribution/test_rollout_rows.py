"""Rows on disk into the shape of a forward call; holes stay holes, and attention says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import polars as pl
import torch

from tests.attribution.recorded import attributed, beyond, module, recorded
from tests.capture.models import make_model
from workbench.attribution.local import whole_before
from workbench.attribution.rollout_rows import (
    SideRows,
    as_float64,
    find_sequences,
    from_numpy,
    token_budget,
)
from workbench.comparison.run import compare
from workbench.store import CaptureWriter, open_capture
from workbench.store.manifest import with_changes


def with_states(source: Path, target: Path, states: dict[tuple[str, int], str]) -> Path:
    """A copy of a capture in which some rows were served from a cache, or only sampled."""
    capture = open_capture(source)
    manifest = with_changes(capture.manifest, {"chunks": (), "complete": False})
    writer = CaptureWriter(target, manifest)
    for chunk in capture.chunks:
        tokens = chunk.tokens
        named = [
            states.get((str(request), int(position)), "computed")
            for request, position in zip(tokens["request"], tokens["position"], strict=True)
        ]
        kept = np.array([state == "computed" for state in named])
        offsets = np.where(kept, np.cumsum(kept) - 1, -1)
        columns: dict[str, Any] = {name: tokens[name].to_list() for name in tokens.columns}
        columns["state"] = named
        columns["offset"] = [int(o) if k else None for o, k in zip(offsets, kept, strict=True)]
        order = np.argsort(tokens["offset"].to_numpy())
        arrays = {
            site: np.ascontiguousarray(chunk.array(site)[tokens["offset"].to_numpy()][kept])
            for site in capture.sites
            if site in chunk
        }
        assert (order == np.arange(len(order))).all()
        writer.append(columns, arrays)
    writer.finish(complete=True)
    return target


def test_batches_hold_whole_requests_in_order_within_the_token_budget(tmp_path: Path) -> None:
    model = make_model("mixtral")
    a, b = recorded(model, tmp_path / "a"), recorded(model, tmp_path / "b")
    comparison = compare(a, b, out=tmp_path / "c")
    sequences = find_sequences(comparison)
    batches = list(sequences.batches(max_tokens=50))
    assert [batch.requests for batch in batches] == [("r0", "r1"), ("r2",), ("r3",)]
    first = batches[0]
    assert first.rows_BS.shape == (2, 23)
    assert first.rows_BS[0, 17:].tolist() == [-1] * 6
    ids = comparison.rows["token_id"].to_numpy()
    assert first.input_ids_BS[1].tolist() == ids[17:40].tolist()
    assert first.mask_BS.sum().item() == 40
    assert [x.requests for x in sequences.batches(only=frozenset({"r2"}))] == [("r2",)]


def test_values_come_back_bit_for_bit(tmp_path: Path) -> None:
    model = make_model("mixtral").to(torch.bfloat16)
    a, b = recorded(model, tmp_path / "a", alone=False), recorded(model, tmp_path / "b")
    comparison = compare(a, b, out=tmp_path / "c")
    side = SideRows(comparison, "a")
    (batch,) = find_sequences(comparison).batches()
    side.use(batch)
    found = side.values(1, "attn_out")
    assert found is not None
    assert found.values_NX.dtype == torch.bfloat16
    assert found.mask_N.tolist() == (batch.rows_N >= 0).tolist()
    place = int(np.flatnonzero(batch.rows_N == 30)[0])
    stored = comparison.cell(1, 30, "attn_out").a
    assert stored is not None
    assert np.array_equal(as_float64(stored), found.values_NX[place].double().numpy())
    assert side.values(0, "shared_out") is None


def test_bits_of_sixteen_bit_types_survive_the_way_to_torch() -> None:
    values = np.array([1.0, -2.5, np.inf], ml_dtypes.bfloat16)
    assert from_numpy(values.copy()).tolist() == [1.0, -2.5, torch.inf]


def test_logits_bound_the_tokens_of_a_forward() -> None:
    assert token_budget(32) == 4096
    assert token_budget(1 << 20) == 256
    assert token_budget(0) == 4096


def test_a_hole_ends_attention_from_there_on_and_a_hole_at_the_end_takes_nothing() -> None:
    mask = torch.tensor([[1, 1, 0, 1], [1, 1, 1, 0], [0, 1, 1, 1]], dtype=torch.bool)
    assert whole_before(mask).int().tolist() == [[1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 0, 0]]


def test_rows_from_a_prefix_cache_make_attention_not_attributable(tmp_path: Path) -> None:
    model = make_model("qwen3_moe")
    whole, b = recorded(model, tmp_path / "w"), recorded(model, tmp_path / "b")
    states = {("r1", position): "cached" for position in range(8)}
    states |= {("r0", 16): "sampled"}
    a = with_states(whole, tmp_path / "a", states)
    comparison = attributed(a, b, model, tmp_path / "c")
    assert beyond(comparison) == []
    (gap,) = comparison.summary["attribution"]["not_attributable"]["attention"]
    assert (gap["request"], gap["from_position"]) == ("r1", 0)
    assert "prefix cache" in gap["reason"]
    rows = comparison.rows.height
    assert module(comparison, 0, "attention")["rows"] == rows - 23 - 1
    assert module(comparison, 0, "router")["rows"] == rows - 8 - 1


def test_a_request_with_lost_positions_is_left_out_with_the_reason(tmp_path: Path) -> None:
    model = make_model("mixtral")
    a, b = recorded(model, tmp_path / "a"), recorded(model, tmp_path / "b")
    comparison = compare(a, b, out=tmp_path / "c")
    table = pl.read_parquet(tmp_path / "c" / "rows.parquet")
    lost = table.with_columns(
        pl.when(pl.col("row") == 5)
        .then(99)
        .otherwise(pl.col("position"))
        .alias("position")
        .cast(pl.Int32)
    )
    lost.write_parquet(tmp_path / "c" / "rows.parquet")
    del comparison
    from workbench.comparison.result import open_comparison

    sequences = find_sequences(open_comparison(tmp_path / "c"))
    assert "positions are missing" in sequences.skipped["r0"]
    assert sequences.names == ("r1", "r2", "r3")
    assert json.dumps(sequences.skipped)
