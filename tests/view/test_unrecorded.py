"""Why a lens has nothing to show, in one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.captures import ROLLOUT, TRAINER, Side, make_pair
from workbench.comparison.run import compare
from workbench.view.headline import headline
from workbench.view.model import ViewModel
from workbench.view.unrecorded import unrecorded


def summary(directory: Path, a: Side = ROLLOUT, b: Side = TRAINER) -> dict[str, Any]:
    pair = make_pair(directory, a=a, b=b)
    return compare(pair.a, pair.b, out=directory / "comparison").summary


def test_a_recorded_site_is_not_missed(tmp_path: Path) -> None:
    found = summary(tmp_path)
    assert unrecorded(found, "mlp_out") == ""
    assert unrecorded(found, "") == ""


@pytest.mark.parametrize(
    ("site", "a", "b", "expected"),
    [
        ("mlp_out", (), ("mlp_out",), "mlp_out was not recorded on B (trainer); "),
        ("mlp_out", ("mlp_out",), (), "mlp_out was not recorded on A (rollout); "),
        ("logits", ("logits",), ("logits",), "logits was not recorded on either side; "),
    ],
)
def test_the_side_that_lacks_it_is_named(
    tmp_path: Path, site: str, a: tuple[str, ...], b: tuple[str, ...], expected: str
) -> None:
    found = summary(tmp_path, replace(ROLLOUT, omit=a), replace(TRAINER, omit=b))
    assert unrecorded(found, site).startswith(expected)


def test_the_flag_that_records_logits_is_named(tmp_path: Path) -> None:
    found = summary(
        tmp_path, replace(ROLLOUT, omit=("logits",)), replace(TRAINER, omit=("logits",))
    )
    assert "kldive capture … --logits" in unrecorded(found, "logits")


def test_the_reason_of_the_manifest_is_given(tmp_path: Path) -> None:
    missing = {"layers.0.mlp_out": "the block is fused"}
    side = replace(TRAINER, omit=("mlp_out",), changes={"missing": missing})
    assert ": the block is fused" in unrecorded(summary(tmp_path, b=side), "mlp_out")


def test_a_model_without_experts_has_no_router(tmp_path: Path) -> None:
    found = summary(tmp_path)
    found["a"]["model"]["layer_kinds"] = ["dense", "dense", "dense"]
    assert unrecorded(found, "topk_ids").startswith("no MoE layers: ")
    assert unrecorded(found, "mlp_out") == ""


def test_the_line_of_the_workbench_says_it(tmp_path: Path) -> None:
    pair = make_pair(tmp_path, b=replace(TRAINER, omit=("mlp_out",)))
    model = ViewModel(compare(pair.a, pair.b, out=tmp_path / "comparison"))
    model.choose_lens("combined")
    found = headline(model)
    assert found.tone == "warning"
    assert found.text.startswith("combined output: mlp_out was not recorded on B (trainer)")
    model.choose_lens("residual")
    assert "was not recorded" not in headline(model).text
