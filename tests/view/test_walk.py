"""From the embedding to the log-probability with one key, and back with the other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.captures import ROLLOUT, TRAINER, Toy, make_pair
from tests.view.synthetic import make_source
from workbench.address import parse_address
from workbench.comparison.result import Comparison
from workbench.comparison.run import compare
from workbench.names import LAYER_SITES, LOGPROBS
from workbench.view.cell_text import cell_text
from workbench.view.headline import headline
from workbench.view.model import ViewModel
from workbench.view.state import Cell

TOY = Toy(num_layers=2, hidden=32, lengths=(6, 5), prompt=2)
PER_LAYER = [site for site in LAYER_SITES if site != "shared_out"]


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """Two engines in bfloat16, one flip in the second layer."""
    directory: Path = tmp_path_factory.mktemp("walk")
    a = replace(ROLLOUT, dtype="bfloat16", rounding="often", ids=[(1, 3, 1, 7)])
    pair = make_pair(directory, toy=TOY, a=a, b=replace(TRAINER, dtype="bfloat16"))
    return compare(pair.a, pair.b, out=directory / "comparison")


def walk(model: ViewModel, key: str, most: int = 60) -> list[tuple[int, int, str]]:
    """Every place that the key leads to, until it leads nowhere."""
    seen: list[tuple[int, int, str]] = []
    for _ in range(most):
        before = model.state
        model.act(key)
        after = model.state
        if (after.cell, after.site) == (before.cell, before.site):
            return seen
        seen.append((after.layer, after.row, after.site))
    raise AssertionError("the walk does not end")


def test_the_walk_goes_through_every_recorded_site_in_order(comparison: Comparison) -> None:
    model = ViewModel(comparison, at=parse_address("L0 t2 embed"))
    assert model.state.site == "embed"
    places = walk(model, "site.next")
    layers = [(layer, 2, site) for layer in range(2) for site in PER_LAYER]
    assert places == [*layers, (1, 2, "final_norm"), (1, 2, "logits"), (1, 3, LOGPROBS)]
    assert "the end of this token's way" in model.state.message
    back = walk(model, "site.previous")
    assert back == [*reversed(places[:-1]), (0, 2, "embed")]
    assert "the start of this token's way" in model.state.message


def test_every_step_is_said_in_the_headline(comparison: Comparison) -> None:
    model = ViewModel(comparison, at=parse_address("L0 t3 embed"))
    said = []
    for _ in range(60):
        model.act("site.next")
        said.append(headline(model).text)
        if model.state.site == LOGPROBS:
            break
    titles = [line.partition(":")[0] for line in said]
    assert titles[:3] == ["L0 layer input", "L0 attention input", "L0 attention output"]
    assert titles[-3:-1] == ["final norm", "logits"]
    assert titles[-1].startswith("logprob of ")
    assert all(len(line) <= 78 for line in said)
    flip = next(line for line in said if line.startswith("L1 top-k"))
    assert "flip" in flip
    assert any(line.startswith("L1 combined output") and "other experts" in line for line in said)


def test_a_logprob_is_reached_from_the_row_that_scored_it(comparison: Comparison) -> None:
    model = ViewModel(comparison, at=parse_address("L1 t4 logprobs"))
    model.act("site.previous")
    assert (model.state.cell, model.state.site) == (Cell(1, 3), "logits")
    model.act("site.next")
    assert (model.state.cell, model.state.site) == (Cell(1, 4), LOGPROBS)


def test_the_last_token_of_a_request_scores_nothing(comparison: Comparison) -> None:
    model = ViewModel(comparison, at=parse_address("L1 t5 logits"))
    model.act("site.next")
    assert (model.state.cell, model.state.site) == (Cell(1, 5), "logits")
    assert "nothing is scored from here" in model.state.message


def test_the_first_token_of_a_request_was_not_scored(comparison: Comparison) -> None:
    model = ViewModel(comparison, at=parse_address("L1 t6 logprobs"))
    model.act("site.previous")
    assert (model.state.cell, model.state.site) == (Cell(1, 6), "logits")


def test_a_site_of_the_model_is_left_behind_with_its_layer(comparison: Comparison) -> None:
    model = ViewModel(comparison, at=parse_address("L1 t2 final_norm"))
    model.act("cursor.up")
    assert (model.state.layer, model.state.site) == (0, "output")
    model = ViewModel(comparison, at=parse_address("L0 t2 embed"))
    model.act("cursor.down")
    assert (model.state.layer, model.state.site) == (1, "input")
    model.act("cursor.left")
    assert model.state.site == "input"


def test_the_inspector_lists_the_sites_of_the_model_where_they_stand(
    comparison: Comparison,
) -> None:
    model = ViewModel(comparison, at=parse_address("L0 t2 embed"))
    facts = model.cell_facts()
    assert facts.sites[0].site == "embed"
    assert facts.sites[0].bit_equal
    assert facts.profile_site == "output"
    model.act("layer.last")
    names = [site.site for site in model.cell_facts().sites]
    assert names[-2:] == ["final_norm", "logits"]
    assert "embed" not in names
    expected = comparison.rows["final_norm.rel_l2"][2]
    assert model.cell_facts().sites[-2].rel_l2 == expected


def test_addresses_and_copied_text_know_the_sites_of_the_model(comparison: Comparison) -> None:
    model = ViewModel(comparison, at=parse_address("L1 t2 logits"))
    assert model.address() == "L1 t2 logits"
    assert "final_norm: max |A - B|" in cell_text(model)


def test_a_row_that_was_not_computed_says_so_at_every_step() -> None:
    source = make_source(num_rows=60)
    row = source.rows["state_a"].to_list().index("sampled")
    model = ViewModel(source, at=parse_address(f"L0 t{row} input"))
    model.act("site.next")
    assert "sampled last, never fed back" in model.state.message


def test_dense_layers_have_no_router_to_step_on() -> None:
    source = make_source(num_rows=20)
    source.summary["a"]["model"]["layer_kinds"] = ["moe", "dense", "moe", "moe"]
    model = ViewModel(source, at=parse_address("L1 t2 mlp_in"))
    model.act("site.next")
    assert model.state.site == "mlp_out"
    assert model.state.message.startswith("L1 MLP output: ")


def test_no_rows_no_steps() -> None:
    model = ViewModel(make_source(num_rows=0))
    model.act("site.next")
    assert model.state.cell == Cell(0, 0)
