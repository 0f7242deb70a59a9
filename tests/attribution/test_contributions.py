"""What single experts add: the norm of gate times output, checked against the weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.attribution.recorded import Fault, attributed, recorded
from tests.capture.models import make_model
from workbench.attribution.contributions import MAX_CELLS, chosen_cells, contributions
from workbench.capture.structure import find_parts
from workbench.comparison.result import Comparison
from workbench.comparison.run import compare
from workbench.store.dtypes import to_float32


def swapped_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Every row gets the choices of the row before it."""
    return tensor.roll(1, dims=0)


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    made: torch.nn.Module = make_model("qwen3_moe")
    return made


@pytest.fixture(scope="module")
def comparison(model: torch.nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """Side A selects other experts in layer 2."""
    directory = tmp_path_factory.mktemp("contributions")
    fault = Fault(2, "topk_ids", swapped_rows)
    a = recorded(model, directory / "a", fault=fault)
    b = recorded(model, directory / "b")
    return attributed(a, b, model, directory / "comparison")


def test_every_contribution_is_gate_times_output_of_that_expert(
    model: torch.nn.Module, comparison: Comparison
) -> None:
    found = comparison.summary["attribution"]["contributions"]
    assert found
    entry = next(e for e in found if e["layer"] == 2)
    experts = find_parts(model).layers[2].experts
    assert experts is not None
    for side, name in ((0, "a"), (1, "b")):
        hidden_D, ids_K, gates_K = (
            comparison.cell(2, entry["row"], site)[side]
            for site in ("mlp_in", "topk_ids", "topk_weights")
        )
        assert hidden_D is not None
        assert ids_K is not None
        assert gates_K is not None
        norms = {e["expert"]: e[name] for e in entry["experts"] if e[name] is not None}
        assert set(norms) == set(ids_K.tolist())
        for expert, gate in zip(ids_K.tolist(), to_float32(gates_K).tolist(), strict=True):
            out_D = _one_expert(experts, to_float32(hidden_D), expert)
            assert norms[expert] == pytest.approx(gate * np.linalg.norm(out_D), rel=1e-3)


def _one_expert(experts: torch.nn.Module, hidden_D: np.ndarray, expert: int) -> np.ndarray:
    """An expert from its weights: down(silu(gate(x)) * up(x)), in float64."""
    both_2FD = experts.get_parameter("gate_up_proj")[expert].detach().double().numpy()
    down_DF = experts.get_parameter("down_proj")[expert].detach().double().numpy()
    gate_F, up_F = np.split(both_2FD @ hidden_D.astype(np.float64), 2)
    made: np.ndarray = down_DF @ (gate_F / (1 + np.exp(-gate_F)) * up_F)
    return made


def test_the_first_divergences_come_before_the_flips(comparison: Comparison) -> None:
    first = {"layer": 0, "row": 77}
    cells = chosen_cells(comparison, first)
    assert cells[0] == (0, 77)
    assert len(cells) == len(set(cells)) <= MAX_CELLS
    flips = comparison.divergences("flip")
    assert (int(flips.layers[0]), int(flips.rows[0])) in cells
    assert all(entry["row"] < comparison.num_rows for entry in _entries(comparison))


def _entries(comparison: Comparison) -> list[dict[str, int]]:
    found: list[dict[str, int]] = comparison.summary["attribution"]["contributions"]
    return found


def test_a_side_that_did_not_select_an_expert_has_none(comparison: Comparison) -> None:
    alone = [
        (e["a"], e["b"])
        for entry in comparison.summary["attribution"]["contributions"]
        for e in entry["experts"]
        if None in (e["a"], e["b"])
    ]
    assert alone
    assert all((a is None) != (b is None) for a, b in alone)


def test_equal_sides_have_nothing_to_look_at(model: torch.nn.Module, tmp_path: Path) -> None:
    a, b = recorded(model, tmp_path / "a"), recorded(model, tmp_path / "b")
    same = compare(a, b, out=tmp_path / "comparison")
    assert contributions(same, find_parts(model)) == []
