"""What fingerprints say, and what they do not."""

from __future__ import annotations

from workbench.comparison.weights import compare_weights
from workbench.store import Manifest, ParameterSum


def side(dtype: str = "bfloat16", **sums: int) -> Manifest:
    weights = {
        name.replace("__", "."): ParameterSum(sum=value, numel=4, dtype=dtype)
        for name, value in sums.items()
    }
    return Manifest(path="rollout", weights=weights)


def test_equal_sums_are_equal_weights() -> None:
    found = compare_weights(side(embed=1, layers__0__router=2), side(embed=1, layers__0__router=2))
    assert found.status == "equal"
    assert found.text == "all 2 groups have the same values"


def test_the_first_groups_that_differ_are_named_in_model_order() -> None:
    a = side(layers__10__router=1, layers__2__router=1, head=1)
    b = side(layers__10__router=2, layers__2__router=2, head=1)
    found = compare_weights(a, b)
    assert found.status == "different"
    assert found.different == ("layers.2.router", "layers.10.router")
    assert found.text == "2 of 3 groups differ: layers.2.router, layers.10.router"


def test_groups_named_otherwise_match_by_their_layers_total() -> None:
    a = side(embed=1, layers__0__attn__qkv=30)
    b = side(embed=1, layers__0__attn__q=10, layers__0__attn__k=20)
    assert compare_weights(a, b).status == "equal"


def test_totals_wrap_like_the_sums_do() -> None:
    a = side(embed=1, layers__0__x=1)
    b = side(embed=1, layers__0__y=2**64 - 1, layers__0__z=2)
    assert compare_weights(a, b).status == "equal"


def test_a_group_on_one_side_alone_leaves_it_unknown() -> None:
    found = compare_weights(side(embed=1, layers__0__x=5), side(embed=1))
    assert found.status == "unknown"
    assert found.only_a == ("layers.0.x",)
    assert "A alone has layers.0.x" in found.text


def test_leftovers_of_other_layers_do_not_match() -> None:
    a, b = side(embed=1, layers__0__x=5), side(embed=1, layers__1__y=5)
    assert compare_weights(a, b).status == "unknown"


def test_no_fingerprint_is_unknown_never_equal() -> None:
    assert compare_weights(side(), side()).status == "unknown"
    assert compare_weights(side(embed=1), side()).text == "no fingerprint was taken on B"


def test_the_same_values_in_other_types_are_equal() -> None:
    found = compare_weights(side(embed=1), side("float32", embed=1))
    assert found.status == "equal"
    assert found.text == (
        "all 1 groups have the same values, 1 stored as bfloat16 in A and float32 in B"
    )


def test_other_values_in_other_types_hint_at_rounding() -> None:
    found = compare_weights(side(embed=1), side("float32", embed=2))
    assert found.status == "different"
    assert found.text.endswith("so one may be the rounding of the other")
    assert "rounding" not in compare_weights(side(embed=1), side(embed=2)).text
