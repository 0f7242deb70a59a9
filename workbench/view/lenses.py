"""Lenses: which metric of a comparison colours the grid, and what its levels mean in words.

A lens turns a comparison into a grid of codes, uint8 (L, T), on scales that are fixed by the
tolerance profile and never by what happens to be in view.

Axes: L layer, T row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from workbench.comparison.levels import numeric_levels, router_levels
from workbench.comparison.tolerance import Budgets
from workbench.view.local import Attribution, Number, attribution, error_codes
from workbench.view.palette import ABSENT, EQUAL
from workbench.view.source import Source
from workbench.view.state import LensId


@dataclass(frozen=True, slots=True, kw_only=True)
class Lens:
    """One way to colour the grid.

    Attributes:
        id: Stable name.
        key: The key that selects it; pressed again, the next lens of the same key.
        title: A few words.
        about: One sentence.
        site: The site it stands for, short name; empty when it stands for all of a layer.
        legend: What each level means, one entry per level.
        absent: What a cell without a level means.
    """

    id: LensId
    key: str
    title: str
    about: str
    site: str
    legend: tuple[str, ...]
    absent: str = "nothing to compare"


_NUMERIC_LEGEND: Final = (
    "equal bit for bit",
    "within the rounding budget",
    "up to 10 × budget",
    "up to 100 × budget",
    "up to 1,000 × budget",
    "beyond 1,000 × budget",
    "NaN, Inf or missing",
)
_ERROR_LEGEND: Final = (
    "equal bit for bit, every module",
    "within every module's budget",
    *_NUMERIC_LEGEND[2:6],
    "NaN or Inf",
)
_ERRORS: Final[tuple[tuple[Number, str], ...]] = (
    ("local", "What each module of A made of its input against B's module on that same input"),
    ("inherited", "What the difference of the inputs makes of B's own module"),
    ("total", "A against B as captured, module by module, in the modules' own budgets"),
)

LENSES: Final[dict[LensId, Lens]] = {
    lens.id: lens
    for lens in (
        Lens(
            id="router",
            key="1",
            title="router set",
            about="Which experts each side selected.",
            site="topk_ids",
            legend=(
                "same experts, same order",
                "same experts, other order",
                "same experts, other gate weights",
                "one expert differs",
                "two or more differ",
                "unexplained flip",
                "missing",
            ),
        ),
        Lens(
            id="gates",
            key="2",
            title="gate weights",
            about="Largest gate weight difference, experts matched by id.",
            site="topk_weights",
            legend=_NUMERIC_LEGEND,
        ),
        Lens(
            id="combined",
            key="3",
            title="combined output",
            about="Relative L2 difference of the whole MoE block's output (mlp_out).",
            site="mlp_out",
            legend=_NUMERIC_LEGEND,
        ),
        Lens(
            id="residual",
            key="4",
            title="residual",
            about="Relative L2 difference of the stream leaving the layer (output).",
            site="output",
            legend=_NUMERIC_LEGEND,
        ),
        Lens(
            id="logprob",
            key="5",
            title="logprob",
            about="Difference of the token's log-probability; the same for every layer.",
            site="output",
            legend=_NUMERIC_LEGEND,
        ),
        *(
            Lens(
                id=number,
                key="6",
                title=f"{number} error",
                about=f"{about}; the worst module of the layer.",
                site="",
                legend=_ERROR_LEGEND,
                absent="not attributable",
            )
            for number, about in _ERRORS
        ),
    )
}


def is_error_lens(lens: LensId) -> bool:
    """Whether a lens shows errors per module, which need the model."""
    return lens in ("local", "inherited", "total")


def lens_after(lens: LensId, current: LensId) -> LensId:
    """What the key of `lens` selects: the next lens of that key when one is already looked through.

    >>> lens_after("local", "router"), lens_after("local", "local"), lens_after("local", "total")
    ('local', 'inherited', 'local')
    """
    same = [found.id for found in LENSES.values() if found.key == LENSES[lens].key]
    return same[(same.index(current) + 1) % len(same)] if current in same else lens


def lens_of_site(site: str) -> LensId:
    """The lens that shows a site, or stands closest to it."""
    if site in ("router_logits", "topk_ids"):
        return "router"
    if site == "topk_weights":
        return "gates"
    if site in ("routed_out", "shared_out", "mlp_out"):
        return "combined"
    return "logprob" if site in ("logits", "logprobs") else "residual"


def lens_codes(
    source: Source, lens: LensId, found: Attribution | None = None, tolerance: str = ""
) -> np.ndarray:
    """The grid of a lens, uint8 codes (L, T).

    Absent is what by design has nothing to compare: a row that a side did not compute (cached, or
    sampled and never fed back), the router of a dense layer, a token that a side did not score.
    So is a lens whose site was not recorded at all. Anything else that is missing has level 6, as
    NaN and Inf do. Errors per module are absent wherever they were not attributed.

    Args:
        source: The comparison.
        lens: Which lens.
        found: Its attribution, where the caller has it.
        tolerance: Profile of the budgets; empty: the one that the comparison was made with.
    """
    budgets = source.budgets(tolerance or None)
    if lens in ("local", "inherited", "total"):
        found = found or attribution(source)
        if found is None:
            return np.full((source.num_layers, source.num_rows), ABSENT, np.uint8)
        return error_codes(source, found, lens)
    if lens == "logprob":
        return _logprob_codes(source, budgets)
    if not source.has_column(_PRESENCE[lens]):
        return np.full((source.num_layers, source.num_rows), ABSENT, np.uint8)
    levels_LT = (
        _router_levels(source, budgets) if lens == "router" else _site_levels(source, lens, budgets)
    )
    codes_LT = levels_LT + np.uint8(EQUAL)
    missing_LT = source.missing(_PRESENCE[lens])
    nothing_LT = missing_LT & _absent(source, lens)
    if nothing_LT.any():
        codes_LT[nothing_LT] = ABSENT
    return codes_LT


def missing_cells(source: Source, lens: LensId) -> int:
    """Cells that should have a number under a lens and have none: a layer, a rank, a row is lost.

    Not counted is what by design has nothing to compare, nor a site that was not recorded at all.
    """
    name = _PRESENCE.get(lens)
    if name is None or not source.has_column(name):
        return 0
    return int((source.missing(name) & ~_absent(source, lens)).sum())


_PRESENCE: Final[dict[LensId, str]] = {
    "router": "topk.set_equal",
    "gates": "topk_weights.rel_l2",
    "combined": "mlp_out.rel_l2",
    "residual": "output.rel_l2",
}
"""A column that has a value exactly where the lens has one."""


def _absent(source: Source, lens: LensId) -> np.ndarray:
    """Where nothing is to be expected, broadcastable to bool (L, T)."""
    states = [source.rows[name].fill_null("") for name in ("state_a", "state_b")]
    idle_T = np.logical_or(*((state.is_in(["cached", "sampled"])).to_numpy() for state in states))
    dense_L = np.zeros(source.num_layers, np.bool_)
    if lens in ("router", "gates"):
        kinds = layer_kinds(source)
        dense_L[: len(kinds)] = [kind == "dense" for kind in kinds]
    absent_LT: np.ndarray = idle_T[None, :] | dense_L[:, None]
    return absent_LT


def layer_kinds(source: Source) -> tuple[str, ...]:
    """`moe` or `dense` per layer, empty when the captures did not say."""
    kinds = source.summary["a"]["model"].get("layer_kinds") or ()
    return tuple(str(kind) for kind in kinds)[: source.num_layers]


def _router_levels(source: Source, budgets: Budgets) -> np.ndarray:
    set_equal_LT = source.column("topk.set_equal").astype(np.bool_, copy=False)
    explained_LT = source.column("topk.explained").astype(np.bool_, copy=False)
    return router_levels(
        missing=source.missing("topk.set_equal"),
        set_equal=set_equal_LT,
        order_equal=source.column("topk.order_equal").astype(np.bool_, copy=False),
        num_flips=source.column("topk.num_flips"),
        weights_beyond=_site_levels(source, "gates", budgets) > _WITHIN_BUDGET,
        unexplained=~(set_equal_LT | explained_LT | source.missing("topk.explained")),
    )


_WITHIN_BUDGET: Final = 1


def _site_levels(source: Source, lens: LensId, budgets: Budgets) -> np.ndarray:
    site = LENSES[lens].site
    # Gate weights come out of the router's scores and inherit their budget.
    budget_L = budgets.layer["router_logits" if lens == "gates" else site]
    bad_LT = (source.column(f"{site}.nonfinite_a") > 0) | (source.column(f"{site}.nonfinite_b") > 0)
    return numeric_levels(
        source.column(f"{site}.rel_l2"),
        budget_L[:, None],
        equal=source.column(f"{site}.bit_equal").astype(np.bool_, copy=False),
        bad=bad_LT,
    )


def _logprob_codes(source: Source, budgets: Budgets) -> np.ndarray:
    a_T, b_T = (source.rows[name].cast(pl.Float32).to_numpy() for name in _LOGPROBS)
    scored_T = np.logical_and(*(source.rows[name].is_not_null().to_numpy() for name in _LOGPROBS))
    with np.errstate(invalid="ignore"):
        error_T, tolerance_T = np.abs(a_T - b_T), budgets.logprob(a_T, b_T)
    levels_T = numeric_levels(error_T, tolerance_T, equal=a_T == b_T)
    codes_T = levels_T + np.uint8(EQUAL)
    codes_T[~scored_T] = ABSENT
    return np.broadcast_to(codes_T, (source.num_layers, source.num_rows))


_LOGPROBS: Final = ("logprob_a", "logprob_b")
