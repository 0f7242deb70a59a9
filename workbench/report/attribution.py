"""The part of the report that attribution adds: who is wrong, module by module, and why.

Reads the summary alone. Never imports torch, transformers or vllm.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from workbench.comparison.result import Comparison
from workbench.report.words import share
from workbench.view.modules import WHO, module_text
from workbench.view.numbers import count, short

_SHOWN_MODULES: Final = 6


def attribution(comparison: Comparison) -> list[RenderableType]:
    """Renderables for the report, empty when the comparison was not attributed."""
    found = comparison.summary.get("attribution")
    if not isinstance(found, dict):
        return []
    parts: list[RenderableType] = [Text("Local errors: B's modules on A's inputs", "bold")]
    parts += [Text(note, "yellow") for note in _warnings(found)]
    parts.append(_verdict(comparison.summary, found))
    parts.append(_kinds(found["arbiter"]["kinds"]))
    parts += _beyond(found["modules"])
    parts += [Text(text) for text in _sentences(found)]
    return parts


def _warnings(found: Mapping[str, Any]) -> list[str]:
    """What must be said before anything else."""
    model, skipped = found["model"], found["not_attributable"]
    notes = []
    if model["weights_a"]["status"] == "different":
        notes.append(f"A's weights are not this model's: {model['weights_a']['text']}")
    if model["weights_b"]["status"] == "different":
        notes.append(f"B's weights are not this model's: {model['weights_b']['text']}")
    notes += model["notes"]
    if skipped["requests"]:
        name, reason = next(iter(skipped["requests"].items()))
        notes.append(f"{count(len(skipped['requests']))} requests left out, {name}: {reason}")
    if skipped["attention"]:
        first = skipped["attention"][0]
        notes.append(
            f"attention not attributable in {count(len(skipped['attention']))} requests, "
            f"{first['request']} from position {first['from_position']}: {first['reason']}"
        )
    return notes


def _verdict(summary: Mapping[str, Any], found: Mapping[str, Any]) -> Text:
    arbiter, first = found["arbiter"], summary["first"]["local_error"]
    judged = f"{arbiter['dtype']} over {count(arbiter['rows'])} rows"
    text = Text("arbiter  ", "dim")
    text.append(f"{WHO[arbiter['who']]}", "bold green" if first is None else "bold red")
    text.append(f"  ({judged})" if arbiter["dtype"] else f"  ({arbiter['note']})", "dim")
    return text


def _kinds(kinds: list[Mapping[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    table.add_column("module", no_wrap=True)
    for title in ("local", "max", "budget", "over", "A units", "B units", "limit"):
        table.add_column(title, justify="right", no_wrap=True)
    for kind in kinds:
        over = kind["over"]
        table.add_row(
            module_text(None, kind["module"]),
            short(kind["local"]),
            short(kind["max_local"]),
            short(kind["budget"]),
            Text(count(over), "bold red" if over else "dim"),
            short(kind["units_a"]),
            short(kind["units_b"]),
            short(kind["limit_units"]),
        )
    return table


def _beyond(modules: list[Mapping[str, Any]]) -> list[RenderableType]:
    beyond = sorted((m for m in modules if m["over"]), key=lambda m: -m["over"])
    found: list[RenderableType] = []
    for module in beyond[:_SHOWN_MODULES]:
        line = Text(module_text(module["layer"], module["module"]), "bold red")
        line.append(
            f": {share(module['over'], module['rows'])} of its rows beyond, median "
            f"{short(module['median'])}; outside: {module['who']}",
            "not bold default",
        )
        if module["includes"]:
            line.append(f"; cannot be told from {', '.join(module['includes'])}", "not bold yellow")
        found.append(line)
    if len(beyond) > _SHOWN_MODULES:
        found.append(Text(f"and {count(len(beyond) - _SHOWN_MODULES)} more modules", "dim"))
    return found


def _sentences(found: Mapping[str, Any]) -> list[str]:
    lines = list(found["arbiter"]["biases"])
    combine = found["combine"]
    if combine is not None:
        lines += [f"combine order: {combine['a']['text']}; {combine['b']['text']}"]
        if combine["sentence"]:
            lines.append(combine["sentence"])
    flips = found["flips"]
    if flips["flips"]:
        follows = flips["follows"]
        lines.append(
            f"flips: {count(flips['flips'])}, of them {count(flips['tie'])} ties, "
            f"{count(flips['explained'])} explained, {count(flips['unexplained'])} unexplained; "
            f"{count(follows['input'])} follow the input, {count(follows['gate'])} the gate"
        )
    return lines
