"""Reading comparisons: what faces ask, what was moved, and what is not a comparison."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.captures import ROLLOUT, TRAINER, make_pair
from workbench.comparison.result import Comparison, open_comparison
from workbench.comparison.run import compare
from workbench.errors import CaptureError, UsageError


@pytest.fixture
def found(tmp_path: Path) -> Comparison:
    a = replace(ROLLOUT, dtype="bfloat16", rounding="often")
    pair = make_pair(tmp_path / "run", a=a, b=replace(TRAINER, dtype="bfloat16"))
    return compare(pair.a, pair.b, out=tmp_path / "run" / "comparison")


def test_columns_are_layers_by_rows(found: Comparison) -> None:
    assert (found.num_layers, found.num_rows) == (3, 36)
    for name, dtype in (
        ("mlp_out.rel_l2", np.float32),
        ("mlp_out.max_ulp", np.uint32),
        ("mlp_out.bit_equal", np.bool_),
        ("topk.set_equal", np.bool_),
    ):
        column = found.column(name)
        assert column.shape == (3, 36)
        assert column.dtype == dtype
        assert not column.flags.writeable
        assert found.missing(name).dtype == np.bool_


def test_an_unknown_column_site_class_or_profile_names_the_nearest(found: Comparison) -> None:
    with pytest.raises(UsageError, match=r"did you mean mlp_out\.rel_l2"):
        found.column("mlp_out.rel_l3")
    with pytest.raises(UsageError, match="did you mean mlp_out"):
        found.cell(0, 0, "mlp_uot")
    with pytest.raises(UsageError, match="did you mean flip"):
        found.class_mask("flop")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="did you mean bf16"):
        found.class_mask("bit", "bf61")


@pytest.mark.parametrize(("layer", "row"), [(3, 0), (-1, 0), (None, 0), (0, 36), (0, -1)])
def test_cells_outside_are_refused(found: Comparison, layer: int | None, row: int) -> None:
    with pytest.raises(UsageError, match="no such"):
        found.cell(layer, row, "mlp_out")


def test_a_cell_is_what_both_captures_stored(found: Comparison) -> None:
    pair = found.cell(2, 20, "routed_out")
    assert pair.a is not None
    assert pair.b is not None
    assert pair.a.dtype.name == pair.b.dtype.name == "bfloat16"
    gap = np.abs(pair.a.astype(np.float32) - pair.b.astype(np.float32)).max()
    assert gap == found.column("routed_out.max_abs")[2, 20]
    assert found.cell(None, 20, "logits").a is not None
    assert found.cell(0, 20, "shared_out") == (None, None)


def test_numbers_of_a_cell_are_the_stored_ones_in_types_that_numpy_knows(
    found: Comparison,
) -> None:
    pair, numbers = found.cell(2, 20, "routed_out"), found.numbers(2, 20, "routed_out")
    assert numbers.dtype_a == numbers.dtype_b == "bfloat16"
    for stored, shown in ((pair.a, numbers.a), (pair.b, numbers.b)):
        assert stored is not None
        assert shown is not None
        assert shown.dtype == np.float32
        np.testing.assert_array_equal(shown, stored.astype(np.float32))
    ids = found.numbers(2, 20, "topk_ids")
    assert (ids.dtype_a, ids.a is not None) == ("int32", True)
    assert found.numbers(0, 20, "shared_out") == (None, None, "", "")


def test_a_cell_opens_the_arrays_of_its_chunk_and_nothing_else(found: Comparison) -> None:
    expected = found.numbers(1, 20, "mlp_in").a
    for tokens in found.directory.parent.glob("?/tokens-*.parquet"):
        tokens.unlink()
    again = open_comparison(found.directory)
    np.testing.assert_array_equal(again.numbers(1, 20, "mlp_in").a, expected)


def test_a_chunk_that_is_damaged_has_no_vectors(found: Comparison) -> None:
    for arrays in found.directory.parent.glob("a/chunk-*.safetensors"):
        arrays.write_bytes(b"")
    again = open_comparison(found.directory)
    assert again.cell(1, 20, "mlp_in").a is None
    assert again.cell(1, 20, "mlp_in").b is not None


def test_divergences_scan_by_token_or_by_layer(found: Comparison) -> None:
    mask = found.class_mask("bit")
    by_token, by_layer = found.divergences("bit"), found.divergences("bit", order="layer")
    assert len(by_token.rows) == len(by_layer.rows) == mask.sum()
    assert (np.diff(by_token.rows) >= 0).all()
    assert (np.diff(by_layer.layers) >= 0).all()
    assert mask[by_token.layers, by_token.rows].all()
    first = found.summary["first"]["bit"]
    assert (by_token.layers[0], by_token.rows[0]) == (first["layer"], first["row"])
    assert found.sites_at("bit", first["layer"], first["row"])[0] == first["site"]


def test_masks_follow_the_profile_that_is_asked_for(found: Comparison) -> None:
    strict, lax = found.class_mask("rounding", "bitwise"), found.class_mask("rounding", "fp8")
    assert strict.sum() > 0
    assert lax.sum() == 0
    assert (found.class_mask("rounding") == found.class_mask("rounding", "bf16")).all()


def test_a_run_that_moved_as_a_whole_still_opens(found: Comparison, tmp_path: Path) -> None:
    expected = found.cell(1, 1, "mlp_in")
    shutil.move(found.directory.parent, tmp_path / "elsewhere")
    moved = open_comparison(tmp_path / "elsewhere" / "comparison")
    assert moved.cell(1, 1, "mlp_in").a.tobytes() == expected.a.tobytes()  # type: ignore[union-attr]


def test_a_comparison_that_moved_alone_finds_its_captures(
    found: Comparison, tmp_path: Path
) -> None:
    shutil.move(found.directory, tmp_path / "alone")
    assert open_comparison(tmp_path / "alone").cell(1, 1, "mlp_in").a is not None


@pytest.mark.parametrize("what", ["gone", "recorded again"])
def test_a_capture_that_is_no_longer_there_is_one_clear_error(found: Comparison, what: str) -> None:
    again = open_comparison(found.directory)
    a = found.directory.parent / "a"
    if what == "gone":
        shutil.rmtree(a)
    else:
        path = a / "manifest.json"
        path.write_text(path.read_text().replace('"toy"', '"new"'))
    with pytest.raises(CaptureError, match="the capture of side A is not where it was") as caught:
        again.cell(0, 0, "mlp_in")
    assert caught.value.exit_code == 3
    # What the comparison holds itself stays readable.
    assert again.class_mask("bit").any()


def edit(directory: Path, **changes: Any) -> None:
    path = directory / "comparison.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "zip"},
        {"version": 0},
        {"version": True},
        {"version": "1"},
        {"layers": None},
        {"layers": {"num_layers": -1, "num_rows": 36, "columns": []}},
        {"layers": {"num_layers": 10**30, "num_rows": 36, "columns": []}},
        {"layers": {"num_layers": 3, "num_rows": 37, "columns": []}},
        {"layers": {"num_layers": 3, "num_rows": 36, "columns": [["x"]]}},
        {"precision": {"surprise": 1}},
        {"precision": None},
    ],
)
def test_a_summary_that_lies_is_one_clear_error(found: Comparison, changes: dict[str, Any]) -> None:
    edit(found.directory, **changes)
    with pytest.raises(CaptureError) as caught:
        open_comparison(found.directory)
    assert caught.value.do


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 200_000, "7"])
def test_a_summary_that_is_no_json_is_one_clear_error(found: Comparison, text: str) -> None:
    (found.directory / "comparison.json").write_text(text)
    with pytest.raises(CaptureError):
        open_comparison(found.directory)


@pytest.mark.parametrize("name", ["rows.parquet", "layers.arrow", "comparison.json"])
def test_a_missing_or_cut_file_is_one_clear_error(found: Comparison, name: str) -> None:
    path = found.directory / name
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(CaptureError):
        open_comparison(found.directory).column("mlp_out.rel_l2")
    path.unlink()
    with pytest.raises(CaptureError):
        open_comparison(found.directory).column("mlp_out.rel_l2")


def test_a_capture_is_not_a_comparison(found: Comparison) -> None:
    with pytest.raises(CaptureError, match=r"no comparison\.json in it"):
        open_comparison(found.directory.parent / "a")
    with pytest.raises(CaptureError, match="no such directory"):
        open_comparison(found.directory / "none")
