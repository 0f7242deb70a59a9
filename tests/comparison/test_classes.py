"""Classes of divergence as masks, what excuses a cell, and where an error enters."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import polars as pl
import pytest

from workbench.comparison import classes
from workbench.comparison.excuses import excuses, previous_row
from workbench.comparison.jump import find_jump
from workbench.comparison.tolerance import Budgets, Precision, budgets
from workbench.names import DivergenceClass

L, T = 4, 12
BUDGETS = budgets(Precision(num_layers=L, hidden_size=64, top_k=2, dtype="bfloat16"))


@dataclass
class Tables:
    """Two tables in memory: everything within budget until a test says otherwise."""

    num_layers: int = L
    num_rows: int = T
    columns: dict[str, np.ndarray] = field(default_factory=dict)
    nulls: dict[str, np.ndarray] = field(default_factory=dict)
    rows: pl.DataFrame = field(default_factory=pl.DataFrame)

    def has_column(self, name: str) -> bool:
        return name in self.columns

    def column(self, name: str) -> np.ndarray:
        return self.columns[name]

    def missing(self, name: str) -> np.ndarray:
        return self.nulls.get(name, np.zeros((self.num_layers, self.num_rows), np.bool_))


SITES = (
    "input",
    "attn_in",
    "attn_out",
    "mlp_in",
    "router_logits",
    "routed_out",
    "mlp_out",
    "output",
)


@pytest.fixture
def tables() -> Tables:
    found = Tables()
    for site in SITES:
        found.columns[f"{site}.rel_l2"] = np.full((L, T), 1e-3, np.float32)
        found.columns[f"{site}.scale"] = np.ones((L, T), np.float32)
        found.columns[f"{site}.bit_equal"] = np.ones((L, T), np.bool_)
    found.columns["topk.set_equal"] = np.ones((L, T), np.bool_)
    found.columns["topk.explained"] = np.zeros((L, T), np.bool_)
    found.nulls["topk.explained"] = np.ones((L, T), np.bool_)
    found.rows = pl.DataFrame(
        {
            "request": ["x"] * 6 + ["y"] * 6,
            "position": [*range(6), *range(6)],
            "logprob_a": pl.Series([-1.0] * T, dtype=pl.Float32),
            "logprob_b": pl.Series([-1.0] * T, dtype=pl.Float32),
        }
    )
    return found


def flip(tables: Tables, layer: int, row: int, *, explained: bool | None) -> None:
    tables.columns["topk.set_equal"][layer, row] = False
    tables.nulls["topk.explained"][layer, row] = explained is None
    tables.columns["topk.explained"][layer, row] = bool(explained)


def mask(tables: Tables, klass: DivergenceClass, found: Budgets = BUDGETS) -> list[tuple[int, int]]:
    excused = excuses(tables, found)
    cells = np.argwhere(classes.class_mask(tables, klass, found, excused))
    return [(int(layer), int(row)) for layer, row in cells]


def test_nothing_differs_and_nothing_is_marked(tables: Tables) -> None:
    for klass in ("bit", "rounding", "flip", "unexplained_flip", "local_error", "logprob"):
        assert mask(tables, klass) == []


def test_a_bit_anywhere_marks_its_cell_and_missing_does_not(tables: Tables) -> None:
    tables.columns["attn_out.bit_equal"][2, 3] = False
    tables.columns["mlp_in.bit_equal"][1, 1] = False
    tables.nulls["mlp_in.bit_equal"] = np.zeros((L, T), np.bool_)
    tables.nulls["mlp_in.bit_equal"][1, 1] = True
    assert mask(tables, "bit") == [(2, 3)]


def test_another_set_is_a_bit_difference(tables: Tables) -> None:
    flip(tables, 1, 1, explained=True)
    assert mask(tables, "bit") == [(1, 1)]
    assert mask(tables, "flip") == [(1, 1)]


def test_only_unexplained_flips_are_unexplained(tables: Tables) -> None:
    flip(tables, 0, 1, explained=True)
    flip(tables, 1, 2, explained=None)
    flip(tables, 2, 3, explained=False)
    assert mask(tables, "flip") == [(0, 1), (1, 2), (2, 3)]
    assert mask(tables, "unexplained_flip") == [(2, 3)]


def test_above_budget_marks_and_nan_does_not(tables: Tables) -> None:
    tables.columns["output.rel_l2"][1, 4] = BUDGETS.layer["output"][1] * 1.01
    tables.columns["output.rel_l2"][2, 4] = BUDGETS.layer["output"][2] * 0.99
    tables.columns["output.rel_l2"][3, 4] = np.nan
    tables.columns["output.rel_l2"][3, 5] = np.inf
    assert mask(tables, "rounding") == [(1, 4), (3, 5)]


def test_an_explained_flip_excuses_the_rest_of_its_row(tables: Tables) -> None:
    flip(tables, 1, 2, explained=True)
    for layer in range(L):
        for site in ("attn_in", "mlp_out"):
            tables.columns[f"{site}.rel_l2"][layer, 2] = 9
    # Layer 0 is before it, and so is the attention of its own layer.
    assert mask(tables, "rounding") == [(0, 2), (1, 2)]
    excused = excuses(tables, BUDGETS)
    assert classes.sites_of_cell(tables, "rounding", BUDGETS, excused, layer=1, row=2) == [
        "attn_in"
    ]


def test_an_unexplained_flip_excuses_nothing(tables: Tables) -> None:
    flip(tables, 1, 2, explained=False)
    tables.columns["mlp_out.rel_l2"][2, 2] = 9
    assert mask(tables, "rounding") == [(2, 2)]


def test_a_flip_whose_own_input_is_beyond_budget_excuses_nothing(tables: Tables) -> None:
    flip(tables, 1, 2, explained=True)
    tables.columns["mlp_in.rel_l2"][1, 2] = 9
    tables.columns["mlp_out.rel_l2"][2, 2] = 9
    assert mask(tables, "rounding") == [(1, 2), (2, 2)]


def test_attention_carries_an_excuse_to_later_rows_where_it_shows(tables: Tables) -> None:
    flip(tables, 1, 2, explained=True)
    tables.columns["attn_out.rel_l2"][2, 4] = BUDGETS.layer["attn_out"][2] * 0.6
    for row in (1, 3, 4, 7):
        tables.columns["mlp_out.rel_l2"][3, row] = 9
    # Row 1 is earlier, row 3 shows nothing in attention, row 7 is of another request.
    assert mask(tables, "rounding") == [(3, 1), (3, 3), (3, 7)]


def test_attention_carries_only_to_later_layers(tables: Tables) -> None:
    flip(tables, 1, 2, explained=True)
    tables.columns["attn_out.rel_l2"][1, 4] = 9
    assert mask(tables, "rounding") == [(1, 4)]


def test_an_excused_row_passes_its_excuse_on(tables: Tables) -> None:
    flip(tables, 0, 2, explained=True)
    tables.columns["attn_out.rel_l2"][1, 3] = 9
    tables.columns["mlp_in.rel_l2"][1, 3] = 9
    flip(tables, 1, 3, explained=True)
    tables.columns["output.rel_l2"][3, 3] = 9
    assert mask(tables, "rounding") == []


def test_a_logprob_is_excused_by_the_row_that_scored_it(tables: Tables) -> None:
    flip(tables, 3, 2, explained=True)
    gap = [-1.0, -1.0, -9.0, -9.0] + [-1.0] * 8
    tables.rows = tables.rows.with_columns(pl.Series("logprob_b", gap, dtype=pl.Float32))
    # Row 3 is scored by row 2, which flipped; row 2 by row 1, which did not.
    assert mask(tables, "logprob") == [(L - 1, 2)]


def test_a_logprob_that_is_nan_on_one_side_is_beyond(tables: Tables) -> None:
    b = [-1.0, float("nan"), *[-1.0] * 10]
    tables.rows = tables.rows.with_columns(pl.Series("logprob_b", b, dtype=pl.Float32))
    assert mask(tables, "logprob") == [(L - 1, 1)]


def test_rows_without_a_logprob_are_never_beyond(tables: Tables) -> None:
    b = pl.Series("logprob_b", [None] * T, dtype=pl.Float32)
    tables.rows = tables.rows.with_columns(b)
    assert mask(tables, "logprob") == []


def test_model_sites_count_to_the_first_and_last_layer(tables: Tables) -> None:
    error = pl.Series([1.0] + [0.0] * 11, dtype=pl.Float32)
    equal = pl.Series([False] + [True] * 11)
    tables.rows = tables.rows.with_columns(
        *(error.alias(f"{s}.rel_l2") for s in ("embed", "logits")),
        *(equal.alias(f"{s}.bit_equal") for s in ("embed", "logits")),
        *(error.alias(f"{s}.scale") for s in ("embed", "logits")),
    )
    assert mask(tables, "rounding") == mask(tables, "bit") == [(0, 0), (L - 1, 0)]
    excused = excuses(tables, BUDGETS)

    def sites(layer: int) -> list[str]:
        return classes.sites_of_cell(tables, "bit", BUDGETS, excused, layer=layer, row=0)

    assert sites(0) == ["embed"]
    assert sites(L - 1) == ["logits"]


def test_sites_of_a_cell_are_in_execution_order(tables: Tables) -> None:
    for site in ("output", "mlp_in", "attn_out"):
        tables.columns[f"{site}.bit_equal"][1, 1] = False
    flip(tables, 1, 1, explained=True)
    excused = excuses(tables, BUDGETS)
    found = classes.sites_of_cell(tables, "bit", BUDGETS, excused, layer=1, row=1)
    assert found == ["attn_out", "mlp_in", "topk_ids", "output"]


def test_previous_rows_stay_within_a_request_and_skip_no_position() -> None:
    rows = pl.DataFrame({"request": ["x", "x", "x", "y", "y"], "position": [0, 1, 3, 0, 1]})
    assert previous_row(rows).tolist() == [-1, 0, -1, -1, 3]


def jump_at(tables: Tables) -> tuple[int | None, str, str] | None:
    found = find_jump(tables, BUDGETS, excuses(tables, BUDGETS))
    return None if found is None else (found.layer, found.site, found.rule)


def test_a_clean_pair_has_no_jump(tables: Tables) -> None:
    assert jump_at(tables) is None


def test_the_first_site_that_adds_more_than_its_inputs_carry(tables: Tables) -> None:
    for layer in range(2, L):
        for site in SITES if layer > 2 else ("attn_out", "mlp_in", "router_logits", "output"):
            tables.columns[f"{site}.rel_l2"][layer] = 1.0
    assert jump_at(tables) == (2, "attn_out", "error")


def test_error_that_only_flipped_rows_have_is_no_jump(tables: Tables) -> None:
    for row in range(0, T, 3):
        flip(tables, 1, row, explained=True)
        for site in ("routed_out", "mlp_out", "output"):
            tables.columns[f"{site}.rel_l2"][1:, row] = 2.0
    assert jump_at(tables) is None


def test_error_that_grows_step_by_step_is_no_jump(tables: Tables) -> None:
    error = 0.012
    for layer in range(L):
        for site in SITES:
            tables.columns[f"{site}.rel_l2"][layer] = error
            error *= 1.4 if site != "input" else 1
    assert jump_at(tables) is None


def scaled(tables: Tables, layer: int | slice, site: str, factor: float) -> None:
    tables.columns[f"{site}.scale"][layer] = factor
    tables.columns[f"{site}.rel_l2"][layer] = abs(factor - 1)


def test_a_common_factor_in_one_layer_is_found_below_the_budget(tables: Tables) -> None:
    scaled(tables, 1, "routed_out", 0.98)
    assert BUDGETS.layer["routed_out"][1] > 0.02
    assert jump_at(tables) == (1, "routed_out", "gain")


def test_what_truncation_does_in_every_layer_is_no_finding(tables: Tables) -> None:
    scaled(tables, slice(None), "routed_out", 1 - 1.5 * 2.0**-8)
    assert jump_at(tables) is None


def test_a_factor_in_every_layer_beyond_truncation_is(tables: Tables) -> None:
    scaled(tables, slice(None), "routed_out", 0.97)
    assert jump_at(tables) == (0, "routed_out", "gain")


def test_independent_errors_shrink_the_fit_and_not_the_gain(tables: Tables) -> None:
    # Both sides carry errors of relative size r: the best-fit scalar is 1 / (1 + r^2), the gain 1.
    r = 0.1
    tables.columns["mlp_out.rel_l2"][3] = np.sqrt(2) * r / np.sqrt(1 + r**2)
    tables.columns["mlp_out.scale"][3] = 1 / (1 + r**2)
    assert BUDGETS.layer["mlp_out"][3] > 0.145
    assert jump_at(tables) is None
    # The same fit without those errors is a factor.
    tables.columns["mlp_out.rel_l2"][3] = 1 - 1 / (1 + r**2)
    assert jump_at(tables) == (3, "mlp_out", "gain")


def test_a_site_that_was_not_recorded_hands_on_what_it_was_given(tables: Tables) -> None:
    for site in ("attn_out", "mlp_in", "router_logits", "routed_out", "mlp_out", "output"):
        tables.columns[f"{site}.rel_l2"][1] = 1.0
    for site in SITES:
        tables.columns[f"{site}.rel_l2"][2:] = 1.0
    del tables.columns["attn_out.rel_l2"]
    assert jump_at(tables) == (1, "mlp_in", "error")
