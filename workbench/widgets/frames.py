"""Aggregates behind the charts of log-probabilities: Polars frames of at most 5,000 lines.

Owns the arithmetic and the counting; draws nothing. Direction: dlogp = logp_A - logp_B, ratio =
exp(logp_B - logp_A), KL is KL(A || B). The invariant: a row without a number on both sides is
counted as expected and not compared; it never enters an average, and an empty average is null.

A row's log-probability was computed by the row before it, so what happened inside the model is
looked up there.

Axis legend: L layer, T row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from workbench.comparison.excuses import previous_row
from workbench.comparison.probability import Over, row_terms, sampled_rows
from workbench.errors import UsageError
from workbench.names import DivergenceClass
from workbench.view.source import Source

MAX_LINES: Final = 5_000
NUM_BINS: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """A frame, and how much of what was expected it speaks for.

    Attributes:
        frame: At most `MAX_LINES` lines.
        compared: Things that entered it.
        expected: Things that a whole comparison would have.
        unit: What these things are, in the plural.
        over: What the numbers are taken over, as a sentence's part.
    """

    frame: pl.DataFrame
    compared: int
    expected: int
    unit: str
    over: str

    @property
    def coverage(self) -> str:
        """Compared of expected, in words: `183 of 190 rows compared (96.3%)`."""
        share = f" ({self.compared / self.expected:.1%})" if self.expected else ""
        return f"n = {self.compared:,} of {self.expected:,} {self.unit} compared{share}"


class Safeguard(NamedTuple):
    """A window of the importance ratio that a training recipe keeps tokens or sequences in.

    Attributes:
        name: As recipes call it.
        low, high: The window; None where it is open.
        unit: `tokens` or `sequences`; of a sequence the geometric mean of its ratios is judged.
    """

    name: str
    low: float | None
    high: float | None
    unit: str = "tokens"


SAFEGUARDS: Final[tuple[Safeguard, ...]] = (
    Safeguard("PPO clip", 0.8, 1.2),
    Safeguard("truncation, cap 2", None, 2.0),
    Safeguard("truncation, cap 5", None, 5.0),
    Safeguard("rejection", 0.5, 2.0),
    Safeguard("IcePop", 0.5, 5.0),
    Safeguard("geometric mask", 0.99, 1.001, "sequences"),
)
"""Windows in use: PPO; truncated importance sampling; rejection sampling (also IcePop's narrower
form); IcePop as NeMo and verl set it; the geometric sequence mask of Miles."""


class Scored(NamedTuple):
    """Rows whose token both sides should have scored, one line each.

    Attributes:
        frame: `row`, `request`, `position`, `modality`, `logprob_a`, `logprob_b`, `dlogp`, `ratio`,
            `k3`, `kl_exact`, `compared`; float64, null where not compared.
        over: Which rows these are.
    """

    frame: pl.DataFrame
    over: Over


def scored(source: Source, *, sampled: bool = True) -> Scored:
    """The rows that log-probability charts speak of.

    With `sampled` the tokens sampled from A, where there are any: only over these do k1, k2 and k3
    estimate KL(A || B). Otherwise every row but the first of each request.
    """
    rows = source.rows
    a_T, b_T = (
        rows[n].cast(pl.Float64).fill_null(np.nan).to_numpy() for n in ("logprob_a", "logprob_b")
    )
    both_T = np.isfinite(a_T) & np.isfinite(b_T)
    generated_T = (rows["phase"] == "generated").to_numpy()
    use_T, over = sampled_rows(generated_T, both_T)
    is_sampled = sampled and over == "tokens sampled from A"
    if not is_sampled:
        over = "all rows with both log-probabilities"
    expected_T = generated_T if is_sampled else previous_row(rows) >= 0
    terms = row_terms(a_T, b_T)
    values = {"dlogp": terms.dlogp, "ratio": terms.ratio, "k3": terms.k3}
    frame = rows.select("row", "request", "position", "modality").with_columns(
        pl.Series("logprob_a", a_T),
        pl.Series("logprob_b", b_T),
        *(pl.Series(name, column) for name, column in values.items()),
        rows["kl_exact"].cast(pl.Float64),
        pl.Series("compared", both_T & (use_T | (not is_sampled))),
    )
    gone = pl.when("compared")
    known = [gone.then(pl.col(n)).alias(n) for n in ("logprob_a", "logprob_b", *values)]
    return Scored(frame.with_columns(known).filter(pl.Series(expected_T)), over)


def one_sided(source: Source) -> int:
    """Rows that one capture alone has: no line of the row table, and yet expected."""
    counts = source.summary.get("rows") or {}
    return int(counts.get("only_a") or 0) + int(counts.get("only_b") or 0)


def _means() -> list[pl.Expr]:
    """Counts and averages of a group of scored rows; an empty average is null."""
    exact = pl.col("kl_exact").filter(pl.col("kl_exact").is_finite())
    return [
        pl.len().alias("expected"),
        pl.col("compared").sum().alias("rows"),
        exact.mean().alias("kl_exact"),
        pl.col("k3").mean(),
        pl.col("dlogp").abs().max().alias("max_abs_dlogp"),
    ]


def _aggregate(source: Source, found: Scored, frame: pl.DataFrame) -> Aggregate:
    return Aggregate(
        frame=frame,
        compared=int(found.frame["compared"].sum()),
        expected=found.frame.height + one_sided(source),
        unit="rows",
        over=found.over,
    )


def by_position(source: Source, *, num_bins: int = 120) -> Aggregate:
    """KL and k3 by position in the request.

    Columns: `position_from`, `position_to` (both within), `expected`, `rows`, `kl_exact`, `k3`,
    `max_abs_dlogp`. One line per position where they fit into `num_bins`, else ranges of one width.

    Raises:
        UsageError: `num_bins` is not within 1..5,000.
    """
    _check_bins(num_bins, num_bins)
    found = scored(source)
    least, most = found.frame["position"].min(), found.frame["position"].max()
    low, high = (int(v) if isinstance(v, int) else 0 for v in (least, most))
    width = max(1, -(-(high - low + 1) // num_bins))
    start = (pl.col("position") - low) // width * width + low
    frame = (
        found.frame.group_by(start.alias("position_from"))
        .agg(pl.col("position").max().alias("position_to"), *_means())
        .sort("position_from")
    )
    return _aggregate(source, found, frame)


def by_first_layer(source: Source, klass: DivergenceClass = "flip") -> Aggregate:
    """KL and k3 by the first layer that diverged while the token was scored.

    Columns: `state` (`diverged`, `none`, or `not recorded` where a side lacks the arrays of the
    scoring row), `layer` (null unless diverged), `expected`, `rows`, `kl_exact`, `k3`,
    `max_abs_dlogp`, `k3_share` (of the sum of k3 over all rows).

    Raises:
        UsageError: Unknown class.
    """
    found = scored(source)
    mask_LT = source.class_mask(klass)
    previous_T = previous_row(source.rows)[found.frame["row"].to_numpy()]
    at_T = np.maximum(previous_T, 0)
    both = source.rows["offset_a"].is_not_null() & source.rows["offset_b"].is_not_null()
    both_T: np.ndarray = both.to_numpy()
    recorded_T = (previous_T >= 0) & both_T[at_T]
    any_T = np.logical_or.reduce(mask_LT, axis=0)
    diverged_T = recorded_T & any_T[at_T]
    state_T = np.where(diverged_T, "diverged", np.where(recorded_T, "none", "not recorded"))
    layers = pl.Series("layer", mask_LT.argmax(axis=0)[at_T], dtype=pl.Int32)
    frame = found.frame.with_columns(pl.Series("state", state_T, dtype=pl.String), layers)
    total = frame["k3"].sum()
    frame = (
        frame.with_columns(pl.when(pl.col("state") == "diverged").then("layer"))
        .group_by("state", "layer")
        .agg(*_means(), (pl.col("k3").sum() / total if total else pl.lit(None)).alias("k3_share"))
        .sort("state", "layer")
    )
    return _aggregate(source, found, frame.head(MAX_LINES))


def by_modality(source: Source) -> Aggregate:
    """KL and k3 by what kind of token is scored: text against image, audio and others.

    Over every row that both sides score, prompt included: images stand in prompts. Columns:
    `modality`, `expected`, `rows`, `kl_exact`, `k3`, `max_abs_dlogp`.
    """
    found = scored(source, sampled=False)
    frame = found.frame.group_by("modality").agg(*_means()).sort("modality")
    return _aggregate(source, found, frame.head(MAX_LINES))


def probability_bins(source: Source, *, num_bins: int = NUM_BINS) -> Aggregate:
    """Probability of the token on A against that on B, counted in square bins of one width.

    Columns: `p_a_from`, `p_a_to`, `p_b_from`, `p_b_to`, `rows`. Bins without rows have no line.

    Raises:
        UsageError: The bins would be more than 5,000.
    """
    _check_bins(num_bins, num_bins**2)
    found = scored(source)
    known = found.frame.filter("compared").select(
        pl.col(f"logprob_{side}").exp().alias(f"p_{side}") for side in "ab"
    )
    index = [
        (pl.col(n) * num_bins).floor().clip(0, num_bins - 1).cast(pl.Int32) for n in ("p_a", "p_b")
    ]
    frame = known.group_by(index).agg(pl.len().alias("rows")).sort("p_a", "p_b")
    edges = [
        ((pl.col(n) + step) / num_bins).alias(f"{n}_{end}")
        for n in ("p_a", "p_b")
        for step, end in ((0, "from"), (1, "to"))
    ]
    return _aggregate(source, found, frame.select(*edges, "rows"))


def ratio_bins(source: Source, *, num_bins: int = NUM_BINS + 1) -> Aggregate:
    """Importance ratios exp(logp_B - logp_A), counted in bins of one width of log ratio.

    The bins reach from -m to m, where m is the largest |dlogp|; with an odd number of them the
    middle one holds the ratio 1. Columns: `ratio_from`, `ratio_to`, `rows`; every bin has a line.

    Raises:
        UsageError: `num_bins` is not within 1..5,000.
    """
    _check_bins(num_bins, num_bins)
    found = scored(source)
    log_ratio = -found.frame["dlogp"].drop_nulls().to_numpy()
    most = float(np.abs(log_ratio).max()) if len(log_ratio) else 0.0
    if most == 0:
        frame = pl.DataFrame({"ratio_from": [1.0], "ratio_to": [1.0], "rows": [len(log_ratio)]})
        return _aggregate(source, found, frame)
    edges = np.linspace(-most, most, num_bins + 1)
    counts = np.histogram(log_ratio, edges)[0]
    with np.errstate(over="ignore"):
        bounds = np.exp(edges)
    frame = pl.DataFrame({"ratio_from": bounds[:-1], "ratio_to": bounds[1:], "rows": counts})
    return _aggregate(source, found, frame)


def safeguards(source: Source, windows: Sequence[Safeguard] = SAFEGUARDS) -> Aggregate:
    """How many tokens or sequences fall outside each window of the importance ratio.

    Columns: `name`, `unit`, `low`, `high` (null where open), `n`, `below`, `above`, `outside`
    (share), `least`, `most` (the extreme ratios of that unit).
    """
    found = scored(source)
    per_request = found.frame.group_by("request").agg(pl.col("dlogp").mean())
    logs = {"tokens": -found.frame["dlogp"], "sequences": -per_request["dlogp"]}
    lines = []
    for window in windows:
        ratios = logs[window.unit].drop_nulls().exp()
        below = int((ratios < window.low).sum()) if window.low is not None else 0
        above = int((ratios > window.high).sum()) if window.high is not None else 0
        lines.append(
            {
                **window._asdict(),
                "n": len(ratios),
                "below": below,
                "above": above,
                "outside": (below + above) / len(ratios) if len(ratios) else None,
                "least": ratios.min(),
                "most": ratios.max(),
            }
        )
    numbers = dict.fromkeys(("low", "high", "outside", "least", "most"), pl.Float64)
    return _aggregate(source, found, pl.DataFrame(lines, schema_overrides=numbers))


def _check_bins(num_bins: int, lines: int) -> None:
    if num_bins < 1 or lines > MAX_LINES:
        raise UsageError(
            "a chart draws aggregates",
            expected=f"at least 1 bin and at most {MAX_LINES:,} lines",
            got=f"num_bins = {num_bins}",
        )
