"""Flips split into what the input did and what the gate did, and sorted by cause."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.attribution.recorded import Fault, attributed, recorded
from tests.capture.models import make_model
from workbench.attribution.flips import Flip, FlipTally, Kind, _explained, _One, margin_curve
from workbench.comparison.flips import RouterFacts

EXACT = RouterFacts(
    pair_norm=None, hidden_size=1, roundoff=2.0**-8, scoring="softmax", by_logits=True
)


def explained(
    a: list[float],
    b: list[float],
    on_a: list[float],
    *,
    a_chose: set[int],
    b_chose: set[int],
    again: set[int] | None,
) -> Flip:
    x, y = np.array([1.0, 0.0]), np.array([0.0, 0.0])
    return _explained(
        2,
        7,
        _One(a_chose, np.array(a), x),
        _One(b_chose, np.array(b), y),
        np.array(on_a),
        again,
        EXACT,
    )


def test_the_move_splits_exactly_into_input_and_gate() -> None:
    # Gap of experts 1 and 2: A 0.2, B -0.3, B's gate on A's input 0.2: the input moved it by 0.5.
    flip = explained(
        [1.0, 0.5, 0.3],
        [1.0, 0.2, 0.5],
        [1.0, 0.5, 0.3],
        a_chose={0, 1},
        b_chose={0, 2},
        again={0, 1},
    )
    assert flip.by_input == pytest.approx(0.5)
    assert flip.by_gate == pytest.approx(0.0)
    assert (flip.follows, flip.kind) == ("input", "explained")
    assert flip.margin_a == pytest.approx(0.2)
    assert flip.margin_b == pytest.approx(0.3)
    assert flip.input_moved == 1.0
    assert (flip.only_a, flip.only_b) == ((1,), (2,))


def test_a_gate_that_scores_otherwise_is_unexplained_and_followed() -> None:
    flip = explained(
        [1.0, 0.5, 0.3],
        [1.0, 0.2, 0.5],
        [1.0, 0.2, 0.5],
        a_chose={0, 1},
        b_chose={0, 2},
        again={0, 2},
    )
    assert flip.by_gate == pytest.approx(0.5)
    assert (flip.follows, flip.kind) == ("gate", "unexplained")


def test_rounding_of_the_gate_explains_a_flip_between_near_scores() -> None:
    # Scores near 1 round by 2**-8 each in bfloat16, four of them matter: 0.016.
    flip = explained(
        [1.0, 0.504, 0.500],
        [1.0, 0.500, 0.504],
        [1.0, 0.500, 0.504],
        a_chose={0, 1},
        b_chose={0, 2},
        again={0, 2},
    )
    assert (flip.follows, flip.kind) == ("gate", "explained")


def test_a_choice_against_as_own_scores_is_unexplained() -> None:
    flip = explained(
        [1.0, 0.1, 0.9],
        [1.0, 0.1, 0.9],
        [1.0, 0.1, 0.9],
        a_chose={0, 1},
        b_chose={0, 2},
        again={0, 2},
    )
    assert (flip.by_input, flip.by_gate) == (0.0, 0.0)
    assert flip.kind == "unexplained"


def test_equal_scores_at_the_cut_are_a_tie() -> None:
    flip = explained(
        [1.0, 0.5, 0.5],
        [1.0, 0.5, 0.5],
        [1.0, 0.5, 0.5],
        a_chose={0, 1},
        b_chose={0, 2},
        again={0, 2},
    )
    assert flip.kind == "tie"


def test_nobody_knows_without_the_routers_answer() -> None:
    flip = explained(
        [1.0, 0.5, 0.3],
        [1.0, 0.2, 0.5],
        [1.0, 0.5, 0.3],
        a_chose={0, 1},
        b_chose={0, 2},
        again=None,
    )
    assert flip.follows == "unknown"


def test_the_listed_flips_are_bounded_and_unexplained_ones_stay() -> None:
    tally = FlipTally()
    plain = explained(
        [1.0, 0.5, 0.3],
        [1.0, 0.2, 0.5],
        [1.0, 0.5, 0.3],
        a_chose={0, 1},
        b_chose={0, 2},
        again={0, 1},
    )
    for row in range(2000):
        kind: Kind = "unexplained" if row == 1999 else "explained"
        tally.add(plain._replace(row=row, kind=kind))
    assert len(tally.listed) <= 512
    tally._trim()
    assert tally.listed[0].row == 1999
    assert tally.count() == 2000
    assert tally.count(kind="unexplained") == 1


@pytest.mark.parametrize("family", ["qwen3_moe", "glm4_moe"])
def test_flips_of_an_upstream_fault_follow_the_input(family: str, tmp_path: Path) -> None:
    model = make_model(family)
    fault = Fault(1, "attn_out", lambda x: x * 1.3)
    a, b = recorded(model, tmp_path / "a", fault=fault), recorded(model, tmp_path / "b")
    comparison = attributed(a, b, model, tmp_path / "c")
    found = comparison.summary["attribution"]["flips"]
    assert found["flips"] == int((comparison.column("topk.num_flips") > 0).sum()) > 0
    assert found["follows"]["input"] == found["flips"]
    assert found["unexplained"] == 0


def test_flips_of_a_wrong_gate_follow_the_gate(tmp_path: Path) -> None:
    model = make_model("qwen3_moe")
    fault = Fault(2, "router_logits", lambda x: x + 0.5 * x.roll(1, -1))
    a, b = recorded(model, tmp_path / "a", fault=fault), recorded(model, tmp_path / "b")
    found = attributed(a, b, model, tmp_path / "c").summary["attribution"]["flips"]
    assert found["flips"] > 0
    assert found["follows"]["gate"] == found["flips"] == found["unexplained"]
    assert [line["layer"] for line in found["by_layer"]] == [2]


def test_the_curve_counts_every_row_once_and_every_flip_once(tmp_path: Path) -> None:
    model = make_model("mixtral").to(torch.bfloat16)
    other = make_model("mixtral").to(torch.bfloat16)
    other.set_attn_implementation("eager")
    a, b = recorded(other, tmp_path / "a"), recorded(model, tmp_path / "b")
    comparison = attributed(a, b, model, tmp_path / "c")
    curve = margin_curve(comparison)
    assert sum(bin_["rows"] for bin_ in curve) == comparison.num_layers * comparison.num_rows
    flips = comparison.summary["attribution"]["flips"]
    assert sum(bin_["flips"] for bin_ in curve) == flips["flips"] > 0
    near, far = curve[0], curve[-1]
    assert near["from"] == 0.0
    assert far["to"] is None
    assert far["flips"] == 0
