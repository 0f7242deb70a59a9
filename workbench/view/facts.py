"""Reading facts out of a comparison: what it is as a whole, and everything about one cell.

The only module of the view that touches columns by name besides the lenses. A vector that cannot be
read any more (a capture was moved) leaves its numbers empty and says why; it does not end the
session.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workbench.address import Address
from workbench.comparison.newer import newer_chips
from workbench.errors import CaptureError
from workbench.names import (
    DEFAULT_CLASS_ORDER,
    LAYER_SITES,
    LOGPROBS,
    MODEL_SITES,
    SITE_BY_NAME,
    DivergenceClass,
)
from workbench.view import inspector
from workbench.view.inspector import (
    CellFacts,
    LogprobFacts,
    RouterFacts,
    SiteDifference,
    TokenFacts,
)
from workbench.view.lenses import layer_kinds
from workbench.view.local import Attribution, module_errors
from workbench.view.source import Source
from workbench.view.state import Cell

Metrics = Mapping[str, float | int | bool | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SideFacts:
    """One side in a few words."""

    engine: str
    version: str
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JumpFacts:
    """The first site where more error leaves than entered.

    Attributes:
        layer: None for a site of the whole model.
        site: Short name.
        scale: The factor between the sides when it is one constant: A is about scale times B.
    """

    layer: int | None
    site: str
    scale: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonFacts:
    """What a comparison is, for titles and status lines.

    Attributes:
        status, verdict, reason: As in the summary; empty when it does not say.
        weights: `equal`, `different` or `unknown`.
        rows_compared, rows_expected: Coverage.
        tolerance: Name of the tolerance profile.
        kinds: `moe` or `dense` per layer.
        kl, kl_name: Mean KL(A‖B) per token in nats, and which estimator it is; None when unknown.
        max_abs_dlogp: Largest |dlogp|.
        jump: Where the error enters, when total error tells.
        first_rows: Row of the first divergence of each class that has one.
        alone: `A` or `B` when only that side was opened; empty when there are two.
        newer: What is of a newer format than is read whole, in a few words each.
    """

    a: SideFacts
    b: SideFacts
    model: str
    status: str
    verdict: str
    reason: str
    weights: str
    rows_compared: int
    rows_expected: int
    tolerance: str
    kinds: tuple[str, ...]
    kl: float | None
    kl_name: str
    max_abs_dlogp: float | None
    jump: JumpFacts | None
    first_rows: Mapping[DivergenceClass, int]
    alone: str
    newer: tuple[str, ...] = ()

    def layer_kind(self, layer: int) -> str:
        """`moe`, `dense`, or empty when the captures did not say."""
        return self.kinds[layer] if layer < len(self.kinds) else ""


def comparison_facts(source: Source) -> ComparisonFacts:
    """The facts of a whole comparison."""
    summary = source.summary
    rows, kl = summary["rows"], summary["kl"]
    exact = kl["exact_mean"]
    return ComparisonFacts(
        a=_side(summary["a"]),
        b=_side(summary["b"]),
        model=str(summary["a"]["model"].get("id") or ""),
        status=str(summary["status"]),
        verdict=str(summary.get("verdict") or ""),
        reason=str(summary.get("reason") or ""),
        weights=str(summary.get("weights") or "unknown"),
        rows_compared=int(rows["compared"]),
        rows_expected=int(rows["expected"]),
        tolerance=source.budgets().profile,
        kinds=layer_kinds(source),
        kl=kl["k3"] if exact is None else exact,
        kl_name="k3" if exact is None else "exact",
        max_abs_dlogp=summary["max_abs_dlogp"],
        jump=_jump(summary),
        first_rows=_first_rows(source),
        alone=str(summary.get("alone") or ""),
        newer=newer_chips(summary),
    )


def _first_rows(source: Source) -> dict[DivergenceClass, int]:
    found: dict[DivergenceClass, int] = {}
    for klass in DEFAULT_CLASS_ORDER:
        entry = source.summary["first"].get(klass)
        if entry is not None:
            found[klass] = int(entry["row"])
    return found


def _jump(summary: Mapping[str, Any]) -> JumpFacts | None:
    found = summary.get("jump")
    if found is None:
        return None
    return JumpFacts(
        layer=found["layer"],
        site=str(found["site"]),
        scale=found.get("scale") if found.get("constant") else None,
    )


def _side(facts: Mapping[str, Any]) -> SideFacts:
    return SideFacts(
        engine=str(facts.get("engine") or ""),
        version=str(facts.get("version") or ""),
        dtype=str(facts.get("dtype") or ""),
    )


def recorded_sites(source: Source) -> tuple[str, ...]:
    """Layer sites with at least one measured cell, in execution order."""
    return tuple(
        site
        for site in LAYER_SITES
        if source.has_column("topk.set_equal" if site == "topk_ids" else f"{site}.rel_l2")
    )


def recorded_model_sites(source: Source) -> tuple[str, ...]:
    """Sites of the whole model that were compared somewhere, then `logprobs` where it was."""
    rows = source.rows
    found = [site for site in MODEL_SITES if f"{site}.rel_l2" in rows.columns]
    scored = all(rows[name].null_count() < len(rows) for name in ("logprob_a", "logprob_b"))
    return (*found, LOGPROBS) if scored else tuple(found)


def sites_of_layer(source: Source, layer: int, sites: tuple[str, ...]) -> tuple[str, ...]:
    """Sites with a vector at a layer of the grid: `embed` is in the first, the last ends the model.

    Args:
        source: The comparison.
        layer: The layer.
        sites: The recorded layer sites.
    """
    known = [site for site in recorded_model_sites(source) if site in MODEL_SITES]
    before = [site for site in known if site == "embed" and layer == 0]
    after = [site for site in known if site != "embed" and layer == source.num_layers - 1]
    return (*before, *sites, *after)


def cell_facts(
    source: Source,
    cell: Cell,
    site: str,
    sites: tuple[str, ...],
    found: Attribution | None = None,
) -> CellFacts:
    """Everything about a cell.

    Args:
        source: The comparison.
        cell: Which cell.
        site: The site in focus.
        sites: The recorded layer sites.
        found: What attribution says of the comparison.
    """
    row = source.rows.row(cell.row, named=True)
    line = source.metrics(cell.layer, cell.row)
    try:
        router, problem = _router(source, cell, line), ""
    except CaptureError as error:
        router, problem = None, error.what
    kinds = layer_kinds(source)
    profile_site = "topk_weights" if site == "topk_ids" else site
    if profile_site not in LAYER_SITES:
        profile_site = "output"
    return CellFacts(
        address=str(Address(layer=cell.layer, row=cell.row)),
        layer=cell.layer,
        layer_kind=kinds[cell.layer] if cell.layer < len(kinds) else "",
        token=TokenFacts(
            row=cell.row,
            request=str(row["request"]),
            position=row["position"],
            token_id=row["token_id"],
            text=row["text"] or "",
            phase=row["phase"] or "",
            modality=row["modality"] or "",
            state_a=row["state_a"] or "",
            state_b=row["state_b"] or "",
        ),
        router=router,
        problem=problem,
        sites=tuple(
            _difference(line if SITE_BY_NAME[name].per_layer else row, name, router)
            for name in sites_of_layer(source, cell.layer, sites)
        ),
        site=site,
        logprob=LogprobFacts(
            a=row["logprob_a"],
            b=row["logprob_b"],
            dlogp=row["dlogp"],
            rank_a=row["rank_a"],
            rank_b=row["rank_b"],
            kl=row["kl_exact"],
        ),
        profile_site=profile_site,
        profile_L=_profile(source, cell.row, profile_site),
        errors=() if found is None else tuple(module_errors(source, found, *cell)),
    )


def _router(source: Source, cell: Cell, line: Metrics) -> RouterFacts | None:
    alone = str(source.summary.get("alone") or "")
    if line.get("topk.set_equal") is None and not alone:
        return None
    ids = source.numbers(cell.layer, cell.row, "topk_ids")
    if ids.a is None and ids.b is None:
        return None
    gates = source.numbers(cell.layer, cell.row, "topk_weights")
    logits = source.numbers(cell.layer, cell.row, "router_logits")
    experts = inspector.match_experts(ids.a, ids.b, gates.a, gates.b, logits.a, logits.b)
    explained = line.get("topk.explained")
    return RouterFacts(
        experts=experts,
        num_flips=int(line.get("topk.num_flips") or 0),
        same_order=bool(line.get("topk.order_equal")),
        margin_a=inspector.margin(
            line.get("topk.margin_a"),
            logits.a,
            [e.expert for e in experts if e.on != "B"],
            logits.dtype_a,
        ),
        margin_b=inspector.margin(
            line.get("topk.margin_b"),
            logits.b,
            [e.expert for e in experts if e.on != "A"],
            logits.dtype_b,
        ),
        explained=None if explained is None else bool(explained),
        needed=line.get("topk.needed"),
        bound=line.get("topk.bound"),
        alone=alone,
    )


def _difference(line: Metrics, site: str, router: RouterFacts | None) -> SiteDifference:
    equal = line.get("topk.set_equal" if site == "topk_ids" else f"{site}.bit_equal")
    return SiteDifference(
        site=site,
        max_abs=line.get(f"{site}.max_abs"),
        rel_l2=line.get(f"{site}.rel_l2"),
        cosine=line.get(f"{site}.cosine"),
        max_ulp=line.get(f"{site}.max_ulp"),
        bit_equal=None if equal is None else bool(equal),
        nonfinite_a=int(line.get(f"{site}.nonfinite_a") or 0),
        nonfinite_b=int(line.get(f"{site}.nonfinite_b") or 0),
        alone=_alone(line, site, router) if equal is None else "",
    )


def _alone(line: Metrics, site: str, router: RouterFacts | None) -> str:
    """The side that has numbers at a site which cannot be compared; empty when neither has."""
    if site == "topk_ids":
        return "" if router is None else router.alone
    found = [s for s in "AB" if line.get(f"{site}.nonfinite_{s.lower()}") is not None]
    return found[0] if len(found) == 1 else ""


def _profile(source: Source, row: int, site: str) -> tuple[float | None, ...]:
    name = f"{site}.rel_l2"
    if not source.has_column(name):
        return (None,) * source.num_layers
    values_L = source.at_row(name, row).tolist()
    counts_L = source.at_row(f"{site}.nonfinite_a", row) + source.at_row(f"{site}.nonfinite_b", row)
    # A missing value reads as NaN; a NaN that was measured has non-finite numbers beside it.
    return tuple(
        math.nan if count else None if math.isnan(value) else value
        for value, count in zip(values_L, counts_L.tolist(), strict=True)
    )
