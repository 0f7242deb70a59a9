"""Faults: each shows first at its own site, changes nothing before it, and goes away again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import workbench
from tests.capture.models import make_model, random_ids
from workbench.errors import UsageError
from workbench.faults import FAULTS, Fault, can_inject, inject
from workbench.faults.kinds import COMBINE_ORDERS, Kind
from workbench.names import execution_order

FAMILIES = ("qwen3_moe", "mixtral", "qwen2_moe", "glm4_moe", "granitemoe", "llama4_text")
LAYER = 2
KINDS = [kind for kind, info in FAULTS.items() if info.is_fault]


def fault_of(kind: Kind, size: Any = "gross", layer: int = LAYER, expert: int = 0) -> Fault:
    place = layer if FAULTS[kind].per_layer else None
    return Fault(kind=kind, layer=place, size=size, expert=expert)


def recorded(model: Any, directory: Path) -> dict[str, np.ndarray]:
    with torch.no_grad(), workbench.record(model, directory, logits=True):
        for ids in random_ids(9, 5):
            model(input_ids=torch.tensor([ids]))
    capture = workbench.open_capture(directory)
    return {
        site: np.concatenate([array for _, array in capture.iterate(site)])
        for site in capture.sites
    }


def differing(clean: dict[str, np.ndarray], wrong: dict[str, np.ndarray]) -> list[str]:
    order = [site for site in execution_order(3) if site in clean]
    return [site for site in order if clean[site].tobytes() != wrong[site].tobytes()]


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_fault_shows_first_at_its_own_site(family: str, tmp_path: Path) -> None:
    model = make_model(family)
    clean = recorded(model, tmp_path / "clean")
    expert = int(np.bincount(clean[f"layers.{LAYER}.topk_ids"].ravel()).argmax())
    num_injected = 0
    for kind in KINDS:
        fault = fault_of(kind, expert=expert)
        if kind == "combine-order" or can_inject(model, fault):
            continue
        with inject(model, fault):
            wrong = recorded(model, tmp_path / kind)
        site = FAULTS[kind].site
        first = differing(clean, wrong)[0]
        expected = f"layers.{LAYER}.{site}" if FAULTS[kind].per_layer else site
        if kind == "combine" and f"layers.{LAYER}.shared_out" not in clean:
            # A block without shared experts gives the very tensor that its experts gave.
            expected = f"layers.{LAYER}.mlp_out"
        assert first == expected, kind
        num_injected += 1
    again = recorded(model, tmp_path / "again")
    assert not differing(clean, again)
    assert num_injected >= 8


def test_only_rows_of_the_one_expert_change(tmp_path: Path) -> None:
    model = make_model("mixtral")
    clean = recorded(model, tmp_path / "clean")
    fault = Fault(kind="one_expert", layer=LAYER, size="gross", expert=3)
    with inject(model, fault):
        wrong = recorded(model, tmp_path / "wrong")
    site = f"layers.{LAYER}.routed_out"
    changed_T = (clean[site] != wrong[site]).any(1)
    uses_T = (clean[f"layers.{LAYER}.topk_ids"] == 3).any(1)
    assert uses_T.any()
    assert not uses_T.all()
    np.testing.assert_array_equal(changed_T, uses_T)


def test_the_error_has_the_size_asked_for(tmp_path: Path) -> None:
    model = make_model("qwen3_moe")
    clean = recorded(model, tmp_path / "clean")
    for size, expected in (("2u", 2 * 2.0**-24), ("1e-2", 1e-2), ("gross", 0.5)):
        with inject(model, fault_of("attention", size)):
            wrong = recorded(model, tmp_path / size)
        a, b = (side[f"layers.{LAYER}.attn_out"].astype(np.float64) for side in (clean, wrong))
        relative = np.linalg.norm(b - a) / np.linalg.norm(a)
        # One rounding of 2**-24 on top.
        assert abs(relative - expected) < 2.0**-24


def test_near_ties_alone_change_below_a_small_gap(tmp_path: Path) -> None:
    model = make_model("mixtral")
    clean = recorded(model, tmp_path / "clean")
    with inject(model, fault_of("top_k", 0.3)):
        wrong = recorded(model, tmp_path / "wrong")
    logits_TE = clean[f"layers.{LAYER}.router_logits"].astype(np.float64)
    probabilities_TE = np.sort(np.exp(logits_TE - logits_TE.max(1, keepdims=True)), 1)
    second_T, third_T = probabilities_TE[:, -2], probabilities_TE[:, -3]
    near_T = (second_T - third_T) <= 0.3 * second_T
    site = f"layers.{LAYER}.topk_ids"
    assert near_T.any()
    assert not near_T.all()
    np.testing.assert_array_equal((clean[site] != wrong[site]).any(1), near_T)


@pytest.mark.parametrize("kind", ["batch-floor", "softmax-order"])
def test_non_faults_change_bits_by_rounding_alone(kind: Kind, tmp_path: Path) -> None:
    model = make_model("qwen3_moe")
    clean = recorded(model, tmp_path / "clean")
    with inject(model, fault_of(kind)):
        other = recorded(model, tmp_path / "other")
    assert differing(clean, other)
    gap = np.abs(clean["logits"].astype(np.float64) - other["logits"].astype(np.float64)).max()
    assert gap < 64 * 2.0**-24 * np.abs(clean["logits"]).max()


def test_three_orders_of_combining_differ_by_rounding(tmp_path: Path) -> None:
    model = make_model("qwen2_moe").bfloat16()
    sums = []
    for order in COMBINE_ORDERS:
        with inject(model, Fault(kind="combine-order", layer=LAYER, order=order)):
            arrays = recorded(model, tmp_path / order)
        sums.append(arrays[f"layers.{LAYER}.routed_out"].astype(np.float64))
    size = np.linalg.norm(sums[1])
    # float32 stands apart from both that add in bfloat16; none is far from another.
    assert all(np.linalg.norm(a - b) < 4 * 2.0**-8 * size for a in sums for b in sums)
    assert (sums[0] != sums[1]).any()
    assert (sums[2] != sums[1]).any()


def test_a_part_that_is_not_there_is_refused_with_the_reason() -> None:
    model = make_model("qwen3_moe")
    with (
        pytest.raises(UsageError, match="no shared expert"),
        inject(model, fault_of("shared_expert")),
    ):
        pass
    with pytest.raises(UsageError, match="dense layer"), inject(model, fault_of("top_k", layer=1)):
        pass
    with pytest.raises(UsageError, match="layer 9"), inject(model, fault_of("attention", layer=9)):
        pass


def test_names_and_sizes_are_checked() -> None:
    with pytest.raises(UsageError, match="did you mean attention"):
        Fault(kind="atention", layer=1)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="layer=None"):
        Fault(kind="lm_head", layer=1)
    with pytest.raises(UsageError, match="unknown size"):
        Fault(kind="attention", layer=1, size="huge")  # type: ignore[arg-type]


def test_the_model_is_clean_again_after_an_error() -> None:
    model = make_model("qwen3_moe")
    ids = torch.tensor(random_ids(6))
    with torch.no_grad():
        before = model(input_ids=ids).logits
        with pytest.raises(RuntimeError), inject(model, fault_of("router_logits")):
            raise RuntimeError
        assert torch.equal(model(input_ids=ids).logits, before)
    assert "forward" not in vars(model.model.layers[LAYER].mlp.gate)
