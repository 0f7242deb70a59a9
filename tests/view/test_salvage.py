"""A comparison with a table that is cut off: what is left can be looked at, and no more is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.captures import ROLLOUT, TRAINER, make_pair
from workbench.comparison.result import open_comparison
from workbench.comparison.run import compare
from workbench.view.headline import verdict_line
from workbench.view.model import ViewModel
from workbench.view.palette import ABSENT
from workbench.view.salvage import salvaged
from workbench.view.state import Cell


def damaged(directory: Path) -> Path:
    pair = make_pair(directory, a=ROLLOUT, b=replace(TRAINER, scale_experts=(1, 1.02)))
    compare(pair.a, pair.b, out=directory / "comparison")
    return directory / "comparison"


def test_a_sound_comparison_stays_as_it_is(tmp_path: Path) -> None:
    comparison = open_comparison(damaged(tmp_path))
    assert salvaged(comparison) is comparison


def test_without_the_table_of_layers_rows_and_vectors_are_left(tmp_path: Path) -> None:
    directory = damaged(tmp_path)
    table = directory / "layers.arrow"
    size = table.stat().st_size
    table.write_bytes(table.read_bytes()[: size // 2])
    model = ViewModel(salvaged(open_comparison(directory)))
    said = verdict_line(model)
    assert said.tone == "warning"
    assert (
        f"layers.arrow cannot be read (expected {size} bytes, got {size // 2} bytes)" in said.text
    )
    model.warm()
    for lens in ("router", "gates", "combined", "residual"):
        assert (model.codes(lens) == ABSENT).all()
    assert (model.codes("logprob") != ABSENT).any()
    assert model.class_counts()["flip"] == 0
    model.move_to(Cell(1, 5))
    facts = model.cell_facts()
    assert facts.router is None
    assert facts.logprob.a is not None
    pair = model.source.cell(1, 5, "mlp_out")
    assert pair.a is not None
    assert pair.b is not None
    assert not np.array_equal(pair.a, pair.b)


def test_a_table_that_is_gone_is_named(tmp_path: Path) -> None:
    directory = damaged(tmp_path)
    (directory / "layers.arrow").unlink()
    model = ViewModel(salvaged(open_comparison(directory)))
    assert "layers.arrow cannot be read (expected a readable file" in verdict_line(model).text
