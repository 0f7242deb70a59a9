from tests.view.attributed import attributed
from tests.view.synthetic import make_source
from workbench.view.experiments import experiments


def test_nothing_was_run() -> None:
    assert experiments(make_source()) is None
    assert experiments(attributed(make_source())) is None


def test_the_map_keeps_layers_components_and_what_matters() -> None:
    found = experiments(attributed(make_source(), swaps=True))
    assert found is not None
    assert found.map is not None
    assert found.map.layers == [0, 1, 2, 3]
    assert found.map.modules == ["attention", "routed_experts"]
    assert "router" in found.map.equal_modules
    assert found.map.ranked()[0][0] == (1, "routed_experts")
    assert found.map.share(1e-4) == 0.5


def test_shares_need_a_live_kl() -> None:
    source = attributed(make_source(), swaps=True)
    source.summary["swap_map"]["kl_before"] = 0.0
    found = experiments(source)
    assert found is not None
    assert found.map is not None
    assert found.map.share(1e-4) is None
    assert found.map.ranked() == []


def test_a_rung_that_cannot_be_climbed_keeps_its_reason() -> None:
    found = experiments(attributed(make_source(), swaps=True))
    assert found is not None
    assert [(r.name, r.kl, r.reason) for r in found.rungs][2] == (
        "same combine order",
        None,
        "no known order",
    )
    assert found.text == "L1 routed experts is the cause: KL 0.0002 before"
