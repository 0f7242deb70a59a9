"""Taking A's values inside B's forward: nothing else changes, and each site means what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.attribution.recorded import Fault, padded, recorded
from tests.capture.models import make_model, random_ids
from workbench.attribution.intercept import Spot, intercept, unreachable
from workbench.attribution.rollout_rows import Held, find_sequences
from workbench.attribution.substitute import (
    Plan,
    all_places,
    check_plan,
    merge,
    merge_choices,
    merge_gates,
    replay,
    rollout_source,
    rounds,
    substitute,
    token_logprobs,
)
from workbench.capture.structure import find_parts
from workbench.comparison.result import Comparison
from workbench.comparison.run import compare
from workbench.errors import UsageError
from workbench.names import LAYER_SITES, MODEL_SITES

FAMILIES = ("qwen3_moe", "mixtral", "qwen2_moe", "glm4_moe", "granitemoe", "lfm2_moe", "afmoe")


def held(values: Any, *mask: bool) -> Held:
    tensor = torch.tensor(values)
    return Held(tensor, torch.tensor(mask or (True,) * len(tensor)))


def other_pair(family: str, tmp_path: Path) -> tuple[Any, Comparison]:
    """B's model, and a comparison whose side A is a model of other weights."""
    model = make_model(family)
    a = recorded(make_model(family, seed=5), tmp_path / "a", alone=False)
    b = recorded(model, tmp_path / "b", alone=False)
    return model, compare(a, b, out=tmp_path / "c")


class Nothing:
    def visit(self, spot: Spot) -> None:
        del spot


@pytest.mark.parametrize("family", [*FAMILIES, "gpt_oss", "llama4_text", "gemma4_text"])
def test_a_visitor_that_gives_nothing_changes_no_bit(family: str) -> None:
    model = make_model(family)
    batch = padded(random_ids(9, 14))
    with torch.no_grad():
        before = model(**batch).logits
        with intercept(find_parts(model), Nothing()):
            inside = model(**batch).logits
        after = model(**batch).logits
    assert torch.equal(before, inside)
    assert torch.equal(before, after)


def test_nothing_is_left_on_the_model() -> None:
    model = make_model("qwen2_moe")
    with pytest.raises(ZeroDivisionError), intercept(find_parts(model), Nothing()):
        raise ZeroDivisionError
    assert not any("forward" in vars(m) for m in model.modules())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


@pytest.mark.parametrize("family", FAMILIES)
def test_every_place_from_a_gives_a(family: str, tmp_path: Path) -> None:
    model, comparison = other_pair(family, tmp_path)
    parts = find_parts(model)
    source = rollout_source(comparison)
    plan = Plan(places=all_places(parts, source, (*LAYER_SITES, *MODEL_SITES)))
    check_plan(parts, plan, source)
    for batch in find_sequences(comparison).batches():
        source.use(batch)
        with substitute(parts, plan, source) as report:
            logits = replay(parts, batch)
        wanted = source.values(None, "logits")
        assert wanted is not None
        places = wanted.mask_N
        assert torch.equal(logits.reshape(-1, logits.shape[-1])[places], wanted.values_NX[places])
        assert set(report.replaced) == plan.places


@pytest.mark.parametrize("family", FAMILIES)
def test_the_last_stream_from_a_gives_as_logits(family: str, tmp_path: Path) -> None:
    """What follows a substituted site is B's own; here only the norm and the head are left."""
    model = make_model(family)
    layer = len(find_parts(model).layers) - 1
    a = recorded(model, tmp_path / "a", fault=Fault(0, "attn_out", lambda x: x * 1.5), alone=False)
    b = recorded(model, tmp_path / "b", alone=False)
    comparison = compare(a, b, out=tmp_path / "c")
    source = rollout_source(comparison)
    (batch,) = find_sequences(comparison).batches()
    source.use(batch)
    with substitute(find_parts(model), Plan.of((layer, "output")), source):
        logits = replay(find_parts(model), batch)
    wanted = source.values(None, "logits")
    assert wanted is not None
    got = logits.reshape(-1, logits.shape[-1])[wanted.mask_N]
    assert torch.allclose(got, wanted.values_NX[wanted.mask_N], rtol=2.0**-18, atol=1e-5)


class Seen:
    """Keeps what passes at some sites, after the substitution."""

    def __init__(self) -> None:
        self.spots: dict[tuple[int | None, str], Spot] = {}

    def visit(self, spot: Spot) -> None:
        self.spots[spot.layer, spot.site] = spot


@pytest.mark.parametrize("family", ["qwen3_moe", "mixtral", "qwen2_moe", "glm4_moe", "lfm2_moe"])
def test_ids_alone_come_with_gate_weights_that_b_computes_for_them(
    family: str, tmp_path: Path
) -> None:
    model, comparison = other_pair(family, tmp_path)
    parts = find_parts(model)
    layer = next(p.index for p in parts.layers if p.experts is not None)
    source = rollout_source(comparison)
    (batch,) = find_sequences(comparison).batches()
    source.use(batch)
    seen = Seen()
    with substitute(parts, Plan.of((layer, "topk_ids")), source), intercept(parts, seen):
        replay(parts, batch)
    ids = source.values(layer, "topk_ids")
    assert ids is not None
    weights = seen.spots[layer, "topk_weights"]
    assert weights.beside is not None
    here = ids.mask_N
    assert torch.equal(weights.beside[here].int(), ids.values_NX[here])
    # B's own rule on B's own scores, written out: what the weights of these experts must be.
    scores = seen.spots[layer, "router_logits"].tensor.float()
    sigmoid = family in ("glm4_moe", "lfm2_moe")
    rule = scores.sigmoid() if sigmoid else scores.softmax(-1)
    picked = rule.gather(1, weights.beside.long())
    ratio = (weights.tensor / picked)[here]
    spread = (ratio.amax(-1) / ratio.amin(-1) - 1).max()
    assert spread < 2.0**-18


def test_group_limited_selection_gives_the_unmasked_weights_of_as_experts(tmp_path: Path) -> None:
    model, comparison = other_pair("glm4_moe", tmp_path)
    source = rollout_source(comparison)
    (batch,) = find_sequences(comparison).batches()
    source.use(batch)
    seen = Seen()
    parts = find_parts(model)
    with substitute(parts, Plan.of((1, "topk_ids")), source), intercept(parts, seen):
        replay(parts, batch)
    assert bool((seen.spots[1, "topk_weights"].tensor > 0).all())


def test_router_logits_from_a_let_b_choose_as_a(tmp_path: Path) -> None:
    model, comparison = other_pair("mixtral", tmp_path)
    parts = find_parts(model)
    source = rollout_source(comparison)
    (batch,) = find_sequences(comparison).batches()
    source.use(batch)
    seen = Seen()
    with substitute(parts, Plan.of((0, "router_logits")), source), intercept(parts, seen):
        replay(parts, batch)
    ids, weights = source.values(0, "topk_ids"), source.values(0, "topk_weights")
    assert ids is not None
    assert weights is not None
    spot = seen.spots[0, "topk_weights"]
    assert spot.beside is not None
    assert torch.equal(spot.beside[ids.mask_N].int(), ids.values_NX[ids.mask_N])
    assert torch.equal(spot.tensor[ids.mask_N], weights.values_NX[ids.mask_N])


def test_rows_that_a_lacks_keep_bs_bits() -> None:
    own = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    merged = merge(own, held([[9.0, 9.0], [0.0, 0.0]], True, False))
    assert merged.tolist() == [[[9.0, 9.0], [3.0, 4.0]]]


def test_a_narrower_vocabulary_leaves_bs_padding_and_a_wider_one_is_cut() -> None:
    assert merge(torch.zeros(1, 3), held([[1.0, 2.0]])).tolist() == [[1.0, 2.0, 0.0]]
    assert merge(torch.zeros(1, 1), held([[1.0, 2.0]])).tolist() == [[1.0]]


def test_bs_slot_order_keeps_common_experts_where_b_has_them() -> None:
    own = torch.tensor([[4, 1, 7], [0, 1, 2]])
    a = held([[7, 5, 4], [2, 1, 0]])
    assert merge_choices(own, a, slot_order="b").tolist() == [[4, 5, 7], [0, 1, 2]]
    assert merge_choices(own, a).tolist() == [[7, 5, 4], [2, 1, 0]]


def test_gate_weights_go_to_their_expert_whatever_its_slot() -> None:
    own, ids = torch.tensor([[0.6, 0.4]]), torch.tensor([[3, 5]])
    found = merge_gates(own, ids, held([[5, 8]]), held([[0.25, 0.75]]))
    assert found.tolist() == [[pytest.approx(0.6), 0.25]]


def test_a_cast_that_rounds_is_told_from_one_that_does_not() -> None:
    assert rounds(torch.tensor([1 + 2.0**-8]), torch.bfloat16)
    assert not rounds(torch.tensor([1 + 2.0**-7]), torch.bfloat16)
    assert not rounds(torch.tensor([1, 2]), torch.bfloat16)


def test_logprobs_are_those_of_the_next_token(tmp_path: Path) -> None:
    model, comparison = other_pair("mixtral", tmp_path)
    (batch,) = find_sequences(comparison).batches()
    found = token_logprobs(replay(find_parts(model), batch), batch)
    wanted = torch.tensor(comparison.rows["logprob_b"].fill_null(float("nan")).to_list())
    rows = torch.from_numpy(batch.rows_BS)
    there = rows >= 0
    assert torch.allclose(found[there], wanted[rows[there]], rtol=0, atol=1e-5, equal_nan=True)


def test_a_place_that_the_model_does_not_show_is_refused(tmp_path: Path) -> None:
    model, comparison = other_pair("qwen3_moe", tmp_path)
    source = rollout_source(comparison)
    with pytest.raises(UsageError, match="dense layer"):
        check_plan(find_parts(model), Plan.of((1, "topk_ids")), source)
    with pytest.raises(UsageError, match="unknown site 'topk'"):
        Plan.of((0, "topk"))


def test_experts_that_take_no_choices_cannot_be_routed_by_a() -> None:
    hidden = unreachable(find_parts(make_model("llama4_text")))
    assert "not called with choices" in hidden[0, "topk_ids"]
