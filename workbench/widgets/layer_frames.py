"""Aggregates of the layer table: errors of sites and modules by layer, flips by margin.

Missing cells (NaN in the tables) enter no number; Inf does, and makes the largest Inf.

Axis legend: L layer, T row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl

from workbench.comparison.columns import LOCAL_SITES, NUMERIC_SITES
from workbench.errors import UsageError, did_you_mean
from workbench.view.local import attribution
from workbench.view.source import Source
from workbench.widgets.frames import MAX_LINES, Aggregate, one_sided

NUMBERS: Final = ("local", "inherited", "total")
"""Kinds of error of a module, as `local.arrow` has them."""

BINS_PER_DECADE: Final = 2
"""Of the margin of a routing decision."""
_DECADES: Final = (-6, 3)

_SUMMARY: Final = {"median": pl.Float64, "p95": pl.Float64, "max": pl.Float64, "budget": pl.Float64}


def layer_profile(source: Source, sites: Sequence[str] = ("mlp_in", "output")) -> Aggregate:
    """Total error ‖A-B‖/‖B‖ by layer at some sites, with the rounding budget.

    Columns: `site`, `layer`, `expected`, `rows`, `median`, `p95`, `max`, `budget`.

    Raises:
        UsageError: A site has no rounding budget, or the lines would be more than 5,000.
    """
    for site in sites:
        if site not in NUMERIC_SITES:
            raise UsageError(f"no error by layer at {site!r}", do=did_you_mean(site, NUMERIC_SITES))
    _check_lines(len(sites) * source.num_layers)
    budgets = source.budgets()
    lines = []
    for site in sites:
        error_LT = source.column(f"{site}.rel_l2")
        for layer, error_T in enumerate(error_LT):
            bound = float(budgets.layer[site][layer])
            head = {"site": site, "layer": layer, "expected": source.num_rows}
            lines.append({**head, **_quantiles(error_T), "budget": bound})
    return Aggregate(
        frame=_framed(lines),
        compared=_covered(source, [f"{site}.rel_l2" for site in sites], together=True),
        expected=source.num_rows + one_sided(source),
        unit="rows",
        over="rows that both sides computed",
    )


def local_errors(source: Source, modules: Sequence[str] = ()) -> Aggregate:
    """Local, inherited and total error by layer and module, with the local budget.

    Local: A against B's module on A's own input. Inherited: what the difference of the inputs makes
    of B's module. Total: A against B as captured. Columns: `module`, `layer`, `number`, `expected`,
    `rows`, `median`, `p95`, `max`, `budget` (null for inherited and total), `over` (rows beyond the
    local budget). Every module that was attributed when none is named; modules that stand once in
    the model are in the first or the last layer.

    Raises:
        UsageError: The comparison was not attributed, a module was not, or the lines would be more
            than 5,000.
    """
    found = attribution(source)
    if found is None:
        raise UsageError(
            "this comparison has no local errors",
            where=source.directory,
            do="attribute it first: kldive attribute DIR --model MODEL",
        )
    known = [m for m in LOCAL_SITES if source.has_column(f"{m}.local")]
    for module in modules:
        if module not in known:
            raise UsageError(f"no local error of {module!r}", do=did_you_mean(module, known))
    lines = []
    for module in modules or known:
        for layer in range(source.num_layers):
            verdict = found.modules.get((layer, module))
            if verdict is None:
                continue
            for number in NUMBERS:
                error_T = source.column(f"{module}.{number}")[layer]
                local = number == "local"
                line = {
                    "module": module,
                    "layer": layer,
                    "number": number,
                    "expected": source.num_rows,
                    **_quantiles(error_T),
                    "budget": verdict.budget if local else None,
                    "over": verdict.over if local else None,
                }
                lines.append(line)
    _check_lines(len(lines))
    return Aggregate(
        frame=_framed(lines),
        compared=_covered(source, [f"{m}.local" for m in modules or known], together=False),
        expected=source.num_rows + one_sided(source),
        unit="rows",
        over="rows that could be attributed",
    )


def flips_by_margin(source: Source) -> Aggregate:
    """Flips by A's gap between the k-th and the (k+1)-th score, explained and not.

    Half-decade bins of the margin; a tie, margin 0, has its own line with both ends 0; what lies
    outside 1e-6..1e3 is counted in the outermost bins. Columns: `margin_from`, `margin_to`,
    `cells`, `explained`, `unexplained`, `unjudged`, `flip_share` (of the cells). Bins without
    cells have no line.
    """
    margin_LT = source.column("topk.margin_a")
    known_LT = ~source.missing("topk.margin_a") & ~source.missing("topk.set_equal")
    flip_LT = known_LT & ~source.column("topk.set_equal").astype(np.bool_)
    judged_LT = ~source.missing("topk.explained")
    explained_LT = flip_LT & judged_LT & source.column("topk.explained").astype(np.bool_)
    cells = pl.DataFrame(
        {
            "bin": _margin_bin(margin_LT[known_LT]),
            "explained": explained_LT[known_LT],
            "unexplained": (flip_LT & judged_LT & ~explained_LT)[known_LT],
            "unjudged": (flip_LT & ~judged_LT)[known_LT],
        }
    )
    flips = [pl.col(n).sum() for n in ("explained", "unexplained", "unjudged")]
    frame = cells.group_by("bin").agg(pl.len().alias("cells"), *flips).sort("bin")
    low = 10.0 ** (pl.col("bin") / BINS_PER_DECADE + _DECADES[0])
    share = pl.sum_horizontal("explained", "unexplained", "unjudged") / pl.col("cells")
    tie = pl.col("bin") < 0
    frame = frame.select(
        pl.when(tie).then(0.0).otherwise(low).alias("margin_from"),
        pl.when(tie).then(0.0).otherwise(low * 10 ** (1 / BINS_PER_DECADE)).alias("margin_to"),
        "cells",
        "explained",
        "unexplained",
        "unjudged",
        share.alias("flip_share"),
    )
    routed = int(known_LT.any(axis=1).sum())
    return Aggregate(
        frame=frame,
        compared=int(known_LT.sum()),
        expected=routed * (source.num_rows + one_sided(source)),
        unit="(row, layer)",
        over="rows and layers with a router",
    )


def _margin_bin(margin_T: np.ndarray) -> np.ndarray:
    """Index of the half-decade from 1e-6 on, -1 for a tie."""
    low, high = _DECADES
    positive_T = np.maximum(margin_T.astype(np.float64), 10.0**low)
    # A margin of exactly 10**-k belongs to the bin that begins there, whatever log10 rounds to.
    scaled_T = np.floor((np.log10(positive_T) - low) * BINS_PER_DECADE + 1e-6)
    inside_T = np.clip(scaled_T, 0, (high - low) * BINS_PER_DECADE - 1).astype(np.int32)
    bins_T: np.ndarray = np.where(margin_T <= 0, -1, inside_T)
    return bins_T


def _quantiles(error_T: np.ndarray) -> dict[str, float | int | None]:
    known = error_T[~np.isnan(error_T)].astype(np.float64)
    if not len(known):
        return {"rows": 0, "median": None, "p95": None, "max": None}
    median, p95 = np.percentile(known, (50, 95), method="nearest")
    return {
        "rows": len(known),
        "median": float(median),
        "p95": float(p95),
        "max": float(known.max()),
    }


def _framed(lines: Sequence[Mapping[str, object]]) -> pl.DataFrame:
    return pl.DataFrame(lines, schema_overrides=_SUMMARY, infer_schema_length=None)


def _covered(source: Source, names: Sequence[str], *, together: bool) -> int:
    """Rows with a value of every one of these columns in some layer, or of any one of them."""
    there = np.array([~source.missing(name).all(axis=0) for name in names])
    found = there.all(axis=0) if together else there.any(axis=0)
    return int(found.sum())


def _check_lines(count: int) -> None:
    if count > MAX_LINES:
        raise UsageError(
            "a chart draws aggregates",
            expected=f"at most {MAX_LINES:,} lines",
            got=f"{count:,} of layers, modules and numbers",
            do="name fewer modules or sites",
        )
