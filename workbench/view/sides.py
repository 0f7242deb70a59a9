"""One side's own numbers as a grid: how close its choices are, how sure it is, what is not finite.

Nothing here compares A with B; it answers whether a place was delicate to begin with. Scales are
fixed, as those of the lenses are.

Axes: L layer, T row.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np
import polars as pl

from workbench.comparison.columns import LOCAL_SITES
from workbench.comparison.levels import numeric_levels
from workbench.view.local import Attribution
from workbench.view.palette import ABSENT, EQUAL, code_of_level
from workbench.view.source import Source
from workbench.view.state import LensId

OneSide = Literal["a", "b"]

MARGINS: Final = (1.0, 0.1, 0.01, 1e-3, 1e-4)
"""Gaps between the last selected and the first rejected score at which the level rises."""
SURPRISES: Final = (0.01, 0.1, 1.0, 3.0, 10.0)
"""Nats of -logp at which the level rises."""

_MARGIN_LEGEND: Final = (
    "margin 1 or more",
    "margin 0.1 to 1",
    "margin 0.01 to 0.1",
    "margin 0.001 to 0.01",
    "margin 0.0001 to 0.001",
    "margin below 0.0001, or a tie",
    "missing",
)
_SURPRISE_LEGEND: Final = (
    "-logp below 0.01 nats",
    "-logp 0.01 to 0.1",
    "-logp 0.1 to 1",
    "-logp 1 to 3",
    "-logp 3 to 10",
    "-logp 10 or more",
    "NaN or Inf",
)
_FINITE_LEGEND: Final = ("finite", *("–",) * 5, "NaN, Inf or missing")
_UNITS_LEGEND: Final = (
    "exact, every module",
    "within the arbiter's limit",
    "up to 10 × the limit",
    "up to 100 × the limit",
    "up to 1,000 × the limit",
    "beyond 1,000 × the limit",
    "NaN or Inf",
)


def side_legend(lens: LensId) -> tuple[str, ...]:
    """What each level means when one side is looked at through a lens."""
    if lens == "router":
        return _MARGIN_LEGEND
    if lens == "logprob":
        return _SURPRISE_LEGEND
    return _UNITS_LEGEND if lens in ("local", "inherited", "total") else _FINITE_LEGEND


def side_about(lens: LensId) -> str:
    """What one side's grid shows, in a few words."""
    if lens == "router":
        return "margin of the choice"
    if lens == "logprob":
        return "surprise at the token"
    if lens in ("local", "inherited", "total"):
        return "distance from the arbiter"
    return "NaN and Inf"


def side_codes(
    source: Source, lens: LensId, side: OneSide, found: Attribution | None
) -> np.ndarray:
    """The grid of one side through a lens, uint8 codes (L, T).

    Rows that the side did not compute are absent, and so is what it has no number for by design.
    """
    if lens == "logprob":
        return _surprise_codes(source, side)
    if lens in ("local", "inherited", "total"):
        return _unit_codes(source, side, found)
    idle_T = source.rows[f"state_{side}"].fill_null("").is_in(["cached", "sampled", ""]).to_numpy()
    name = f"topk.margin_{side}" if lens == "router" else f"{_SITES[lens]}.nonfinite_{side}"
    missing_LT = source.missing(name)
    if lens == "router":
        codes_LT = code_of_level(0) + _steps_down(source.column(name), MARGINS)
    else:
        codes_LT = np.where(source.column(name) > 0, code_of_level(6), EQUAL).astype(np.uint8)
    codes_LT[missing_LT] = code_of_level(6)
    absent_LT = missing_LT & idle_T[None, :]
    absent_LT |= missing_LT.all(axis=1, keepdims=True)
    codes_LT[absent_LT] = ABSENT
    return codes_LT


_SITES: Final[dict[LensId, str]] = {
    "gates": "topk_weights",
    "combined": "mlp_out",
    "residual": "output",
}


def _steps_down(values: np.ndarray, steps: tuple[float, ...]) -> np.ndarray:
    """How many of the falling `steps` a value lies below, uint8; NaN below none."""
    below = np.zeros(values.shape, np.uint8)
    for step in steps:
        below += values < step
    return below


def _surprise_codes(source: Source, side: OneSide) -> np.ndarray:
    column = source.rows[f"logprob_{side}"]
    surprise_T = -column.cast(pl.Float32).to_numpy()
    levels_T = np.zeros(len(surprise_T), np.uint8)
    for step in SURPRISES:
        levels_T += surprise_T >= step
    codes_T = levels_T + np.uint8(EQUAL)
    codes_T[~np.isfinite(surprise_T)] = code_of_level(6)
    codes_T[column.is_null().to_numpy()] = ABSENT
    return np.broadcast_to(codes_T, (source.num_layers, source.num_rows))


def _unit_codes(source: Source, side: OneSide, found: Attribution | None) -> np.ndarray:
    codes_LT = np.full((source.num_layers, source.num_rows), ABSENT, np.uint8)
    for module in LOCAL_SITES:
        name = f"{module}.units_{side}"
        if found is None or not source.has_column(name):
            continue
        units_LT = source.column(name)
        for layer in range(source.num_layers):
            verdict = found.modules.get((layer, module))
            if verdict is None or verdict.limit is None:
                continue
            codes_T = numeric_levels(units_LT[layer], verdict.limit) + np.uint8(EQUAL)
            codes_T[np.isnan(units_LT[layer])] = ABSENT
            np.maximum(codes_LT[layer], codes_T, out=codes_LT[layer])
    return codes_LT
