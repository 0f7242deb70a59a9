"""The (layer, row) table: any Arrow reader sees what was written, and we map it without copying."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.comparison.arrow import (
    Column,
    LayerTableWriter,
    Values,
)
from workbench.comparison.layertable import LayerTable, columns_from_json
from workbench.errors import CaptureError

COLUMNS = [Column("layer", "u4"), Column("error", "f4"), Column("equal", "b1")]


def write(path: Path, num_layers: int, num_rows: int, missing: np.ndarray) -> None:
    writer = LayerTableWriter(path, COLUMNS, num_layers=num_layers, num_rows=num_rows)
    for layer in range(num_layers):
        rows = np.arange(num_rows)
        writer.append(
            {
                "layer": Values(np.full(num_rows, layer)),
                "error": Values(rows + 0.5 + layer * 100, missing[layer]),
                "equal": Values((rows + layer) % 3 == 0, missing[layer]),
            }
        )
    writer.close()


@given(st.integers(1, 4), st.integers(0, 19), st.integers(0, 2**32))
def test_polars_and_the_map_agree_on_every_shape(
    tmp_path_factory: pytest.TempPathFactory, num_layers: int, num_rows: int, seed: int
) -> None:
    path = tmp_path_factory.mktemp("arrow") / "layers.arrow"
    missing = np.random.default_rng(seed).random((num_layers, num_rows)) < 0.3
    write(path, num_layers, num_rows, missing)
    read = pl.read_ipc(path)
    assert read.schema == {"layer": pl.UInt32, "error": pl.Float32, "equal": pl.Boolean}
    assert read.null_count().row(0) == (0, int(missing.sum()), int(missing.sum()))
    table = LayerTable(path, COLUMNS, num_layers=num_layers, num_rows=num_rows)
    shape = (num_layers, num_rows)
    for column in COLUMNS:
        nulls = read[column.name].is_null().to_numpy().reshape(shape)
        np.testing.assert_array_equal(table.missing(column.name), nulls)
        filled = read[column.name].fill_null(float("nan") if column.kind == "f4" else 0)
        np.testing.assert_array_equal(table.values(column.name), filled.to_numpy().reshape(shape))
        for row in range(num_rows):
            expected_L = table.values(column.name)[:, row]
            found_L = table.at_row(column.name, row)
            np.testing.assert_array_equal(found_L, expected_L)
            assert found_L.dtype == expected_L.dtype
        for layer, row in np.ndindex(*shape):
            one = table.cell(column.name, layer, row)
            expected = (table.values(column.name)[layer, row], nulls[layer, row])
            assert one.missing is not None
            np.testing.assert_array_equal((one.values[0, 0], one.missing[0, 0]), expected)


def test_a_layer_is_one_contiguous_slice_of_the_file(tmp_path: Path) -> None:
    write(tmp_path / "t", 3, 7, np.zeros((3, 7), np.bool_))
    values = LayerTable(tmp_path / "t", COLUMNS, num_layers=3, num_rows=7).values("error")
    assert values[1].flags.c_contiguous
    assert values[1].tolist() == [100.5 + i for i in range(7)]
    assert not values.flags.writeable


def test_a_column_left_out_of_a_layer_is_missing_there(tmp_path: Path) -> None:
    writer = LayerTableWriter(tmp_path / "t", COLUMNS, num_layers=2, num_rows=2)
    writer.append({"error": Values(np.ones(2))})
    writer.append({})
    writer.close()
    table = LayerTable(tmp_path / "t", COLUMNS, num_layers=2, num_rows=2)
    assert table.missing("error").tolist() == [[False, False], [True, True]]
    assert pl.read_ipc(tmp_path / "t")["equal"].null_count() == 4


@pytest.mark.parametrize("change", ["shorter", "longer", "gone"])
def test_a_file_of_another_size_is_refused(tmp_path: Path, change: str) -> None:
    path = tmp_path / "layers.arrow"
    write(path, 2, 3, np.zeros((2, 3), np.bool_))
    raw = path.read_bytes()
    if change == "gone":
        path.unlink()
    else:
        path.write_bytes(raw[:-1] if change == "shorter" else raw + b"x")
    with pytest.raises(CaptureError, match="cannot read a comparison"):
        LayerTable(path, COLUMNS, num_layers=2, num_rows=3)


@pytest.mark.parametrize("entries", [None, {}, ["x"], [["x", "f8"]], [[1, "f4"]], [["a"]]])
def test_columns_that_are_not_columns_are_refused(tmp_path: Path, entries: object) -> None:
    with pytest.raises(CaptureError):
        columns_from_json(entries, tmp_path)
