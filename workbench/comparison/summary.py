"""Putting `comparison.json` together: every number with its coverage, no NaN.

Axis legend: L layer, T row.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from workbench.comparison import verdict
from workbench.comparison.classes import beyond_sites, logprob_rows
from workbench.comparison.columns import MEASURED_LAYER_SITES
from workbench.comparison.first import first_divergences
from workbench.comparison.jump import find_jump
from workbench.comparison.probability import Over, sampled_rows, summarise
from workbench.comparison.publish import finite
from workbench.comparison.result import Comparison
from workbench.comparison.tolerance import PRACTICE
from workbench.comparison.weights import Weights
from workbench.names import (
    DIRECTION,
    DIVERGENCE_CLASSES,
    LOGPROB_CONVENTION,
    MODEL_SITES,
    SAMPLING_SIDE,
    SITES,
    layer_site,
)
from workbench.store import Capture
from workbench.store.manifest import MANIFEST_NAME

_SHOWN_DAMAGE: Final = 8


def side_facts(capture: Capture, out: Path) -> dict[str, Any]:
    """Facts of one side, and where it lies."""
    manifest = capture.manifest
    model = manifest.model
    return {
        "directory": str(capture.directory.resolve()),
        "directory_relative": os.path.relpath(capture.directory.resolve(), out.resolve()),
        "manifest_crc": zlib.crc32((capture.directory / MANIFEST_NAME).read_bytes()),
        "path": manifest.path,
        "engine": manifest.engine,
        "version": manifest.versions.get(manifest.engine, ""),
        "versions": dict(manifest.versions),
        "device": manifest.device,
        "dtype": manifest.dtype,
        "knobs": dict(manifest.knobs),
        "model": {
            "id": model.id,
            "architecture": model.architecture,
            "config_hash": model.config_hash,
            "num_layers": model.num_layers,
            "num_experts": model.num_experts,
            "top_k": model.top_k,
            "hidden_size": model.hidden_size,
            "vocab_size": model.vocab_size,
            "layer_kinds": list(model.layer_kinds),
        },
        "rows": capture.num_rows,
        "complete": capture.complete,
        "damaged": [str(error) for error in capture.damaged[:_SHOWN_DAMAGE]],
        "num_damaged": len(capture.damaged),
        "missing": dict(manifest.missing),
    }


def incompleteness(a: Capture, b: Capture) -> str:
    """Why a capture is not whole, or ""."""
    reasons = []
    for side, capture in (("A", a), ("B", b)):
        if capture.damaged:
            total = len(capture.manifest.chunks)
            reasons.append(f"{side} has {len(capture.damaged)} of {total} chunks damaged")
        elif not capture.manifest.complete:
            reasons.append(f"the recording of {side} did not end in order")
    return f"incomplete: {'; '.join(reasons)}" if reasons else ""


def judged(draft: Comparison, weights: Weights, *, incomplete: str) -> dict[str, Any]:
    """The part of the summary that is worked out from the two tables."""
    budgets, excused = draft.budgets(), draft.excuses()
    jump = find_jump(draft, budgets, excused)
    counts = {klass: int(draft.class_mask(klass).sum()) for klass in DIVERGENCE_CLASSES}
    probability, over, mean_kl = _probability(draft)
    outcome = verdict.decide(
        verdict.Findings(
            incomplete=incomplete,
            num_compared=int(compared_rows(draft).sum()),
            num_scored=int((_both_logprobs(draft) | _scored_exactly(draft)).sum()),
            num_excused=int(excused.after[-1].sum()),
            weights=weights.status,
            weights_text=weights.text,
            one_sided_nonfinite=_one_sided_nonfinite(draft),
            counts=counts,
            jump=jump,
            mean_kl=mean_kl,
            kl_gate=budgets.kl,
            same_dtype=draft.summary["a"]["dtype"] == draft.summary["b"]["dtype"],
            all_equal=counts["bit"] == 0 and _logprobs_equal(draft),
            fits_coarser=_fits_coarser(draft, budgets.profile),
        )
    )
    return {
        "status": outcome.status,
        "reason": outcome.reason,
        "verdict": outcome.verdict,
        "weights": weights.status,
        "rows": _row_counts(draft),
        "kl": {"exact_mean": _exact_mean(draft), **{k: probability[k] for k in ("k1", "k2", "k3")}},
        "max_abs_dlogp": _max_abs_dlogp(draft),
        "first": first_divergences(draft),
        "jump": None if jump is None else jump.to_json(),
        "counts": counts,
        "excused": _excused_counts(draft),
        "probability": {"over": over, **probability},
        "practice": _practice(draft, probability),
        "routing": _routing(draft),
        "sites": _sites(draft),
    }


FIXED: Final = {
    "direction": DIRECTION,
    "sampling_side": SAMPLING_SIDE,
    "convention": LOGPROB_CONVENTION,
}
"""Directions and conventions, which every summary repeats."""


def compared_rows(draft: Comparison) -> np.ndarray:
    """Rows with arrays on both sides or a log-probability on both, bool (T,)."""
    rows = draft.rows
    arrays = rows["offset_a"].is_not_null() & rows["offset_b"].is_not_null()
    logprobs = rows["logprob_a"].is_not_null() & rows["logprob_b"].is_not_null()
    found: np.ndarray = (arrays | logprobs).to_numpy()
    return found


def _row_counts(draft: Comparison) -> dict[str, int]:
    rows = draft.rows
    return {
        **draft.summary["rows"],
        "compared": int(compared_rows(draft).sum()),
        "with_arrays": int((rows["offset_a"].is_not_null() & rows["offset_b"].is_not_null()).sum()),
        "with_logprobs": int(_both_logprobs(draft).sum()),
    }


def _both_logprobs(draft: Comparison) -> np.ndarray:
    rows = draft.rows
    both: np.ndarray = (
        rows["logprob_a"].is_not_null() & rows["logprob_b"].is_not_null()
    ).to_numpy()
    return both


def _scored_exactly(draft: Comparison) -> np.ndarray:
    scored: np.ndarray = draft.rows["kl_exact"].is_not_null().to_numpy()
    return scored


def _logprobs_equal(draft: Comparison) -> bool:
    both = _both_logprobs(draft)
    a, b = draft.rows["logprob_a"].to_numpy()[both], draft.rows["logprob_b"].to_numpy()[both]
    return bool((a == b).all())


def _probability(draft: Comparison) -> tuple[dict[str, Any], Over, float | None]:
    """The sampled-token family, what it averages over, and the mean KL of rows not excused."""
    rows = draft.rows
    a, b = rows["logprob_a"].to_numpy(), rows["logprob_b"].to_numpy()
    generated = (rows["phase"] == "generated").to_numpy()
    use, over = sampled_rows(generated, _both_logprobs(draft))
    request = rows["request"].rle_id().to_numpy()
    family = summarise(a, b, use, request)
    free = ~draft.excuses().logprob
    exact = rows["kl_exact"].to_numpy()
    exact = exact[free & np.isfinite(exact)]
    if len(exact):
        return family, over, float(exact.astype(np.float64).mean())
    return family, over, summarise(a, b, use & free, request)["k3"]


def _exact_mean(draft: Comparison) -> float | None:
    exact = draft.rows["kl_exact"].drop_nulls().to_numpy().astype(np.float64)
    exact = exact[np.isfinite(exact)]
    return float(exact.mean()) if len(exact) else None


def _max_abs_dlogp(draft: Comparison) -> float | None:
    gaps = np.abs(draft.rows["dlogp"].drop_nulls().to_numpy().astype(np.float64))
    gaps = gaps[np.isfinite(gaps)]
    return float(gaps.max()) if len(gaps) else None


def _practice(draft: Comparison, family: Mapping[str, Any]) -> dict[str, Any]:
    """The gates that practitioners use, beside the derived ones; they decide nothing here."""
    largest, k3 = _max_abs_dlogp(draft), family["k3"]
    grade = None
    if largest is not None:
        passed = largest < PRACTICE["max_abs_dlogp.pass"]
        marginal = largest < PRACTICE["max_abs_dlogp.marginal"]
        grade = "pass" if passed else "marginal" if marginal else "fail"
    return {
        **PRACTICE,
        "max_abs_dlogp": grade,
        "k3": None if k3 is None else "pass" if k3 < PRACTICE["k3.pass"] else "fail",
    }


def _excused_counts(draft: Comparison) -> dict[str, Any]:
    budgets, excused = draft.budgets(), draft.excuses()
    above = np.zeros((draft.num_layers, draft.num_rows), np.bool_)
    for _, beyond in beyond_sites(draft, budgets, None):
        above |= beyond
    logprobs = logprob_rows(draft, budgets, None)
    return {
        "rounding": int(above.sum()) - int((above & draft.class_mask("rounding")).sum()),
        "logprob": int((logprobs & excused.logprob).sum()),
        "flips": int(excused.flips.sum()),
        "rows": int(excused.after[-1].sum()),
    }


def _one_sided_nonfinite(draft: Comparison) -> int:
    count = 0
    for site in MEASURED_LAYER_SITES:
        if draft.has_column(f"{site}.nonfinite_a"):
            a = draft.column(f"{site}.nonfinite_a")
            count += int((a != draft.column(f"{site}.nonfinite_b")).sum())
    for site in MODEL_SITES:
        if f"{site}.nonfinite_a" in draft.rows.columns and site != "logits":
            rows = draft.rows
            count += int((rows[f"{site}.nonfinite_a"] != rows[f"{site}.nonfinite_b"]).sum())
    a_T = draft.rows["logprob_a"].is_nan().fill_null(value=False)
    b_T = draft.rows["logprob_b"].is_nan().fill_null(value=False)
    return count + int((a_T != b_T).sum())


def _fits_coarser(draft: Comparison, profile: str) -> bool:
    coarser = verdict.coarser_profile(profile)
    if coarser is None:
        return False
    budgets, excused = draft.budgets(coarser), draft.excuses(coarser)
    empty = not any(draft.class_mask(k, coarser).any() for k in ("rounding", "logprob"))
    return empty and find_jump(draft, budgets, excused) is None


def _routing(draft: Comparison) -> dict[str, Any]:
    nothing = {"compared": 0, "flips": 0, "explained": 0, "unexplained": 0, "unjudged": 0}
    if not draft.has_column("topk.set_equal"):
        return {**nothing, "flip_share": None, "rows_with_flip": 0, "by_layer": []}
    there = ~draft.missing("topk.set_equal")
    flips = there & ~draft.column("topk.set_equal")
    judged_LT = ~draft.missing("topk.explained")
    explained = draft.column("topk.explained")
    compared = int(there.sum())
    by_layer = [
        {
            "layer": layer,
            "compared": int(there[layer].sum()),
            "flips": int(flips[layer].sum()),
            "explained": int((flips[layer] & explained[layer]).sum()),
            "unexplained": int((flips[layer] & judged_LT[layer] & ~explained[layer]).sum()),
        }
        for layer in range(draft.num_layers)
        if there[layer].any()
    ]
    num_flips = int(flips.sum())
    num_judged = int((flips & judged_LT).sum())
    num_explained = int((flips & explained).sum())
    order = there & ~draft.column("topk.order_equal") & draft.column("topk.set_equal")
    return {
        "compared": compared,
        "flips": num_flips,
        "flip_share": num_flips / compared if compared else None,
        "rows_with_flip": int(flips.any(axis=0).sum()),
        "order_only": int(order.sum()),
        "explained": num_explained,
        "unexplained": num_judged - num_explained,
        "unjudged": num_flips - num_judged,
        "reasons": draft.summary["flip_reasons"],
        "by_layer": by_layer,
    }


def _sites(draft: Comparison) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for site in SITES:
        if site.per_layer and draft.has_column(f"{site.name}.rel_l2"):
            numbers = {
                name: draft.column(f"{site.name}.{name}")
                for name in ("rel_l2", "bit_equal", "nonfinite_a", "nonfinite_b")
            }
            there = ~draft.missing(f"{site.name}.bit_equal")
            medians = [_median(row) for row in numbers["rel_l2"]]
            found[site.name] = {**_site(numbers, there), "median_by_layer": medians}
        elif f"{site.name}.rel_l2" in draft.rows.columns:
            rows = draft.rows
            there = rows[f"{site.name}.bit_equal"].is_not_null().to_numpy()
            numbers = {
                "rel_l2": rows[f"{site.name}.rel_l2"].to_numpy(),
                **{
                    name: rows[f"{site.name}.{name}"].fill_null(0).to_numpy()
                    for name in ("nonfinite_a", "nonfinite_b")
                },
                "bit_equal": rows[f"{site.name}.bit_equal"].fill_null(value=False).to_numpy(),
            }
            found[site.name] = _site(numbers, there)
    return found


def _site(numbers: Mapping[str, np.ndarray], there: np.ndarray) -> dict[str, Any]:
    error = numbers["rel_l2"][there]
    usable = error[np.isfinite(error)]
    compared = int(there.sum())
    return {
        "compared": compared,
        "mean": float(usable.mean(dtype=np.float64)) if len(usable) else None,
        "median": _median(usable),
        "max": float(usable.max()) if len(usable) else None,
        "not_a_number": compared - len(usable),
        "bit_equal": int(numbers["bit_equal"].sum()) / compared if compared else None,
        "nonfinite_a": int(numbers["nonfinite_a"].sum(dtype=np.int64)),
        "nonfinite_b": int(numbers["nonfinite_b"].sum(dtype=np.int64)),
    }


def _median(values: np.ndarray) -> float | None:
    values = values[~np.isnan(values)]
    return finite(float(np.median(values))) if len(values) else None


def coverage(
    a: Capture, b: Capture, counted: Mapping[str, int], *, num_layers: int, num_rows: int
) -> dict[str, Any]:
    """Per site: rows compared of rows expected, summed over layers, and what a side lacks."""
    found: dict[str, Any] = {}
    for site in SITES:
        names = (
            [layer_site(i, site.name) for i in range(num_layers)] if site.per_layer else [site.name]
        )
        on_a = [name for name in names if name in a.manifest.sites]
        on_b = [name for name in names if name in b.manifest.sites]
        expected = set(on_a) | set(on_b)
        if not expected:
            continue
        found[site.name] = {
            "compared": sum(counted.get(name, 0) for name in expected),
            "expected": num_rows * len(expected),
            "only_a": len(set(on_a) - set(on_b)),
            "only_b": len(set(on_b) - set(on_a)),
            "reason": next(
                (m for c in (a, b) for n in expected if (m := c.manifest.missing.get(n))), ""
            ),
        }
    return found
