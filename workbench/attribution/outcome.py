"""What attribution writes: the finding in JSON, and the sentences that people read.

Owns the shape of `attribution.json` and of `attribution` in `comparison.json`. Sides are A and B as
everywhere; units are units of rounding of the coarser of both sides' types at a site.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from workbench.attribution.combine import NAMED, Agreement, CombineWatcher, text_of
from workbench.attribution.judge import Finding, is_biased
from workbench.attribution.kinds import MODULES

SAME_ORDER: Final = (
    "both are within rounding of the truth, and they differ: parity needs the same order, "
    "not more precision"
)
_ORDER_KEYS: Final = ("candidate", "closest", "same_as", "elements", "rows")
_TIMES: Final = {1: "once", 2: "twice"}
_FINE_UNIT: Final = 2.0**-16
_MEAN_CUT: Final = 0.72
"""Mean loss of cutting a significand off instead of rounding it, in units: 1 / (2 ln 2)."""


def combine_json(watcher: CombineWatcher, findings: list[Finding]) -> dict[str, Any] | None:
    """The combine orders of both sides, by layer, and what follows; None without 16-bit experts."""
    layers = [
        {"layer": layer, "a": a.to_json(), "b": watcher.b[layer].to_json()}
        for layer, a in sorted(watcher.a.items())
        if a.num_rows
    ]
    if not layers:
        return None
    dtype = next(iter(watcher.dtypes.values()))
    totals = {side: _total(getattr(watcher, side)) for side in ("a", "b")}
    outside = any(f.module == "routed_experts" and f.who != "neither" for f in findings)
    differ = any(
        f.module == "routed_experts" and f.largest is not None and f.largest > 0 for f in findings
    )
    found = {side: total.to_json() for side, total in totals.items()}
    ways = {
        side: {found[side]["candidate"], *found[side]["same_as"]}
        if found[side]["candidate"]
        else set()
        for side in found
    }
    # Two orders that gave the same bits on every row seen are one order.
    known = bool(ways["a"]) and bool(ways["b"]) and not ways["a"] & ways["b"]
    return {
        "candidates": {
            name: text_of(f"{name}-slot", dtype).removesuffix(", in slot order") for name in NAMED
        },
        **{
            side: {
                **{
                    k: found[side][k]
                    for k in ("candidate", "closest", "same_as", "elements", "rows")
                },
                "text": _order_text(side.upper(), found[side], dtype),
            }
            for side in ("a", "b")
        },
        "sentence": SAME_ORDER if known and differ and not outside else None,
        "by_layer": layers,
    }


def _total(parts: dict[int, Agreement]) -> Agreement:
    whole = Agreement()
    for part in parts.values():
        whole.num_elements += part.num_elements
        whole.num_rows += part.num_rows
        for mine, theirs in ((whole.elements, part.elements), (whole.rows, part.rows)):
            for name, count in theirs.items():
                mine[name] = mine.get(name, 0) + count
    return whole


def _order_text(side: str, found: dict[str, Any], dtype: Any) -> str:
    if found["candidate"] is None:
        return (
            f"{side} matches none of the candidates; the closest gives "
            f"{100 * found['elements']:.0f}% of its elements, so its experts' own outputs differ"
        )
    same = [name for name in found["same_as"] if name.endswith("-slot")]
    text = f"{side}: {text_of(found['candidate'], dtype)}"
    if same:
        text += f" (the same bits here as {', '.join(n.partition('-')[0] for n in same)})"
    return text


def outcome_with_modules(
    summary: Mapping[str, Any], first: Mapping[str, Any] | None
) -> dict[str, Any]:
    """How the comparison ends, now that its modules were run on equal inputs.

    What total error could not tell from rounding is a divergence when a module is beyond its
    rounding budget. The outcome without the model is kept, and comes back when these findings go.

    Args:
        summary: As `compare` wrote it.
        first: The first local error.

    Returns:
        The keys of the summary that change; none where nothing was found, or it had diverged.
    """
    if first is None or summary["status"] != "equal":
        return {}
    layer = "" if first["layer"] is None else f"layer {first['layer']} "
    module = str(first["module"]).replace("_", " ")
    same_dtype = summary["a"]["dtype"] == summary["b"]["dtype"]
    return {
        "status": "diverged",
        "reason": f"{layer}{module} is beyond its rounding budget on equal inputs",
        "verdict": "semantic" if same_dtype else "precision",
        "without_model": {key: summary[key] for key in ("status", "reason", "verdict")},
    }


def arbiter_json(
    findings: list[Finding], *, dtype: str | None, note: str, rows: int
) -> dict[str, Any]:
    """What the arbiter says of each side, over all modules."""
    verdicts = dict.fromkeys(("neither", "A", "B", "both", "unknown"), 0)
    for finding in findings:
        verdicts[finding.who] += 1
    outside = {w for w in ("A", "B", "both") if verdicts[w]}
    who = (
        "unknown"
        if dtype is None
        else "neither"
        if not outside
        else next(iter(outside))
        if len(outside) == 1
        else "both"
    )
    return {
        "dtype": dtype,
        "note": note,
        "rows": rows,
        "who": who,
        "modules": verdicts,
        "kinds": kinds_json(findings),
        "biases": biases(findings),
    }


def kinds_json(findings: list[Finding]) -> list[dict[str, Any]]:
    """Per module kind, over its layers: the medians of both sides and the largest local error."""
    found = []
    for module in MODULES:
        mine = [f for f in findings if f.module == module.name]
        if not mine:
            continue
        found.append(
            {
                "module": module.name,
                "layers": len(mine),
                "local": _most(f.median for f in mine),
                "max_local": _most(f.largest for f in mine),
                "budget": max(f.budget for f in mine),
                "over": sum(f.over for f in mine),
                "units_a": _most(f.units_a for f in mine),
                "units_b": _most(f.units_b for f in mine),
                "limit_units": _most(f.limit for f in mine),
            }
        )
    return found


def _most(values: Any) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if known else None


def biases(findings: list[Finding]) -> list[str]:
    """Sentences on sides whose rounding leans one way, one per module kind and side.

    In 16-bit types alone: a lean of half a unit of float32 moves nothing that anyone looks at.
    """
    found = []
    for module in MODULES:
        mine = [
            f
            for f in findings
            if f.module == module.name and f.who == "neither" and f.unit > _FINE_UNIT
        ]
        for side in ("a", "b"):
            leaning = [
                b
                for f in mine
                if (b := getattr(f, f"bias_{side}")) is not None and is_biased(b, f.rows)
            ]
            if len(leaning) < max(1, (len(mine) + 1) // 2):
                continue
            mean = sum(leaning) / len(leaning)
            named, way = module.name.replace("_", " "), "smaller" if mean < 0 else "larger"
            text = (
                f"{side.upper()}'s {named} is {way} than the exact result by {abs(mean):.2f} units "
                f"of rounding on average, in {len(leaning)} of {len(mine)} layers: within budget, "
                "and not what rounding to nearest leaves"
            )
            cuts = round(-mean / _MEAN_CUT)
            if mean < 0 and cuts >= 1 and abs(-mean - cuts * _MEAN_CUT) < 0.25:
                text += f"; cutting digits off {_TIMES.get(cuts, f'{cuts} times')} does that"
            found.append(text)
    return found
