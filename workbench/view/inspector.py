"""Everything a face says about one cell, as plain values: no colours, no layout, no I/O of its own.

Experts are matched by id, never by slot. `dlogp` is A minus B. A site that a side does not have is
None, and is never shown as equal.

Axes: E expert, K slot, L layer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from workbench.store.dtypes import unit_roundoff
from workbench.view.local import ModuleError
from workbench.view.numbers import ulp_size

OnSide = Literal["both", "A", "B"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFacts:
    """Who the row is; `state` says whether a side computed, cached or only sampled it."""

    row: int
    request: str
    position: int
    token_id: int
    text: str
    phase: str
    modality: str
    state_a: str
    state_b: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertRow:
    """One expert selected by either side; rank is its place by score among the selected, from 1."""

    expert: int
    on: OnSide
    rank_a: int | None
    rank_b: int | None
    gate_a: float | None
    gate_b: float | None
    logit_a: float | None
    logit_b: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """Gap between the last selected and the first rejected expert.

    Attributes:
        gap: In scores; None where it was not measured.
        ulps: In units of the last place of the scores' type; NaN where it cannot be told.
    """

    gap: float | None
    ulps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterFacts:
    """Both routers at the cell.

    Attributes:
        experts: Selected by either side, ordered by A's rank, then B's.
        num_flips: Experts of A that B did not select.
        same_order: Whether both sides list the same experts in the same order.
        explained: Whether the input difference can move the scores as far as the flip needs; None
            where the sets are equal or it cannot be told.
        needed: How far the scores have to move apart for the flip.
        bound: How far the measured input difference can move them.
        alone: `A` or `B` when only that side was opened, and nothing is compared.
    """

    experts: tuple[ExpertRow, ...]
    num_flips: int
    same_order: bool
    margin_a: Margin
    margin_b: Margin
    explained: bool | None
    needed: float | None
    bound: float | None
    alone: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteDifference:
    """A against B at one site; None where the comparison has no number.

    At `topk_ids` only `bit_equal` has a value: whether both sides selected the same set. `alone` is
    `A` or `B` when only that side was opened and has numbers here.
    """

    site: str
    max_abs: float | None
    rel_l2: float | None
    cosine: float | None
    max_ulp: float | None
    bit_equal: bool | None
    nonfinite_a: int
    nonfinite_b: int
    alone: str = ""

    @property
    def known(self) -> bool:
        """Whether the comparison measured this site here."""
        return self.bit_equal is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogprobFacts:
    """Log-probability of the row's own token on both sides; `dlogp` is A minus B."""

    a: float | None
    b: float | None
    dlogp: float | None
    rank_a: int | None
    rank_b: int | None
    kl: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFacts:
    """The inspector's whole content for one cell.

    Attributes:
        address: As people write it, for example `L2 t14`.
        layer: Layer index.
        layer_kind: `moe`, `dense` or empty when unknown.
        token: The row's token.
        router: Both routers, or None at a dense layer or where nothing was recorded.
        problem: Why vectors could not be read, or empty.
        sites: The layer's recorded sites in execution order.
        site: Short name of the site in focus.
        logprob: Of the row's token.
        profile_L: Relative L2 difference of `profile_site` at this row, one per layer; NaN is NaN
            or Inf on a side, None where it was not measured.
        errors: The layer's modules on A's input; empty before attribution.
    """

    address: str
    layer: int
    layer_kind: str
    token: TokenFacts
    router: RouterFacts | None
    problem: str
    sites: tuple[SiteDifference, ...]
    site: str
    logprob: LogprobFacts
    profile_site: str
    profile_L: tuple[float | None, ...]
    errors: tuple[ModuleError, ...] = ()


def match_experts(
    ids_a_K: np.ndarray | None,
    ids_b_K: np.ndarray | None,
    weights_a_K: np.ndarray | None,
    weights_b_K: np.ndarray | None,
    logits_a_E: np.ndarray | None,
    logits_b_E: np.ndarray | None,
) -> tuple[ExpertRow, ...]:
    """Both sides' selected experts, joined by expert id.

    Ranks follow the score, or the gate weight where scores were not recorded; ties the slot order.
    Ids below 0 are empty slots and are left out.
    """
    side_a = _side(ids_a_K, weights_a_K, logits_a_E)
    side_b = _side(ids_b_K, weights_b_K, logits_b_E)
    rows = []
    for expert in dict.fromkeys([*side_a, *side_b]):
        rank_a, gate_a = side_a.get(expert, (None, None))
        rank_b, gate_b = side_b.get(expert, (None, None))
        on: OnSide = "both" if expert in side_a and expert in side_b else "A"
        if expert not in side_a:
            on = "B"
        rows.append(
            ExpertRow(
                expert=expert,
                on=on,
                rank_a=rank_a,
                rank_b=rank_b,
                gate_a=gate_a,
                gate_b=gate_b,
                logit_a=_pick(logits_a_E, expert),
                logit_b=_pick(logits_b_E, expert),
            )
        )
    return tuple(rows)


def _side(
    ids_K: np.ndarray | None, weights_K: np.ndarray | None, logits_E: np.ndarray | None
) -> dict[int, tuple[int, float | None]]:
    """Expert id to (rank from 1, gate weight) of one side, in rank order."""
    if ids_K is None:
        return {}
    gates: dict[int, float | None] = {}
    for slot, expert in enumerate(ids_K.tolist()):
        if expert >= 0:
            gates[expert] = None if weights_K is None else float(weights_K[slot])
    order = sorted(gates, key=lambda expert: _descending(_pick(logits_E, expert), gates[expert]))
    return {expert: (rank, gates[expert]) for rank, expert in enumerate(order, start=1)}


def _descending(score: float | None, gate: float | None) -> float:
    value = gate if score is None else score
    # NaN sorts nowhere by itself; last is where it does no harm to the other ranks.
    return math.inf if value is None or math.isnan(value) else -value


def _pick(values_E: np.ndarray | None, expert: int) -> float | None:
    if values_E is None or not 0 <= expert < len(values_E):
        return None
    return float(values_E[expert])


def margin(
    gap: float | None, logits_E: np.ndarray | None, selected: list[int], dtype: str
) -> Margin:
    """The gap, and its size in units of the last place at the lowest selected score.

    `dtype` names the type that the scores were stored in.
    """
    if gap is None or logits_E is None or not selected:
        return Margin(gap=gap, ulps=math.nan)
    scores = [score for expert in selected if (score := _pick(logits_E, expert)) is not None]
    if not scores or unit_roundoff(dtype) == 0.0:
        return Margin(gap=gap, ulps=math.nan)
    return Margin(gap=gap, ulps=gap / ulp_size(min(scores), dtype))
