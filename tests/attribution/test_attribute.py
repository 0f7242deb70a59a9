"""A fault in one module of side A is placed at that layer and module, and clean pairs are clean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.attribution.recorded import (
    LENGTHS,
    Change,
    Fault,
    attributed,
    beyond,
    module,
    recorded,
)
from tests.capture.models import make_model
from workbench import faults as injected
from workbench.attribution.kinds import MODULES, rounding_budget
from workbench.attribution.publish import without_findings
from workbench.attribution.run import attribute
from workbench.capture.structure import find_parts
from workbench.comparison.columns import LOCAL_SITES
from workbench.comparison.result import Comparison, open_comparison
from workbench.comparison.run import compare
from workbench.comparison.tolerance import Precision, budgets
from workbench.errors import CaptureError, UsageError
from workbench.faults import inject
from workbench.report.text import show

FAMILIES = ("qwen3_moe", "mixtral", "qwen2_moe", "glm4_moe")
NUM_ROWS = sum(LENGTHS)


def larger(by: float) -> Change:
    return lambda tensor: tensor * (1 + by)


def swapped_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Every row gets the choices of the row before it."""
    return tensor.roll(1, dims=0)


def pushed(tensor: torch.Tensor) -> torch.Tensor:
    """Every score takes on one hundredth of its neighbour's."""
    return tensor + 0.01 * tensor.roll(1, dims=-1)


PLACES: list[tuple[str, str, Change]] = [
    ("input_norm", "attn_in", larger(0.01)),
    ("attention", "attn_out", larger(0.01)),
    ("post_attention_norm", "mlp_in", larger(0.01)),
    ("router", "router_logits", pushed),
    ("top_k", "topk_ids", swapped_rows),
    ("gate_weights", "topk_weights", larger(0.01)),
    ("routed_experts", "routed_out", larger(0.01)),
    ("combine", "mlp_out", larger(0.01)),
    ("residual_add", "output", larger(0.01)),
]


def faulty(model: Any, fault: Fault, tmp_path: Path) -> Comparison:
    a = recorded(model, tmp_path / "a", fault=fault)
    b = recorded(model, tmp_path / "b")
    return attributed(a, b, model, tmp_path / "c")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("name", "site", "change"), PLACES, ids=[p[0] for p in PLACES])
def test_a_fault_is_placed_at_its_layer_and_module(
    family: str, name: str, site: str, change: Change, tmp_path: Path
) -> None:
    comparison = faulty(make_model(family), Fault(2, site, change), tmp_path)
    assert beyond(comparison) == [(2, name)]
    first = comparison.summary["first"]["local_error"]
    assert (first["layer"], first["module"], first["site"]) == (2, name, site)
    assert first["who"] == module(comparison, 2, name)["who"] == "A"
    assert comparison.summary["attribution"]["arbiter"]["who"] == "A"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_clean_float32_pair_reports_nothing(family: str, tmp_path: Path) -> None:
    model = make_model(family)
    other = make_model(family)
    other.set_attn_implementation("eager")
    other.set_experts_implementation("eager")
    a = recorded(other, tmp_path / "a", alone=False)
    b = recorded(model, tmp_path / "b")
    comparison = attributed(a, b, model, tmp_path / "c")
    assert beyond(comparison) == []
    assert comparison.summary["first"]["local_error"] is None
    assert comparison.summary["attribution"]["arbiter"]["who"] == "neither"
    assert not comparison.class_mask("local_error").any()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_clean_bfloat16_pair_reports_nothing(family: str, tmp_path: Path) -> None:
    model = make_model(family).to(torch.bfloat16)
    other = make_model(family).to(torch.bfloat16)
    other.set_attn_implementation("eager")
    other.set_experts_implementation("eager")
    a = recorded(other, tmp_path / "a")
    b = recorded(model, tmp_path / "b", alone=False)
    comparison = attributed(a, b, model, tmp_path / "c")
    assert beyond(comparison) == []
    assert comparison.summary["attribution"]["flips"]["unexplained"] == 0


@pytest.mark.parametrize(
    ("layer", "name", "site"), [(1, "attention", "attn_out"), (2, "routed_experts", "routed_out")]
)
def test_a_factor_below_a_rows_budget_shows_over_the_rows(
    layer: int, name: str, site: str, tmp_path: Path
) -> None:
    """Two units of rounding hide in one row of bfloat16, and not in their mean."""
    model = make_model("qwen3_moe").to(torch.bfloat16)
    comparison = faulty(model, Fault(layer, site, larger(2.0**-7)), tmp_path)
    assert beyond(comparison) == [(layer, name)]
    found = module(comparison, layer, name)
    assert found["systematic"]
    assert found["bias_units_a"] == pytest.approx(2.0, abs=0.4)
    assert abs(found["bias_units_b"]) < 0.4


def test_the_trainer_is_named_when_the_trainer_is_wrong(tmp_path: Path) -> None:
    """The same fault on the live model: the arbiter is a copy without its hooks."""
    model = make_model("mixtral")
    a = recorded(model, tmp_path / "a")
    layer = find_parts(model).layers[1]
    assert layer.experts is not None
    handle = layer.experts.register_forward_hook(lambda _m, _args, output: output * 1.01)
    b = recorded(model, tmp_path / "b")
    comparison = attributed(a, b, model, tmp_path / "c")
    handle.remove()
    assert beyond(comparison) == [(1, "routed_experts")]
    assert module(comparison, 1, "routed_experts")["who"] == "B"


def test_other_weights_are_said_first_and_charged_to_their_module(tmp_path: Path) -> None:
    model, other = make_model("qwen3_moe"), make_model("qwen3_moe")
    with torch.no_grad():
        other.model.layers[0].post_attention_layernorm.weight[3] = 1.5
    a = recorded(other, tmp_path / "a")
    b = recorded(model, tmp_path / "b")
    comparison = attributed(a, b, model, tmp_path / "c")
    found = comparison.summary["attribution"]["model"]
    assert found["weights_a"]["status"] == "different"
    assert found["weights_b"]["status"] == "equal"
    assert beyond(comparison) == [(0, "post_attention_norm")]
    text = show(comparison)
    assert text.index("A's weights are not this model's") < text.index("arbiter")


def test_embeddings_final_norm_and_head_are_modules_of_the_model(tmp_path: Path) -> None:
    model = make_model("mixtral")
    for number, (name, site) in enumerate(
        [("embedding", "embed"), ("final_norm", "final_norm"), ("lm_head", "logits")]
    ):
        comparison = faulty(model, Fault(None, site, larger(0.01)), tmp_path / str(number))
        assert beyond(comparison) == [(None, name)]
        layer = 0 if name == "embedding" else comparison.num_layers - 1
        assert comparison.class_mask("local_error")[layer].all()
        assert not np.delete(comparison.class_mask("local_error"), layer, axis=0).any()
        assert comparison.sites_at("local_error", layer, 0) == [site]


def test_without_logits_the_head_is_judged_by_log_probabilities(tmp_path: Path) -> None:
    model = make_model("mixtral")
    other = make_model("mixtral")
    with torch.no_grad():
        other.lm_head.weight *= 1.05
    b = recorded(model, tmp_path / "b", logits=False)
    clean = attributed(recorded(model, tmp_path / "a0", logits=False), b, model, tmp_path / "c0")
    assert beyond(clean) == []
    assert module(clean, None, "lm_head")["rows"] == NUM_ROWS - len(LENGTHS)
    a = recorded(other, tmp_path / "a", logits=False)
    assert beyond(attributed(a, b, model, tmp_path / "c")) == [(None, "lm_head")]


def test_a_coarser_side_is_no_fault(tmp_path: Path) -> None:
    """bfloat16 against float32 is a difference of precision: each side is as good as its type."""
    rounded = make_model("mixtral").to(torch.bfloat16)
    exact = make_model("mixtral").to(torch.bfloat16).float()
    comparison = attributed(
        recorded(rounded, tmp_path / "a"), recorded(exact, tmp_path / "b"), exact, tmp_path / "c"
    )
    assert beyond(comparison) == []


def test_columns_hold_local_inherited_and_total(tmp_path: Path) -> None:
    comparison = faulty(make_model("mixtral"), Fault(1, "attn_out", larger(0.01)), tmp_path)
    local = comparison.column("attention.local")
    assert local.shape == (comparison.num_layers, NUM_ROWS)
    assert np.allclose(local[1], 0.01, rtol=1e-3)
    assert (local[0] < 1e-5).all()
    # Downstream, everything is inherited and nothing is local.
    assert (comparison.column("routed_experts.local")[2] < 1e-5).all()
    assert (comparison.column("routed_experts.inherited")[2] > 1e-4).all()
    assert (comparison.column("routed_experts.total")[2] > 1e-4).all()
    line = comparison.local(1, 5)
    assert line["attention.over"] is True
    assert float(line["attention.units_a"] or 0) > 1000
    assert line["lm_head.local"] is None
    assert "shared_expert" not in comparison.local_modules


def test_the_summary_reads_back_and_show_tells_it(tmp_path: Path) -> None:
    comparison = faulty(make_model("qwen2_moe"), Fault(1, "routed_out", larger(0.1)), tmp_path)
    again = open_comparison(comparison.directory)
    assert again.summary == comparison.summary
    details = json.loads((comparison.directory / "attribution.json").read_text())
    assert details["modules"] == comparison.summary["attribution"]["modules"]
    text = show(comparison)
    assert "A (rollout) is wrong" in text
    assert "L1 routed experts: 79 of 79 (100.0%) of its rows beyond" in text


def test_a_module_beyond_its_budget_ends_what_looked_equal(tmp_path: Path) -> None:
    """One expert in bfloat16, five percent off: total error hides it, local error does not."""
    model = make_model("qwen3_moe").to(torch.bfloat16)
    a, b = recorded(model, tmp_path / "a"), tmp_path / "b"
    with inject(model, injected.Fault(kind="one_expert", layer=2, expert=2, size=0.05)):
        recorded(model, b)
        measured = compare(a, b, out=tmp_path / "c")
        assert measured.summary["status"] == "equal"
        found = attribute(measured, model, swaps=False).summary
    assert found["first"]["local_error"]["layer"] == 2
    assert (found["status"], found["verdict"]) == ("diverged", "semantic")
    assert found["reason"] == (
        "layer 2 routed experts is beyond its rounding budget on equal inputs"
    )
    # Without the findings it is what `compare` said.
    assert without_findings(found) == measured.summary


def test_attributing_twice_and_comparing_again_replace_cleanly(tmp_path: Path) -> None:
    model = make_model("mixtral")
    a, b = recorded(model, tmp_path / "a"), recorded(model, tmp_path / "b")
    out = tmp_path / "c"
    once = attributed(a, b, model, out)
    twice = attribute(once, model, swaps=False)
    first, second = (dict(found.summary["attribution"]) for found in (once, twice))
    assert first.pop("seconds") > 0
    assert second.pop("seconds") > 0
    assert first == second
    fresh = compare(a, b, out=out)
    assert "attribution" not in fresh.summary
    assert not (out / "local.arrow").exists()
    assert not list(tmp_path.glob("**/.attribution-*"))


def test_a_failure_leaves_the_comparison_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model("mixtral")
    a, b = recorded(model, tmp_path / "a"), recorded(model, tmp_path / "b")
    comparison = compare(a, b, out=tmp_path / "c")
    before = (tmp_path / "c" / "comparison.json").read_bytes()

    def refuse(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(CaptureError, match="cannot write what was attributed"):
        attribute(comparison, model, swaps=False)
    assert (tmp_path / "c" / "comparison.json").read_bytes() == before
    assert sorted(p.name for p in (tmp_path / "c").iterdir()) == [
        "comparison.json",
        "layers.arrow",
        "rows.parquet",
    ]
    assert not any(m._forward_hooks for m in model.modules())


def test_another_model_is_refused(tmp_path: Path) -> None:
    model = make_model("mixtral")
    a, b = recorded(model, tmp_path / "a"), recorded(model, tmp_path / "b")
    comparison = compare(a, b, out=tmp_path / "c")
    with pytest.raises(UsageError, match="not the model of the captures"):
        attribute(comparison, make_model("mixtral", num_hidden_layers=2), swaps=False)
    with pytest.raises(UsageError, match="cannot load the model"):
        attribute(comparison, tmp_path / "none", swaps=False)


def test_the_arbiter_stops_at_its_rows_and_sees_the_worst_row_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workbench.attribution import mapping, rollout_rows, run

    monkeypatch.setattr(mapping, "ARBITER_ROWS", 1)
    monkeypatch.setattr(run, "token_budget", lambda _vocab: 31)

    def last_only(tensor: torch.Tensor) -> torch.Tensor:
        long = tensor.shape[-2] == 23
        return tensor * 1.01 if long else tensor

    comparison = faulty(make_model("mixtral"), Fault(1, "attn_out", last_only), tmp_path)
    assert rollout_rows.MAX_TOKENS > 31
    found = module(comparison, 1, "attention")
    assert comparison.summary["attribution"]["arbiter"]["rows"] < NUM_ROWS
    assert (found["over"], found["who"]) == (23, "A")
    assert beyond(comparison) == [(1, "attention")]


def test_module_names_are_those_of_the_file_format() -> None:
    assert {m.name: m.site for m in MODULES} == LOCAL_SITES


def test_a_modules_budget_is_the_comparisons_local_budget() -> None:
    precision = Precision(num_layers=2, hidden_size=64, top_k=4, dtype="bfloat16")
    wanted = budgets(precision).local
    for name, site in (("attention", "attn_out"), ("routed_experts", "routed_out")):
        one = next(m for m in MODULES if m.name == name)
        assert rounding_budget(one, 2.0**-8, hidden_size=64, top_k=4) == pytest.approx(wanted[site])
