"""Whole comparisons of small pairs, by the knob that makes them differ."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.captures import ROLLOUT, TRAINER, Side, Toy, make_pair
from workbench.comparison.result import Comparison, open_comparison
from workbench.comparison.run import compare
from workbench.store import ParameterSum

LARGE = Toy(lengths=(40, 30, 50, 60), num_layers=4)
STABLE_KEYS = (
    "status",
    "reason",
    "verdict",
    "weights",
    "rows",
    "kl",
    "max_abs_dlogp",
    "first",
    "jump",
    "counts",
    "excused",
    "probability",
    "practice",
    "routing",
    "sites",
    "direction",
    "sampling_side",
    "tolerance",
    "a",
    "b",
    "coverage",
    "weights_detail",
    "contracts",
)

Compared = Callable[..., Comparison]


@pytest.fixture
def compared(tmp_path: Path) -> Compared:
    def run(
        a: Side = ROLLOUT, b: Side = TRAINER, *, toy: Toy | None = None, tolerance: str = "auto"
    ) -> Comparison:
        pair = make_pair(tmp_path, toy=toy, a=a, b=b)
        return compare(pair.a, pair.b, out=tmp_path / "comparison", tolerance=tolerance)

    return run


def sided(dtype: str, **changes: Any) -> tuple[Side, Side]:
    return (
        replace(ROLLOUT, dtype=dtype, rounding="often"),
        replace(TRAINER, dtype=dtype, **changes),
    )


def test_equal_captures_are_identical(compared: Compared) -> None:
    found = compared()
    assert (found.summary["status"], found.summary["verdict"]) == ("equal", "identical")
    assert set(found.summary["counts"].values()) == {0}
    assert set(found.summary["first"].values()) == {None}
    assert found.summary["kl"] == {"exact_mean": 0, "k1": 0, "k2": 0, "k3": 0}
    assert found.summary["rows"]["compared"] == found.summary["rows"]["expected"] == 36


def test_the_summary_keeps_its_keys_and_is_strict_json(compared: Compared) -> None:
    found = compared(replace(ROLLOUT, values=[("layers.1.attn_out", 5, 3, np.nan)]))
    text = (found.directory / "comparison.json").read_text()

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} in the summary")

    body = json.loads(text, parse_constant=refuse)
    assert set(STABLE_KEYS) <= set(body)
    assert body == found.summary
    assert set(body["rows"]) >= {"compared", "expected"}
    entry = {"layer", "site", "request", "position", "token", "a", "b", "size"}
    assert entry <= set(body["first"]["bit"])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_paths_that_round_in_other_places_are_rounding(compared: Compared, dtype: str) -> None:
    found = compared(*sided(dtype), toy=LARGE)
    assert (found.summary["status"], found.summary["verdict"]) == ("equal", "rounding")
    assert found.summary["jump"] is None
    assert found.summary["first"]["bit"] is not None
    assert found.summary["first"]["rounding"] is None


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("layer", [0, 1, 3])
def test_two_percent_in_one_layers_experts_are_placed(
    compared: Compared, dtype: str, layer: int
) -> None:
    found = compared(*sided(dtype, scale_experts=(layer, 1.02)), toy=LARGE)
    jump = found.summary["jump"]
    assert (jump["layer"], jump["site"]) == (layer, "routed_out")
    assert jump["scale"] == pytest.approx(1 / 1.02, abs=2e-3)
    assert jump["constant"]
    assert (found.summary["status"], found.summary["verdict"]) == ("diverged", "semantic")
    if dtype == "float32":
        first = found.summary["first"]["rounding"]
        assert (first["layer"], first["site"]) == (layer, "routed_out")
        assert first["size"] == pytest.approx(0.02 / 1.02, rel=1e-3)


def test_other_types_within_the_coarser_budget_are_precision(compared: Compared) -> None:
    found = compared(replace(ROLLOUT, dtype="bfloat16"), TRAINER)
    assert (found.summary["status"], found.summary["verdict"]) == ("equal", "precision")
    assert found.summary["tolerance"]["profile"] == "bf16"


def test_bfloat16_rounding_in_a_float32_pair_is_precision(compared: Compared) -> None:
    as_if = replace(ROLLOUT, dtype="bfloat16", changes={"dtype": "float32"})
    found = compared(as_if, TRAINER, tolerance="fp32")
    assert (found.summary["status"], found.summary["verdict"]) == ("diverged", "precision")


def test_a_flip_that_nothing_explains(compared: Compared) -> None:
    clean = compared()
    ids = clean.cell(1, 7, "topk_ids").a
    assert ids is not None
    other = next(e for e in range(8) if e not in ids)
    directory = clean.directory.parent / "flip"
    pair = make_pair(directory, a=replace(ROLLOUT, ids=[(1, 7, 0, other)]))
    found = compare(pair.a, pair.b, out=directory / "comparison").summary
    first = found["first"]["unexplained_flip"]
    assert (first["layer"], first["row"], first["site"]) == (1, 7, "topk_ids")
    assert first["a"] == [other, int(ids[1])]
    assert first["b"] == ids.tolist()
    assert found["routing"]["unexplained"] == 1
    assert (found["status"], found["verdict"]) == ("diverged", "semantic")


def test_nan_on_one_side_is_a_fault_of_capture(compared: Compared) -> None:
    found = compared(replace(ROLLOUT, values=[("layers.1.attn_out", 5, 3, np.nan)]))
    first = found.summary["first"]["rounding"]
    assert (first["layer"], first["site"], first["row"]) == (1, "attn_out", 5)
    assert (first["a"], first["nonfinite"]) == (None, True)
    assert found.summary["sites"]["attn_out"]["nonfinite_a"] == 1
    assert (found.summary["status"], found.summary["verdict"]) == ("diverged", "capture")
    assert found.column("attn_out.nonfinite_a")[1, 5] == 1


def test_other_weights_come_first(compared: Compared) -> None:
    weights = {"layers.2.router": ParameterSum(sum=7, numel=1, dtype="float32")}
    other = {"layers.2.router": ParameterSum(sum=8, numel=1, dtype="float32")}
    found = compared(
        replace(ROLLOUT, changes={"weights": weights}), replace(TRAINER, changes={"weights": other})
    ).summary
    assert (found["weights"], found["status"], found["verdict"]) == (
        "different",
        "diverged",
        "state",
    )
    assert found["reason"].startswith("the weights differ: 1 of 1 groups differ: layers.2.router")
    assert found["weights_detail"]["different"] == ["layers.2.router"]


@pytest.mark.parametrize(
    "changes",
    [
        {"order": (2, 0, 1)},
        {"interleaved": True},
        {"chunk_rows": 5},
        {"order": (1, 2, 0), "interleaved": True, "chunk_rows": 7},
        {"chunk_rows": 1},
    ],
)
def test_order_and_chunks_change_no_number(compared: Compared, changes: dict[str, Any]) -> None:
    plain = compared(*sided("bfloat16"))
    columns = [c for c in plain.summary["layers"]["columns"] if c[0] not in ("layer", "row")]
    expected = {name: np.array(plain.column(name)) for name, _ in columns}
    places = ("chunk_b", "offset_b")
    rows = plain.rows.drop(places)
    again = plain.directory.parent / "again"
    a, b = sided("bfloat16", **changes)
    pair = make_pair(again, a=a, b=b)
    found = compare(pair.a, pair.b, out=again / "comparison")
    for name, values in expected.items():
        np.testing.assert_array_equal(found.column(name), values, name)
    assert found.rows.drop(places).equals(rows)
    cell = found.cell(1, 20, "mlp_in")
    assert plain.cell(1, 20, "mlp_in").b.tobytes() == cell.b.tobytes()  # type: ignore[union-attr]


def test_rows_follow_a_by_request_then_position(compared: Compared) -> None:
    found = compared(replace(ROLLOUT, order=(2, 0, 1), interleaved=True))
    requests = found.rows["request"].unique(maintain_order=True).to_list()
    assert requests == ["r2", "r0", "r1"]
    positions = found.rows.filter(pl.col("request") == "r0")["position"].to_list()
    assert positions == list(range(12))
    assert found.rows["row"].to_list() == list(range(36))


def test_cached_and_sampled_rows_are_missing_not_equal(compared: Compared) -> None:
    found = compared(replace(ROLLOUT, cached=(1, 3), sampled_last=True))
    missing = found.missing("mlp_out.rel_l2")
    assert missing.sum(axis=1).tolist() == [6, 6, 6]
    assert np.isnan(found.column("mlp_out.rel_l2")[missing]).all()
    assert not found.column("mlp_out.bit_equal")[missing].any()
    assert found.class_mask("bit").sum() == 0
    assert found.summary["coverage"]["mlp_out"]["compared"] == 3 * 30
    assert found.summary["coverage"]["mlp_out"]["expected"] == 3 * 36
    rows = found.rows.filter(pl.col("state_a") == "sampled")
    assert rows.height == 3
    assert rows["dlogp"].null_count() == 0
    assert rows["chunk_a"].null_count() == 3
    assert found.cell(0, int(rows["row"][0]), "mlp_out").a is None
    assert found.cell(0, int(rows["row"][0]), "mlp_out").b is not None


def test_a_site_that_one_side_lacks_is_said_to_be_missing(compared: Compared) -> None:
    missing = {f"layers.{i}.attn_out": "fused away" for i in range(3)}
    found = compared(replace(ROLLOUT, omit=("attn_out",), changes={"missing": missing}))
    assert not found.has_column("attn_out.rel_l2")
    assert np.isnan(found.column("attn_out.rel_l2")).all()
    assert found.missing("attn_out.bit_equal").all()
    coverage = found.summary["coverage"]["attn_out"]
    assert (coverage["compared"], coverage["only_b"], coverage["reason"]) == (0, 3, "fused away")
    assert "attn_out" not in found.summary["sites"]


def test_exact_kl_belongs_to_the_row_whose_token_is_drawn(compared: Compared) -> None:
    found = compared(replace(ROLLOUT, values=[("logits", 4, 0, 9.0)]))
    assert found.rows.filter(pl.col("kl_exact") > 0)["row"].to_list() == [5]
    # The site itself belongs to the row that computed it.
    assert found.rows.filter(~pl.col("logits.bit_equal"))["row"].to_list() == [4]
    first_rows = found.rows.filter(pl.col("position") == 0)
    assert first_rows["kl_exact"].null_count() == first_rows.height


def test_exact_kl_by_hand(compared: Compared) -> None:
    found = compared(replace(ROLLOUT, dtype="bfloat16"), TRAINER)
    row = 3
    a, b = (np.asarray(v, np.float64) for v in found.cell(None, row, "logits") if v is not None)
    p, q = (np.exp(v) / np.exp(v).sum() for v in (a, b))
    assert found.rows["kl_exact"][row + 1] == pytest.approx(float((p * np.log(p / q)).sum()), 1e-4)
    assert found.rows["tv"][row + 1] == pytest.approx(float(abs(p - q).sum() / 2), 1e-4)


def test_logits_of_some_rows_cover_those_rows(compared: Compared) -> None:
    found = compared(replace(ROLLOUT, logits="generated"))
    generated = found.rows["phase"] == "generated"
    assert (found.rows["kl_exact"].is_not_null() == generated).all()
    assert found.summary["coverage"]["logits"]["compared"] == 36 - 3 * 3


def test_without_logits_there_is_no_exact_kl(compared: Compared) -> None:
    found = compared(replace(ROLLOUT, logits="none"))
    assert found.summary["kl"]["exact_mean"] is None
    assert found.summary["kl"]["k3"] == 0


def test_missing_logprobs_are_not_equal_to_anything(compared: Compared) -> None:
    found = compared()
    rows = found.rows.filter(pl.col("position") == 0)
    assert rows["dlogp"].null_count() == rows.height
    assert found.summary["rows"]["with_logprobs"] == 33


def test_an_unfinished_capture_is_compared_and_called_incomplete(tmp_path: Path) -> None:
    pair = make_pair(tmp_path)
    manifest = json.loads((pair.a / "manifest.json").read_text())
    manifest["complete"] = False
    (pair.a / "manifest.json").write_text(json.dumps(manifest))
    found = compare(pair.a, pair.b, out=tmp_path / "comparison").summary
    assert found["status"] == "not_comparable"
    assert found["reason"] == "incomplete: the recording of A did not end in order"


def test_a_damaged_chunk_leaves_the_rest_comparable(tmp_path: Path) -> None:
    pair = make_pair(tmp_path, b=replace(TRAINER, chunk_rows=10))
    path = pair.b / "chunk-000001.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    found = compare(pair.a, pair.b, out=tmp_path / "comparison")
    assert found.summary["status"] == "not_comparable"
    assert found.summary["reason"] == "incomplete: B has 1 of 4 chunks damaged"
    assert found.summary["rows"]["compared"] == 26
    assert found.summary["rows"]["expected"] == 36
    assert found.summary["b"]["num_damaged"] == 1
    # Chunks keep their place in the manifest, so cells are still found.
    late = int(found.rows.filter(pl.col("chunk_b") == 3)["row"][0])
    assert found.cell(0, late, "mlp_in").b is not None


def test_a_comparison_opens_again_with_the_same_numbers(compared: Compared) -> None:
    found = compared(*sided("bfloat16"))
    again = open_comparison(found.directory)
    assert again.summary == found.summary
    assert again.rows.equals(found.rows)
    assert (again.class_mask("bit") == found.class_mask("bit")).all()


def test_any_arrow_reader_opens_the_layer_table(compared: Compared) -> None:
    found = compared(*sided("bfloat16"))
    table = pl.read_ipc(found.directory / "layers.arrow")
    assert table.height == found.num_layers * found.num_rows
    middle = table.filter((pl.col("layer") == 1) & (pl.col("row") == 30)).row(0, named=True)
    assert middle["mlp_out.rel_l2"] == found.column("mlp_out.rel_l2")[1, 30]


def test_routed_scaling_in_another_place_is_no_fault(compared: Compared) -> None:
    on_output = {"routed_scaling": 2.5, "routed_scaling_at": "output", "scoring": "softmax"}
    in_weights = {**on_output, "routed_scaling_at": "gate_weights"}
    plain = compared()
    scaled = plain.directory.parent / "scaled"
    weights = plain.capture("a")
    values = [
        (f"layers.{layer}.topk_weights", row, slot, 2.5 * float(array[row, slot]))
        for layer in range(3)
        for array in [weights.chunks[0].array(f"layers.{layer}.topk_weights")]
        for row in range(36)
        for slot in range(2)
    ]
    pair = make_pair(
        scaled,
        a=replace(ROLLOUT, changes={"contracts": on_output}),
        b=replace(TRAINER, values=values, changes={"contracts": in_weights}),
    )
    found = compare(pair.a, pair.b, out=scaled / "comparison").summary
    assert found["status"] == "equal"
    assert found["jump"] is None
    assert len(found["contracts"]["converted"]) == 1


def test_sides_without_a_common_logprob_are_not_equal(compared: Compared) -> None:
    found = compared(replace(ROLLOUT, logits="none", scored=False)).summary
    assert found["status"] == "not_comparable"
    assert found["reason"] == "no row has a log-probability on both sides"


def test_progress_names_the_stages(tmp_path: Path) -> None:
    pair = make_pair(tmp_path)
    stages: list[str] = []
    compare(pair.a, pair.b, out=tmp_path / "comparison", progress=stages.append)
    assert stages[0] == "aligning rows"
    assert stages[-1] == "judging"
    assert any(stage.startswith("measuring layer") for stage in stages)


class StopError(Exception):
    """Raised by a caller that has seen enough."""


@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
def test_what_a_tick_raises_stops_the_comparison_and_nothing_stays(
    tmp_path: Path, share: float
) -> None:
    pair = make_pair(tmp_path)

    def tick(done: float) -> None:
        if done >= share:
            raise StopError

    with pytest.raises(StopError):
        compare(pair.a, pair.b, out=tmp_path / "comparison", tick=tick)
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b"}


def test_ticks_rise_and_come_with_every_layer(tmp_path: Path) -> None:
    pair = make_pair(tmp_path, toy=Toy(num_layers=5))
    ticks: list[float] = []
    compare(pair.a, pair.b, out=tmp_path / "comparison", tick=ticks.append)
    assert len(ticks) == 1 + 5 + 1
    assert ticks == sorted(ticks)
    assert 0 < ticks[0] < ticks[-1] < 1
