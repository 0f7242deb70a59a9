"""Recorded arrays against an independent recomputation with the model's own modules.

Axis legend: T row, E expert, K top-k slot, D hidden, V vocabulary.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.capture.models import FAMILIES, make_model, random_ids
from workbench.capture.trainer import record
from workbench.names import execution_order, layer_site
from workbench.store import Capture, open_capture

BLOCK_FAMILIES = [family for family in FAMILIES if family != "gemma4_text"]


def recorded(model: Any, directory: Path, *, logits: bool = True) -> tuple[Capture, Any]:
    input_ids = torch.tensor(random_ids(9, 9))
    with torch.no_grad(), record(model, directory, logits=logits):
        output = model(input_ids=input_ids, output_hidden_states=True)
    return open_capture(directory, verify=True), output


def site(capture: Capture, layer: int, name: str) -> torch.Tensor:
    (chunk,) = capture.chunks
    return torch.from_numpy(np.array(chunk.array(layer_site(layer, name))))


def top(capture: Capture, name: str) -> torch.Tensor:
    return torch.from_numpy(np.array(capture.chunks[0].array(name)))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_site_is_recorded_or_named_as_missing(family: str, tmp_path: Path) -> None:
    capture, _ = recorded(make_model(family), tmp_path / "c")
    assert capture.complete
    manifest = capture.manifest
    for name in execution_order(3):
        assert (name in manifest.sites) != (name in manifest.missing), name
    reasons = set(manifest.missing.values())
    expected = {"dense layer", "no shared expert"}
    if family == "gemma4_text":
        expected.add("router and experts stand in the layer itself")
    assert reasons <= expected


@pytest.mark.parametrize("family", FAMILIES)
def test_the_stream_is_the_models_own(family: str, tmp_path: Path) -> None:
    capture, output = recorded(make_model(family), tmp_path / "c")
    states = [state.reshape(-1, 32) for state in output.hidden_states]
    for layer in range(3):
        assert torch.equal(site(capture, layer, "input"), states[layer])
        if layer < 2:
            assert torch.equal(site(capture, layer, "output"), states[layer + 1])
    assert torch.equal(top(capture, "final_norm"), states[3])
    assert torch.equal(top(capture, "logits"), output.logits.reshape(18, -1))


@pytest.mark.parametrize("family", BLOCK_FAMILIES)
def test_the_block_is_the_sum_of_its_experts(family: str, tmp_path: Path) -> None:
    capture, _ = recorded(make_model(family), tmp_path / "c")
    for layer, kind in enumerate(capture.manifest.model.layer_kinds):
        if kind == "dense":
            continue
        total = site(capture, layer, "routed_out")
        if layer_site(layer, "shared_out") in capture.manifest.sites:
            total = total + site(capture, layer, "shared_out")
        assert torch.equal(site(capture, layer, "mlp_out"), total)


def test_every_site_of_a_softmax_layer(tmp_path: Path) -> None:
    model = make_model("qwen3_moe")
    capture, output = recorded(model, tmp_path / "c")
    layer = model.model.layers[2]
    with torch.no_grad():
        input_TD = output.hidden_states[2].reshape(-1, 32)
        assert torch.equal(site(capture, 2, "attn_in"), layer.input_layernorm(input_TD))
        middle_TD = input_TD + site(capture, 2, "attn_out")
        mlp_in_TD = layer.post_attention_layernorm(middle_TD)
        assert torch.equal(site(capture, 2, "mlp_in"), mlp_in_TD)
        logits_TE = functional.linear(mlp_in_TD, layer.mlp.gate.weight)
        assert torch.equal(site(capture, 2, "router_logits"), logits_TE)
        weights_TK, ids_TK = torch.softmax(logits_TE, -1).topk(2, -1)
        assert torch.equal(site(capture, 2, "topk_ids"), ids_TK.to(torch.int32))
        weights_TK = weights_TK / weights_TK.sum(-1, keepdim=True)
        assert torch.equal(site(capture, 2, "topk_weights"), weights_TK)
        routed_TD = by_hand(layer.mlp.experts, mlp_in_TD, ids_TK, weights_TK)
        torch.testing.assert_close(site(capture, 2, "routed_out"), routed_TD, rtol=0, atol=2**-20)
        output_TD = middle_TD + site(capture, 2, "mlp_out")
        assert torch.equal(site(capture, 2, "output"), output_TD)
        embedded = model.model.embed_tokens(torch.tensor(random_ids(9, 9))).reshape(-1, 32)
        assert torch.equal(top(capture, "embed"), embedded)


def by_hand(
    experts: Any, mlp_in_TD: torch.Tensor, ids_TK: torch.Tensor, weights_TK: torch.Tensor
) -> torch.Tensor:
    """One expert of one token at a time, in float64."""
    rows = []
    for row_D, ids_K, weights_K in zip(mlp_in_TD.double(), ids_TK, weights_TK, strict=True):
        total_D = torch.zeros_like(row_D)
        for expert, weight in zip(ids_K.tolist(), weights_K.double(), strict=True):
            gate, up = (experts.gate_up_proj[expert].double() @ row_D).chunk(2)
            inner = functional.silu(gate) * up
            total_D += weight * (experts.down_proj[expert].double() @ inner)
        rows.append(total_D)
    return torch.stack(rows).float()


def test_every_routing_site_of_a_sigmoid_layer_with_bias_groups_and_scaling(tmp_path: Path) -> None:
    model = make_model("glm4_moe")
    capture, _ = recorded(model, tmp_path / "c")
    gate = model.model.layers[1].mlp.gate
    logits_TE = site(capture, 1, "mlp_in") @ gate.weight.detach().T
    torch.testing.assert_close(site(capture, 1, "router_logits"), logits_TE, rtol=0, atol=2**-19)
    scores_TE = torch.sigmoid(site(capture, 1, "router_logits"))
    biased_TE = scores_TE + gate.e_score_correction_bias
    groups_TG = biased_TE.reshape(-1, 2, 4).topk(2, -1)[0].sum(-1)
    best_T1 = groups_TG.argmax(-1, keepdim=True)
    in_group_TE = (torch.arange(8) // 4)[None] == best_T1
    ids_TK = biased_TE.masked_fill(~in_group_TE, -torch.inf).topk(2, -1)[1]
    recorded_ids_TK = site(capture, 1, "topk_ids").long()
    assert torch.equal(recorded_ids_TK.sort(-1)[0], ids_TK.sort(-1)[0])
    picked_TK = scores_TE.gather(1, recorded_ids_TK)
    weights_TK = 2.5 * picked_TK / picked_TK.sum(-1, keepdim=True)
    torch.testing.assert_close(
        site(capture, 1, "topk_weights"), weights_TK, rtol=4 * 2**-24, atol=0
    )


def test_the_gated_shared_expert_is_recorded_after_its_gate(tmp_path: Path) -> None:
    model = make_model("qwen2_moe")
    capture, _ = recorded(model, tmp_path / "c")
    block = model.model.layers[0].mlp
    with torch.no_grad():
        mlp_in_TD = site(capture, 0, "mlp_in")
        expected = torch.sigmoid(block.shared_expert_gate(mlp_in_TD)) * block.shared_expert(
            mlp_in_TD
        )
    assert torch.equal(site(capture, 0, "shared_out"), expected)
    assert capture.manifest.sites["layers.0.shared_out"].derived


def test_a_site_that_is_written_to_later_keeps_what_the_module_gave(tmp_path: Path) -> None:
    # llama4 adds the routed output into the shared expert's tensor, in place.
    model = make_model("llama4_text")
    capture, _ = recorded(model, tmp_path / "c")
    with torch.no_grad():
        expected = model.model.layers[0].feed_forward.shared_expert(site(capture, 0, "mlp_in"))
    assert torch.equal(site(capture, 0, "shared_out"), expected)


def test_scores_come_raw_from_routers_that_return_something_else(tmp_path: Path) -> None:
    gemma = make_model("gemma4_text")  # returns probabilities
    capture, _ = recorded(gemma, tmp_path / "gemma")
    assert float(site(capture, 0, "router_logits").min()) < 0
    afmoe = make_model("afmoe").to(torch.bfloat16)  # returns its scores upcast
    capture, _ = recorded(afmoe, tmp_path / "afmoe")
    assert capture.manifest.sites["layers.1.router_logits"].dtype == "bfloat16"


def test_bfloat16_models_are_recorded_in_the_types_they_compute_in(tmp_path: Path) -> None:
    capture, _ = recorded(make_model("mixtral").to(torch.bfloat16), tmp_path / "c")
    dtypes = {name: info.dtype for name, info in capture.manifest.sites.items()}
    assert dtypes["layers.0.mlp_in"] == "bfloat16"
    assert dtypes["layers.0.router_logits"] == "bfloat16"
    assert dtypes["layers.0.topk_weights"] == "float32"
    assert dtypes["layers.0.topk_ids"] == "int32"
    assert capture.manifest.dtype == "bfloat16"
    assert capture.manifest.contracts["topk_weights_dtype"] == "float32"


def test_nan_is_recorded_as_nan(tmp_path: Path) -> None:
    model = make_model("qwen3_moe")
    with torch.no_grad():
        model.lm_head.weight[7, 0] = float("nan")
    capture, _ = recorded(model, tmp_path / "c")
    logits_TV = top(capture, "logits")
    assert bool(logits_TV[:, 7].isnan().all())
    scored = capture.tokens.filter(capture.tokens["position"] > 0)
    assert bool(scored["logprob"].is_nan().all())
    assert scored["logprob"].null_count() == 0
