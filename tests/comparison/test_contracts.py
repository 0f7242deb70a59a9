"""Contracts: what differs by placement is converted, what differs by value is left to show."""

from __future__ import annotations

from typing import Any

from workbench.comparison.contracts import relate
from workbench.store import Manifest, ParameterSum


def side(**contracts: Any) -> Manifest:
    return Manifest(path="rollout", contracts=contracts)


def test_scaling_on_the_output_moves_into_the_gate_weights() -> None:
    on_output = side(routed_scaling=2.5, routed_scaling_at="output")
    in_weights = side(routed_scaling=2.5, routed_scaling_at="gate_weights")
    found = relate(on_output, in_weights)
    assert (found.gate_factor_a, found.gate_factor_b) == (2.5, 1.0)
    assert "A applies the routed scaling of 2.5" in found.converted[0]
    assert found.differences == {"routed_scaling_at": ("output", "gate_weights")}
    back = relate(in_weights, on_output)
    assert (back.gate_factor_a, back.gate_factor_b) == (1.0, 2.5)


def test_a_factor_of_another_size_is_not_a_contract() -> None:
    found = relate(
        side(routed_scaling=2.5, routed_scaling_at="output"),
        side(routed_scaling=1.5, routed_scaling_at="gate_weights"),
    )
    assert (found.gate_factor_a, found.gate_factor_b, found.converted) == (1.0, 1.0, ())
    assert found.differences["routed_scaling"] == (2.5, 1.5)


def test_a_factor_that_one_side_lacks_is_not_converted() -> None:
    found = relate(
        side(routed_scaling=2.5, routed_scaling_at="output"),
        side(routed_scaling=1.0, routed_scaling_at="none"),
    )
    assert found.converted == ()


def test_keys_that_one_side_does_not_name_are_no_difference() -> None:
    assert relate(side(scoring="sigmoid"), side()).differences == {}
    assert relate(side(scoring="sigmoid"), side()).scoring == "sigmoid"


def test_one_name_for_the_type_of_gate_weights() -> None:
    found = relate(side(topk_weights_dtype="float32"), side(gate_weight_dtype="bfloat16"))
    assert found.differences == {"gate_weight_dtype": ("float32", "bfloat16")}


def test_a_bias_is_declared_by_contract_or_by_weights() -> None:
    assert relate(side(selection_bias=True), side()).declared_bias
    weights = {"layers.0.router.selection_bias": ParameterSum(sum=1, numel=8, dtype="float32")}
    assert relate(Manifest(path="rollout", weights=weights), side()).declared_bias
    assert not relate(side(selection_bias=False), side()).declared_bias


def test_values_that_are_not_plain_are_ignored() -> None:
    nested = side(scoring={"deep": ["er"]}, routed_scaling="x", routed_scaling_at="output")
    found = relate(nested, side(routed_scaling=2.0, routed_scaling_at="gate_weights"))
    assert (found.scoring, found.gate_factor_a) == ("softmax", 1.0)
