"""The vocabulary: site names, their order, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import names


@given(st.integers(0, 999_999), st.sampled_from(names.LAYER_SITES))
def test_a_layer_site_splits_into_what_made_it(layer: int, site: str) -> None:
    assert names.split_site(names.layer_site(layer, site)) == (layer, site)


@pytest.mark.parametrize("site", names.MODEL_SITES)
def test_a_model_site_has_no_layer(site: str) -> None:
    assert names.split_site(site) == (None, site)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "layers.1",
        "layers.01.input",
        "layers.-1.input",
        "layers.1.embed",
        "layers.1.output ",
        "layers.1234567.output",
        "../layers.1.output",
        "logprobs",
        "layers.１.output",
    ],
)
def test_what_is_not_a_site_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not a site"):
        names.split_site(name)


def test_execution_order_runs_from_embed_to_logits() -> None:
    order = names.execution_order(2)
    assert order[0] == "embed"
    assert order[-2:] == ["final_norm", "logits"]
    assert len(order) == 3 + 2 * len(names.LAYER_SITES)
    assert order.index("layers.0.mlp_in") < order.index("layers.0.router_logits")
    assert order.index("layers.0.output") < order.index("layers.1.input")


def test_every_site_is_listed_once_under_its_kind() -> None:
    assert set(names.LAYER_SITES) | set(names.MODEL_SITES) == set(names.SITE_BY_NAME)
    assert not set(names.LAYER_SITES) & set(names.MODEL_SITES)
    assert set(names.DEFAULT_CLASS_ORDER) == set(names.DIVERGENCE_CLASSES)
    assert set(names.ROUTER_SITES) <= set(names.LAYER_SITES)
    assert all(names.SITE_BY_NAME[s].axis == "hidden" for s in names.HIDDEN_LAYER_SITES)
