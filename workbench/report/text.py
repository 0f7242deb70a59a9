"""The one-screen report of a comparison: what was compared, the numbers, the firsts, the place.

Rendered with rich, so that tables align; without colour unless asked. Never imports torch,
transformers or vllm.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from workbench.comparison.result import Comparison
from workbench.names import DEFAULT_CLASS_ORDER, DIVERGENCE_CLASSES
from workbench.report.numbers import count, escaped, number, place, share
from workbench.report.place import SideBySide, neighbourhood, side_by_side

STATUS_STYLE = {"equal": "bold green", "diverged": "bold red", "not_comparable": "bold yellow"}
CLASS_TITLES = {
    "bit": "bit difference",
    "rounding": "beyond rounding",
    "flip": "router flip",
    "unexplained_flip": "unexplained flip",
    "local_error": "local error",
    "logprob": "log-probability",
}


def show(comparison: Comparison, *, width: int = 100, color: bool = False) -> str:
    """The report of a comparison as text, at most `width` columns wide."""
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=color,
        no_color=not color,
        color_system="standard" if color else None,
        highlight=False,
        legacy_windows=False,
    )
    console.print(report(comparison))
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().rstrip().splitlines())


def report(comparison: Comparison) -> RenderableType:
    """The report as a rich renderable."""
    summary = comparison.summary
    parts: list[RenderableType] = [_facts(summary), Text(), _firsts(summary)]
    lead = lead_entry(summary)
    if lead is None:
        parts += [Text(), Text("No divergence of any class: every compared cell is bit-equal.")]
    else:
        parts += [Text(), *_around(comparison, *lead)]
    parts += [Text(), Text(f"step through it:  kldive tui {comparison.directory}", style="bold")]
    return Group(*parts)


def lead_entry(summary: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
    """The class that leads the report and its first divergence, or None when nothing differs."""
    for name in DEFAULT_CLASS_ORDER:
        entry = summary["first"][name]
        if entry is not None:
            return name, entry
    return None


def _facts(summary: Mapping[str, Any]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for side, title in (("a", "A rollout"), ("b", "B trainer")):
        facts = summary[side]
        table.add_row(title, f"{facts['engine']} {facts['version']} · {facts['dtype']}")
    table.add_row("model", _model(summary["a"]["model"]))
    status = Text(summary["status"].replace("_", " ").upper(), STATUS_STYLE[summary["status"]])
    status.append(f"  verdict: {summary['verdict']}", "bold")
    if summary.get("reason"):
        status.append(f"  {summary['reason']}", "not bold")
    table.add_row("result", status)
    table.add_row("weights", _weights(summary))
    rows = summary["rows"]
    table.add_row(
        "rows", f"{share(rows['compared'], rows['expected'])} compared, token ids proved equal"
    )
    kl = summary["kl"]
    table.add_row(
        "KL(A‖B)",
        f"exact {number(kl['exact_mean'])} · k1 {number(kl['k1'])} · k2 {number(kl['k2'])} · "
        f"k3 {number(kl['k3'])}   nats per token, {summary['probability']['over']}",
    )
    table.add_row(
        "|dlogp|",
        f"max {number(summary['max_abs_dlogp'])} · "
        f"mean {number(summary['probability']['abs_dlogp']['mean'])}   dlogp = logp A − logp B",
    )
    table.add_row("routing", _routing(summary["routing"]))
    table.add_row(
        "tolerance", f"{summary['tolerance']['profile']}: {summary['tolerance']['reason']}"
    )
    jump = summary["jump"]
    table.add_row("jump", "none: no site adds more than rounding" if jump is None else _jump(jump))
    return table


def _model(model: Mapping[str, Any]) -> str:
    return (
        f"{model['id']} · {model['architecture']}, {model['num_layers']} layers, "
        f"{model['num_experts']} experts, top-{model['top_k']}"
    )


def _weights(summary: Mapping[str, Any]) -> Text:
    detail = summary["weights_detail"]
    style = {"equal": "", "different": "bold red", "unknown": "yellow"}[summary["weights"]]
    return Text(f"{summary['weights']}: {detail['text']}", style)


def _routing(routing: Mapping[str, Any]) -> str:
    if not routing["compared"]:
        return "no router captured on both sides"
    return (
        f"other expert set in {share(routing['flips'], routing['compared'])} of (row, layer); "
        f"{count(routing['explained'])} explained, {count(routing['unexplained'])} unexplained, "
        f"{count(routing['unjudged'])} unjudged"
    )


def _jump(jump: Mapping[str, Any]) -> str:
    layer = "" if jump["layer"] is None else f"L{jump['layer']} "
    text = (
        f"{layer}{jump['site']}: relative error {number(jump['size'])}, "
        f"its inputs carry {number(jump['input_error'])}"
    )
    if jump.get("scale") is not None:
        text += f"; A ≈ {number(jump['scale'], 4)} × B"
    return text


def _firsts(summary: Mapping[str, Any]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    table.add_column("first …")
    table.add_column("where")
    table.add_column("token")
    table.add_column("size", justify="right")
    table.add_column("A", justify="right")
    table.add_column("B", justify="right")
    for name in DIVERGENCE_CLASSES:
        entry = summary["first"][name]
        title = CLASS_TITLES[name]
        if entry is None:
            why = "needs the model" if name == "local_error" else "none"
            table.add_row(title, Text(why, "dim"), "", "", "", "")
            continue
        table.add_row(
            title,
            place(entry),
            _quoted(entry["token"]),
            number(entry["size"]),
            _value(entry["a"]),
            _value(entry["b"]),
        )
    return table


def _value(value: Any) -> str:
    if isinstance(value, list):
        return "{" + ",".join(str(expert) for expert in value) + "}"
    return number(value, 5)


def _quoted(token: Any) -> str:
    return f"'{escaped(token)}'" if isinstance(token, str) else str(token)


def _around(comparison: Comparison, name: str, entry: Mapping[str, Any]) -> list[RenderableType]:
    row = int(entry["row"])
    before, here, after = neighbourhood(comparison.rows, row)
    text = Text("  …" if before.elided else "  ")
    text.append(escaped(before.text)).append(escaped(here), "reverse bold")
    text.append(escaped(after.text)).append("…" if after.elided else "")
    parts: list[RenderableType] = [
        Text(f"At the first {CLASS_TITLES[name]}, {place(entry)}:", "bold"),
        text,
    ]
    experts = side_by_side(comparison, row, entry["layer"])
    if experts is not None:
        parts += [Text(), _experts(experts)]
    return parts


def _experts(found: SideBySide) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    table.add_column("expert", justify="right")
    for side in ("A", "B"):
        table.add_column(f"{side} rank", justify="right")
        table.add_column(f"{side} logit", justify="right")
        table.add_column(f"{side} gate", justify="right")
    table.add_column("")
    for line in found.lines:
        table.add_row(
            str(line.expert),
            *(
                cell
                for side in (line.a, line.b)
                for cell in (
                    "·" if side.rank is None else str(side.rank),
                    number(side.logit, 6),
                    "·" if side.rank is None else number(side.gate, 5),
                )
            ),
            Text("only A" if line.b.rank is None else "only B" if line.a.rank is None else ""),
        )
    title = Text(f"router of layer {found.layer}: top-{found.top_k} by logit", "dim")
    margins = Text(
        f"margin k/k+1: A {number(found.margin_a, 4)}, B {number(found.margin_b, 4)}", "dim"
    )
    return Group(title, Padding(table, (0, 0, 0, 2)), margins)
