"""Recording changes nothing: results and gradients stay the same to the bit, hooks go away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.capture.models import FAMILIES, make_model, random_ids
from workbench.capture.trainer import record
from workbench.store import open_capture


def hooks(model: Any) -> int:
    return sum(
        len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks)
        for m in model.modules()
    )


def padded_call() -> dict[str, torch.Tensor]:
    long, short = random_ids(9, 5)
    return {
        "input_ids": torch.tensor([long, [0] * 4 + short]),
        "attention_mask": torch.tensor([[1] * 9, [0] * 4 + [1] * 5]),
    }


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logits_are_the_same_to_the_bit(family: str, dtype: torch.dtype, tmp_path: Path) -> None:
    model = make_model(family).to(dtype)
    with torch.no_grad():
        before = model(**padded_call()).logits
        with record(model, tmp_path / "c"):
            during = model(**padded_call()).logits
        after = model(**padded_call()).logits
    assert torch.equal(before, during)
    assert torch.equal(before, after)


def gradients(model: Any) -> dict[str, torch.Tensor]:
    model.zero_grad()
    call = padded_call()
    loss = model(**call, labels=call["input_ids"], use_cache=False).loss
    loss.backward()
    return {
        name: parameter.grad.clone()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


@pytest.mark.parametrize("family", ["qwen3_moe", "qwen2_moe", "glm4_moe", "llama4_text"])
@pytest.mark.parametrize("checkpointing", [None, {"use_reentrant": False}, {"use_reentrant": True}])
def test_gradients_are_the_same_to_the_bit(
    family: str, checkpointing: dict[str, bool] | None, tmp_path: Path
) -> None:
    model = make_model(family).train()
    if checkpointing is not None:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=checkpointing)
        model.enable_input_require_grads()
    before = gradients(model)
    with record(model, tmp_path / "c"):
        during = gradients(model)
    assert before.keys() == during.keys()
    assert before
    assert all(torch.equal(before[name], during[name]) for name in before)
    capture = open_capture(tmp_path / "c")
    assert capture.complete
    assert capture.num_rows == 14


@pytest.mark.parametrize("reentrant", [False, True])
def test_layers_that_run_again_in_the_backward_pass_are_recorded_once(
    reentrant: bool, tmp_path: Path
) -> None:
    model = make_model("qwen3_moe").train()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    model.enable_input_require_grads()
    runs: list[int] = []
    model.model.layers[0].self_attn.register_forward_pre_hook(lambda *_: runs.append(1))
    with record(model, tmp_path / "c"):
        gradients(model)
    assert len(runs) == 2
    capture = open_capture(tmp_path / "c")
    assert capture.num_rows == 14
    assert capture.manifest.counts["forward_calls"] == 1
    assert capture.manifest.knobs["gradient_checkpointing"] is True
    assert capture.manifest.knobs["training"] is True


def test_parts_of_the_model_called_alone_are_not_recorded(tmp_path: Path) -> None:
    model = make_model("qwen3_moe")
    with torch.no_grad(), record(model, tmp_path / "c"):
        model.model(input_ids=torch.tensor(random_ids(5)))
        model(input_ids=torch.tensor(random_ids(7)))
        model.model.layers[0].mlp(torch.zeros(1, 3, 32))
    assert open_capture(tmp_path / "c").num_rows == 7


def test_forwards_outside_the_block_are_not_recorded(tmp_path: Path) -> None:
    model = make_model("qwen3_moe")
    with torch.no_grad():
        recorder = record(model, tmp_path / "c")
        model(input_ids=torch.tensor(random_ids(5)))
        with recorder:
            model(input_ids=torch.tensor(random_ids(7)))
        model(input_ids=torch.tensor(random_ids(5)))
    assert open_capture(tmp_path / "c").num_rows == 7


def test_hooks_are_gone_afterwards(tmp_path: Path) -> None:
    model = make_model("qwen2_moe")
    before = hooks(model)
    with torch.no_grad(), record(model, tmp_path / "c"):
        assert hooks(model) > before
        model(input_ids=torch.tensor(random_ids(5)))
    assert hooks(model) == before


def test_an_exception_removes_the_hooks_and_leaves_the_capture_incomplete(tmp_path: Path) -> None:
    model = make_model("qwen3_moe")
    before = hooks(model)

    def loop() -> None:
        with torch.no_grad(), record(model, tmp_path / "c"):
            model(input_ids=torch.tensor(random_ids(5)))
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        loop()
    assert hooks(model) == before
    capture = open_capture(tmp_path / "c")
    assert not capture.complete
    assert capture.num_rows == 5


def test_a_forward_that_fails_leaves_no_rows_and_the_next_one_is_recorded(tmp_path: Path) -> None:
    model = make_model("qwen3_moe")

    def fail(*_: Any) -> None:
        raise MemoryError

    handle = model.model.layers[2].mlp.register_forward_pre_hook(fail)
    with torch.no_grad(), record(model, tmp_path / "c"):
        with pytest.raises(MemoryError):
            model(input_ids=torch.tensor(random_ids(5)))
        handle.remove()
        model(input_ids=torch.tensor(random_ids(7)))
    capture = open_capture(tmp_path / "c")
    assert capture.complete
    assert capture.num_rows == 7
    assert capture.manifest.counts["aborted_calls"] == 1


def test_inference_mode_is_recorded_too(tmp_path: Path) -> None:
    model = make_model("qwen3_moe")
    with torch.inference_mode(), record(model, tmp_path / "c"):
        model(torch.tensor(random_ids(6)))
    assert open_capture(tmp_path / "c").num_rows == 6


def test_an_adapted_model_is_recorded_and_not_changed(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(target_modules=["q_proj"], r=2, init_lora_weights=False)
    model = peft.get_peft_model(make_model("qwen3_moe"), config).eval()
    with torch.no_grad():
        before = model(**padded_call()).logits
        with record(model, tmp_path / "c"):
            during = model(**padded_call()).logits
    assert torch.equal(before, during)
    weights = open_capture(tmp_path / "c").manifest.weights
    assert "layers.0.attn.qkv" in weights
    assert any("lora_A" in name for name in weights)
