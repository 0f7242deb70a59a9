"""The arbiter's copy: finer throughout, the same mathematics, free of hooks."""

from __future__ import annotations

import pytest
import torch

from tests.attribution.recorded import padded
from tests.capture.models import make_model, random_ids
from workbench.attribution import reference
from workbench.attribution.reference import Widened, make_reference
from workbench.capture.structure import find_parts

FAMILIES = ("qwen3_moe", "mixtral", "qwen2_moe", "glm4_moe", "gpt_oss", "lfm2_moe", "granitemoe")


@pytest.mark.parametrize("family", FAMILIES)
def test_the_copy_computes_the_same_in_float64_from_end_to_end(family: str) -> None:
    model = make_model(family)
    found = make_reference(find_parts(model))
    assert found is not None
    assert (found.dtype, found.note) == (torch.float64, "")
    batch = padded(random_ids(9, 12))
    with torch.no_grad():
        own = model(**batch).logits
        with found.mode():
            exact = found.parts.model(**batch).logits
        plain = found.parts.model(**batch).logits
    real = batch["attention_mask"].bool()
    assert exact.dtype == torch.float64
    error = (own[real].double() - exact[real]).norm() / exact[real].norm()
    # Float32 throughout three layers, 64 roundings on the way and inner products of up to 48.
    assert 0 < error < 256 * 2.0**-24
    # Without the mode its norms and softmax would round to float32 on the way.
    assert (plain[real] - exact[real]).abs().max() > 0


def test_narrow_casts_become_wide_ones() -> None:
    wide = torch.randn(3, dtype=torch.float64)
    with Widened(torch.float64):
        results = [
            wide.float(),
            wide.to(torch.float32),
            wide.to(dtype=torch.bfloat16),
            wide.type(torch.float32),
            torch.nn.functional.softmax(wide, dim=-1, dtype=torch.float),
            wide.type_as(torch.zeros(1, dtype=torch.float32)),
        ]
        ids = wide.long()
    assert all(result.dtype == torch.float64 for result in results)
    assert torch.equal(results[0], wide)
    assert ids.dtype == torch.int64


def test_hooks_stay_on_the_live_model() -> None:
    model = make_model("mixtral")
    model.lm_head.register_forward_hook(lambda _m, _args, output: output * 2)
    found = make_reference(find_parts(model))
    assert found is not None
    batch = padded(random_ids(5))
    with torch.no_grad():
        doubled = model(**batch).logits
        with found.mode():
            exact = found.parts.model(**batch).logits
    assert torch.allclose(exact * 2, doubled.double(), rtol=0, atol=1e-4)


def test_where_float64_does_not_fit_float32_is_used_and_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = make_model("mixtral").to(torch.bfloat16)
    num = sum(p.numel() for p in model.parameters())
    monkeypatch.setattr(reference, "free_memory", lambda: 12 * num)
    found = make_reference(find_parts(model))
    assert found is not None
    assert found.dtype == torch.float32
    assert "float64 does not fit" in found.note
    monkeypatch.setattr(reference, "free_memory", lambda: num)
    assert make_reference(find_parts(model)) is None


def test_a_float32_model_has_no_arbiter_but_a_finer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "free_memory", lambda: 1000)
    assert make_reference(find_parts(make_model("mixtral"))) is None
