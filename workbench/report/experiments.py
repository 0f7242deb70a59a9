"""The part of the report that experiments add: proof, routing ladder, swaps, map, bisection.

Reads the summary alone. Never imports torch, transformers or vllm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from workbench.comparison.result import Comparison
from workbench.view.bars import bar
from workbench.view.modules import module_text
from workbench.view.numbers import count, short

_SHOWN_CELLS: Final = 8
_STATE_STYLE: Final = {"proved": "bold green", "suspected": "bold yellow", "none": "dim"}


def experiments(comparison: Comparison) -> list[RenderableType]:
    """Renderables for the report, empty when no experiment was run."""
    summary = comparison.summary
    parts: list[RenderableType] = []
    if isinstance(proof := summary.get("proof"), dict):
        parts.append(_proof(proof))
    if isinstance(rungs := summary.get("ladder"), list) and rungs:
        parts += [Text("Routing ladder: KL left as B takes A's routing", "bold"), _ladder(rungs)]
    if isinstance(swaps := summary.get("swaps"), list) and swaps:
        parts += [Text("Swaps: B again, with parts of A", "bold"), _swaps(swaps)]
    if isinstance(swapped := summary.get("engine_swap"), dict):
        parts.append(Text(_engine_text(swapped)))
    if isinstance(found := summary.get("swap_map"), dict):
        parts += [Text(_map_title(found), "bold"), _map(found)]
    if isinstance(bisection := summary.get("bisection"), dict):
        parts.append(Text(bisection_text(bisection)))
    return parts


def bisection_text(found: Mapping[str, Any]) -> str:
    """What a bisection found, in one sentence."""
    threshold, before = short(found["threshold"]), short(found["kl_before"])
    cost = (
        f"{count(found['forward_passes'])} forward passes, {count(found['candidates'])} candidates"
    )
    if found["state"] == "below":
        return f"bisection: KL {before} is under {threshold} with nothing swapped"
    if found["state"] == "not_removable":
        left = short(found["kl_everything"])
        return f"bisection: every module swapped still leaves KL {left}, over {threshold} ({cost})"
    names = ", ".join(module_text(m["layer"], m["module"]) for m in found["modules"])
    after = short(found["kl_after"])
    return f"bisection: {names} take KL from {before} to {after}, under {threshold} ({cost})"


def _proof(proof: Mapping[str, Any]) -> Text:
    text = Text("proof  ", "dim")
    text.append(str(proof["state"]), _STATE_STYLE.get(str(proof["state"]), ""))
    text.append(f"  {proof['text']}", "not bold default")
    return text


def _ladder(rungs: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("rung", "KL", "k3", "max |dlogp|", "left", "")
    for rung in rungs:
        if rung.get("kl") is None:
            reason = Text(str(rung["reason"] or "no number"), "dim")
            table.add_row(str(rung["rung"]), "–", "–", "–", "–", reason)
            continue
        left = rung["left"]
        table.add_row(
            str(rung["rung"]),
            short(rung["kl"]),
            short(rung["k3"]),
            short(rung["max_abs_dlogp"]),
            "–" if left is None else f"{100 * left:.0f}%",
            bar(left),
        )
    return table


def _swaps(swaps: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("taken from A", "what", "KL before", "KL after", "k3", "max |dlogp|")
    for swap in swaps:
        after = swap["after"]
        table.add_row(
            str(swap["name"]),
            "its values" if swap["kind"] == "values" else "its arithmetic",
            short(swap["kl_before"]),
            short(swap["kl_after"]),
            short(after["k3"]),
            short(after["max_abs_dlogp"]),
        )
    return table


def _engine_text(found: Mapping[str, Any]) -> str:
    return (
        f"B's MoE module inside the live engine, {count(len(found['layers']))} layers: "
        f"KL {short(found['kl_before'])} before, {short(found['kl_after'])} after"
    )


def _map_title(found: Mapping[str, Any]) -> str:
    return (
        f"Modules one by one over {count(found['rows'])} rows: KL {short(found['kl_before'])} "
        f"live, {short(found['kl_everything'])} with all swapped"
    )


def _map(found: Mapping[str, Any]) -> RenderableType:
    cells = [cell for cell in found["cells"] if cell["kl_without"] is not None]
    active = [cell for cell in cells if cell["differing_rows"] != 0]
    if not active:
        return Text("no module makes anything else of A's inputs than A did", "dim")
    table = _table("module", "KL removed by it alone", "KL left when all but it is swapped")
    ranked = sorted(active, key=lambda cell: -cell["kl_without"])
    for cell in ranked[:_SHOWN_CELLS]:
        name = module_text(cell["layer"], cell["module"])
        table.add_row(name, short(cell["kl_removed"]), short(cell["kl_without"]))
    if len(ranked) > _SHOWN_CELLS:
        table.add_row(Text(f"and {count(len(ranked) - _SHOWN_CELLS)} more", "dim"), "", "")
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    table.add_column(first, no_wrap=True)
    for title in others:
        table.add_column(title, justify="left" if title in ("", "what") else "right")
    return table
