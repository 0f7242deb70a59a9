from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.captures import ROLLOUT, TRAINER, make_pair
from workbench.comparison.result import Comparison, open_comparison
from workbench.comparison.run import compare
from workbench.errors import CaptureError, UsageError
from workbench.widgets import expert_frames

LAYER, ROW = 1, 5


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """B runs in another order and other chunks, lacks two rows, and selects another expert once."""
    directory = tmp_path_factory.mktemp("experts")
    b = replace(
        TRAINER,
        dtype="bfloat16",
        rounding="often",
        order=(2, 0, 1),
        chunk_rows=7,
        cached=(1, 2),
        ids=((LAYER, ROW, 1, _unused(directory)),),
    )
    pair = make_pair(directory, a=replace(ROLLOUT, dtype="bfloat16", chunk_rows=10), b=b)
    return compare(pair.a, pair.b, out=directory / "comparison")


def _unused(directory: Path) -> int:
    """An expert that the row does not select by itself."""
    pair = make_pair(directory / "before", a=ROLLOUT, b=TRAINER)
    plain = compare(pair.a, pair.b, out=directory / "before" / "comparison")
    ids = plain.cell(LAYER, ROW, "topk_ids").a
    assert ids is not None
    return next(expert for expert in range(8) if expert not in ids)


def by_hand(comparison: Comparison) -> list[tuple[int, int, float | None, float | None]]:
    """(layer, expert, weight on A, weight on B) of every selection, cell by cell."""
    found = []
    for layer in range(comparison.num_layers):
        for row in range(comparison.num_rows):
            ids, weights = (comparison.cell(layer, row, s) for s in ("topk_ids", "topk_weights"))
            if ids.a is None or ids.b is None or weights.a is None or weights.b is None:
                continue
            a = dict(zip(ids.a.tolist(), weights.a.astype(float).tolist(), strict=True))
            b = dict(zip(ids.b.tolist(), weights.b.astype(float).tolist(), strict=True))
            found += [(layer, expert, a.get(expert), b.get(expert)) for expert in {*a, *b}]
    return found


def test_gate_weights_are_matched_by_expert(comparison: Comparison) -> None:
    found = expert_frames.gate_weights(comparison, num_bins=10)
    expected: dict[tuple[str, int | None, int | None], int] = {}
    for _, _, a, b in by_hand(comparison):
        where = "only B" if a is None else "only A" if b is None else "both"
        bins = tuple(None if w is None else min(int(w * 10), 9) for w in (a, b))
        key = (where, bins[0], bins[1])
        expected[key] = expected.get(key, 0) + 1
    measured = {
        (where, _bin(a), _bin(b)): pairs
        for where, a, b, pairs in found.frame.select("where", "a_from", "b_from", "pairs").rows()
    }
    assert measured == expected
    assert any(where == "only A" for where, _, _ in measured)
    assert found.compared == found.expected == len(by_hand(comparison))


def _bin(edge: float | None) -> int | None:
    return None if edge is None else round(edge * 10)


def test_loads_count_selections_of_rows_that_both_computed(comparison: Comparison) -> None:
    by_layer = expert_frames.loads(comparison)
    assert sorted(by_layer) == [0, 1, 2]
    for layer, load in by_layer.items():
        mine = [entry for entry in by_hand(comparison) if entry[0] == layer]
        for side, load_E in ((2, load.a_E), (3, load.b_E)):
            chosen = [entry[1] for entry in mine if entry[side] is not None]
            assert load_E.tolist() == np.bincount(chosen, minlength=8).tolist()
        assert load.rows == 34


def test_the_default_layer_is_where_load_moved_most(comparison: Comparison) -> None:
    found = expert_frames.expert_load(comparison)
    moved = {layer: load.moved for layer, load in expert_frames.loads(comparison).items()}
    assert found.frame["layer"].unique().to_list() == [max(moved, key=lambda at: moved[at])]
    assert (found.compared, found.expected) == (34, 36)


def test_moved_load_is_half_the_sum_of_the_differences() -> None:
    load = expert_frames.Load(4, np.array([3, 1, 0]), np.array([1, 1, 2]))
    assert load.moved == 0.5
    assert expert_frames.Load(0, np.zeros(3, int), np.zeros(3, int)).moved == 0.0


def test_a_weight_that_is_no_number_is_expected_and_not_compared(tmp_path: Path) -> None:
    spoilt = ("layers.0.topk_weights", 3, 0, float("nan"))
    pair = make_pair(tmp_path, a=replace(ROLLOUT, values=(spoilt,)))
    found = expert_frames.gate_weights(compare(pair.a, pair.b, out=tmp_path / "c"))
    assert found.expected == found.compared + 1


def test_weights_above_one_widen_the_axis(tmp_path: Path) -> None:
    large = ("layers.0.topk_weights", 3, 0, 2.5)
    pair = make_pair(tmp_path, a=replace(ROLLOUT, values=(large,)))
    frame = expert_frames.gate_weights(compare(pair.a, pair.b, out=tmp_path / "c")).frame
    assert frame["a_to"].max() == 2.5


@pytest.mark.parametrize("site", ["topk_ids", "topk_weights"])
def test_a_side_without_the_router_is_refused(tmp_path: Path, site: str) -> None:
    pair = make_pair(tmp_path, b=replace(TRAINER, omit=(site,)))
    comparison = compare(pair.a, pair.b, out=tmp_path / "c")
    with pytest.raises(UsageError, match="not recorded on both sides"):
        expert_frames.gate_weights(comparison)


def test_a_layer_that_is_not_there_is_refused(comparison: Comparison) -> None:
    with pytest.raises(UsageError, match="no router of layer 9"):
        expert_frames.expert_load(comparison, 9)


def test_a_capture_that_moved_is_said(tmp_path: Path) -> None:
    pair = make_pair(tmp_path / "captures")
    compare(pair.a, pair.b, out=tmp_path / "c")
    (tmp_path / "captures" / "a").rename(tmp_path / "elsewhere")
    with pytest.raises(CaptureError, match="is not where it was compared"):
        expert_frames.gate_weights(open_comparison(tmp_path / "c"))
