"""Combine orders: worked by hand, and found again from a model's own bits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.attribution.recorded import attributed, beyond, recorded
from tests.capture.models import make_model
from workbench.attribution.combine import CANDIDATES, slot_outputs, weigh_and_add
from workbench.attribution.outcome import SAME_ORDER
from workbench.capture.structure import find_parts

BY_NAME = {candidate.name: candidate for candidate in CANDIDATES}
BF16 = torch.bfloat16


def added(name: str, outputs: list[float], gates: list[float], ids: list[int]) -> float:
    total = weigh_and_add(
        torch.tensor(outputs, dtype=BF16)[None, :, None],
        torch.tensor([gates]),
        torch.tensor([ids]),
        BY_NAME[name],
        BF16,
    )
    return float(total.item())


def test_rounding_each_contribution_loses_what_one_rounding_keeps() -> None:
    # 1 + 3 * 2**-9: each 2**-9 is lost against 1 on its own (bfloat16 steps by 2**-7 there), and
    # together, 1.00586, they round up to 1 + 2**-7.
    outputs, gates, ids = [1.0, 2.0**-9, 2.0**-9, 2.0**-9], [1.0] * 4, [0, 1, 2, 3]
    assert added("i-slot", outputs, gates, ids) == 1.0
    assert added("ii-slot", outputs, gates, ids) == 1 + 2.0**-7


def test_order_of_addition_decides_in_sixteen_bits() -> None:
    # By expert id the three small ones come first and survive as one: 1.5 * 2**-8, then 1 + 2**-7.
    outputs, gates, ids = [1.0, 2.0**-9, 2.0**-9, 2.0**-9], [1.0] * 4, [3, 0, 1, 2]
    assert added("i-slot", outputs, gates, ids) == 1.0
    assert added("i-expert", outputs, gates, ids) == 1 + 2.0**-7


def test_rounding_the_gate_first_moves_the_product() -> None:
    # 1 + 2**-8 is no bfloat16 and rounds to 1; times 1 + 2**-7 the product keeps a step otherwise.
    outputs, gates = [1 + 2.0**-7], [1 + 2.0**-8]
    assert added("i-slot", outputs, gates, [0]) == 1 + 2.0**-6
    assert added("iii-slot", outputs, gates, [0]) == 1 + 2.0**-7


def test_slot_outputs_are_each_experts_own_unweighted_output() -> None:
    layer = find_parts(make_model("qwen2_moe")).layers[0]
    assert layer.experts is not None
    hidden = torch.randn(5, 32)
    ids = torch.tensor([[0, 3, 1]] * 5)
    with torch.no_grad():
        outputs = slot_outputs(layer.experts, hidden, ids)
        whole = layer.experts(hidden, ids, torch.full((5, 3), 0.5))
    assert outputs.shape == (5, 3, 32)
    assert torch.allclose(outputs.sum(1) * 0.5, whole, rtol=0, atol=32 * 2.0**-24)


def with_experts(family: str, implementation: str) -> torch.nn.Module:
    model = make_model(family).to(BF16)
    model.set_experts_implementation(implementation)
    found: torch.nn.Module = model
    return found


@pytest.mark.parametrize(
    ("family", "eager", "grouped"),
    [("mixtral", "i", "ii"), ("qwen2_moe", "i", "iv"), ("glm4_moe", "i", "ii")],
)
def test_each_sides_order_is_named_bit_for_bit(
    family: str, eager: str, grouped: str, tmp_path: Path
) -> None:
    model = with_experts(family, "grouped_mm")
    a = recorded(with_experts(family, "eager"), tmp_path / "a")
    b = recorded(model, tmp_path / "b")
    comparison = attributed(a, b, model, tmp_path / "c")
    found = comparison.summary["attribution"]["combine"]
    assert set(found["candidates"]) == {"i", "ii", "iii"}
    for side, name in (("a", eager), ("b", grouped)):
        assert found[side]["elements"] == 1.0
        assert name in {
            way.partition("-")[0] for way in (found[side]["candidate"], *found[side]["same_as"])
        }
    assert found["sentence"] == SAME_ORDER
    assert beyond(comparison) == []


def test_one_order_on_both_sides_needs_no_sentence(tmp_path: Path) -> None:
    model = with_experts("mixtral", "grouped_mm")
    a = recorded(with_experts("mixtral", "batched_mm"), tmp_path / "a")
    b = recorded(model, tmp_path / "b")
    found = attributed(a, b, model, tmp_path / "c").summary["attribution"]["combine"]
    assert found["sentence"] is None
