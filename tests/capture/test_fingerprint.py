"""Axis legend: E expert, I inner, D hidden."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.capture.models import make_model
from workbench.capture import fingerprint as module
from workbench.capture.fingerprint import bit_sum, fingerprint
from workbench.capture.trainer.facts import weights_fingerprint
from workbench.errors import RecordingError

ONE = 0x3F800000
"""1.0 as a float32 bit pattern."""


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_the_sum_of_bit_patterns_by_hand() -> None:
    # 1.0 = 0x3F800000, -2.0 = 0xC0000000, 0.5 = 0x3F000000
    tensor = torch.tensor([1.0, -2.0, 0.5])
    assert bit_sum(tensor) == 0x3F800000 + 0xC0000000 + 0x3F000000


def test_the_sum_wraps_at_64_bits() -> None:
    # Integers count with their own value: 2**64 - 1 and 2 add up to 1.
    assert bit_sum(torch.tensor([-1, 2])) == 1


@given(st.lists(st.floats(width=32), max_size=40))
def test_it_is_the_sum_over_any_values_nan_and_infinity_included(values: list[float]) -> None:
    array = np.array(values, np.float32)
    expected = int(array.view(np.uint32).astype(object).sum()) % (1 << 64) if values else 0
    assert bit_sum(torch.from_numpy(array)) == expected


def test_bfloat16_and_the_same_values_in_float32_agree() -> None:
    values = random(37, 11).to(torch.bfloat16)
    values[0, :4] = torch.tensor([float("nan"), float("inf"), -0.0, 1e-40])
    assert bit_sum(values) == bit_sum(values.float())


@pytest.mark.parametrize("dtype", [torch.float16, torch.float8_e4m3fn, torch.float64])
def test_other_float_types_count_as_their_float32_values(dtype: torch.dtype) -> None:
    values = random(50).to(dtype)
    assert bit_sum(values) == bit_sum(values.to(torch.float32))


def test_order_transposition_and_views_do_not_matter() -> None:
    tensor = random(6, 8, 10)
    expected = bit_sum(tensor)
    assert bit_sum(tensor.transpose(1, 2)) == expected
    assert bit_sum(tensor.permute(2, 0, 1)) == expected
    assert bit_sum(tensor.flip(0)) == expected
    assert bit_sum(tensor[:, ::2]) + bit_sum(tensor[:, 1::2]) == expected


def test_blocks_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = random(13, 7).to(torch.bfloat16)
    expected = bit_sum(tensor)
    monkeypatch.setattr(module, "_BLOCK", 5)
    assert bit_sum(tensor) == expected


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int64])
def test_an_accelerator_sums_like_the_host(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensor = (1000 * random(401)).to(dtype)
    tensor[0] = 0
    on_host = fingerprint([("lm_head.weight", tensor)])
    monkeypatch.setattr(module, "_unsigned", module._unsigned_on_device)
    assert fingerprint([("lm_head.weight", tensor)]) == on_host


def test_an_empty_tensor_sums_to_zero() -> None:
    assert bit_sum(torch.empty(0, 4)) == 0


@given(st.integers(0, 31), st.integers(0, 11))
def test_one_flipped_bit_shows(bit: int, place: int) -> None:
    bits = random(12).view(torch.int32).numpy().copy()
    before = bit_sum(torch.from_numpy(bits).view(torch.float32))
    bits.view(np.uint32)[place] ^= np.uint32(1 << bit)
    assert bit_sum(torch.from_numpy(bits).view(torch.float32)) != before


def test_fused_stacked_transposed_and_padded_engines_have_one_fingerprint() -> None:
    q, k, v = random(8, 4, seed=1), random(4, 4, seed=2), random(4, 4, seed=3)
    gate_EID, up_EID, down_EDI = random(2, 6, 4, seed=4), random(2, 6, 4, seed=5), random(2, 4, 6)
    separate = [
        ("model.layers.0.self_attn.q_proj.weight", q),
        ("model.layers.0.self_attn.k_proj.weight", k),
        ("model.layers.0.self_attn.v_proj.weight", v),
    ]
    for expert in range(2):
        prefix = f"model.layers.0.mlp.experts.{expert}"
        separate += [
            (f"{prefix}.gate_proj.weight", gate_EID[expert]),
            (f"{prefix}.up_proj.weight", up_EID[expert]),
            (f"{prefix}.down_proj.weight", down_EDI[expert]),
        ]
    w13_EID = torch.cat([gate_EID, up_EID], 1)
    padded_EDI = torch.nn.functional.pad(down_EDI, (0, 2))
    fused = [
        ("model.layers.0.self_attn.qkv_proj.weight", torch.cat([q, k, v])),
        ("model.layers.0.mlp.experts.routed_experts.w13_weight", w13_EID.transpose(1, 2)),
        ("model.layers.0.mlp.experts.routed_experts.w2_weight", padded_EDI),
    ]
    assert fingerprint(separate) == fingerprint(fused)
    assert len(fingerprint(fused)) == 3


def test_values_are_counted_without_padding() -> None:
    found = fingerprint([("lm_head.weight", torch.tensor([1.0, 0.0, 1.0, -0.0]))])
    assert found["head"].numel == 3
    assert found["head"].sum == 2 * ONE + 0x80000000


def test_mixed_types_are_named() -> None:
    found = fingerprint(
        [
            ("model.layers.0.self_attn.q_proj.weight", torch.ones(2, dtype=torch.bfloat16)),
            ("model.layers.0.self_attn.k_proj.weight", torch.ones(2)),
        ]
    )
    assert found["layers.0.attn.qkv"].dtype == "bfloat16+float32"


def test_a_tied_head_is_the_same_with_and_without_its_own_parameter() -> None:
    weight = random(10, 4)
    alone = fingerprint([("model.embed_tokens.weight", weight)])
    twice = fingerprint([("model.embed_tokens.weight", weight), ("lm_head.weight", weight.clone())])
    assert alone == twice
    assert "head" in fingerprint(
        [("model.embed_tokens.weight", weight), ("lm_head.weight", weight + 1)]
    )


def test_weights_without_data_are_an_error() -> None:
    with pytest.raises(RecordingError, match="fingerprint"):
        bit_sum(torch.empty(2, device="meta"))


def test_a_live_model_has_one_fingerprint_in_float32_and_bfloat16_of_the_same_values() -> None:
    low = make_model("qwen3_moe").to(torch.bfloat16)
    in_low = weights_fingerprint(low)
    in_high = weights_fingerprint(low.float())
    assert {n: (p.sum, p.numel) for n, p in in_low.items()} == {
        n: (p.sum, p.numel) for n, p in in_high.items()
    }
    assert in_low["embed"].dtype == np.dtype(ml_dtypes.bfloat16).name
    assert in_high["embed"].dtype == "float32"


def test_float32_weights_that_bfloat16_rounds_have_another_fingerprint() -> None:
    model = make_model("qwen3_moe")
    exact = weights_fingerprint(model)
    rounded = weights_fingerprint(model.to(torch.bfloat16))
    assert exact["layers.0.experts.down"].sum != rounded["layers.0.experts.down"].sum


def test_selection_biases_belong_to_the_fingerprint() -> None:
    model = make_model("glm4_moe")
    before = weights_fingerprint(model)
    model.model.layers[1].mlp.gate.e_score_correction_bias[0] += 1.0
    after = weights_fingerprint(model)
    assert [name for name in before if before[name] != after[name]] == [
        "layers.1.router.selection_bias"
    ]
    assert not [name for name in before if "inv_freq" in name]
