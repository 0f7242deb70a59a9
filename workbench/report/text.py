"""The one-screen report of a comparison: what was compared, the numbers, the firsts, the place.

A face over the view-model, like the workbench: the same words, the same numbers, no colour unless
asked. Never imports torch, transformers or vllm.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any, Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from workbench.comparison.newer import newer_notes
from workbench.comparison.result import Comparison
from workbench.names import DIVERGENCE_CLASSES, DivergenceClass, Status, WeightsStatus
from workbench.report.attribution import attribution
from workbench.report.experiments import experiments
from workbench.report.words import place, share
from workbench.view.classes import CLASS_TITLES
from workbench.view.headline import explained_word
from workbench.view.inspector import RouterFacts
from workbench.view.model import ViewModel
from workbench.view.numbers import count, fixed, short
from workbench.view.rows import quote, strip_tokens
from workbench.view.state import Cell

STATUS_STYLE: Final[dict[Status, str]] = {
    "equal": "bold green",
    "diverged": "bold red",
    "not_comparable": "bold yellow",
}
WEIGHTS_STYLE: Final[dict[WeightsStatus, str]] = {
    "equal": "",
    "different": "bold red",
    "unknown": "yellow",
}
_TABLE: Final[dict[str, Any]] = {
    "box": box.SIMPLE_HEAD,
    "pad_edge": False,
    "padding": (0, 1),
    "show_edge": False,
}


def show(comparison: Comparison, *, width: int = 100, color: bool = False) -> str:
    """The report of a comparison as text, at most `width` columns wide."""
    return written(report(comparison, width), width=width, color=color)


def written(content: RenderableType, *, width: int = 100, color: bool = False) -> str:
    """A renderable of rich as text."""
    page = io.StringIO()
    console = Console(
        file=page,
        width=width,
        force_terminal=color,
        # In a notebook rich would show the page there instead of writing it.
        force_jupyter=False,
        color_system="standard" if color else None,
        highlight=False,
        legacy_windows=False,
    )
    console.print(content, crop=False)
    return "\n".join(line.rstrip() for line in page.getvalue().rstrip().splitlines())


def report(comparison: Comparison, width: int = 100) -> RenderableType:
    """The report as a rich renderable."""
    summary = comparison.summary
    parts: list[RenderableType] = [_facts(summary), Text(), _firsts(summary)]
    if attributed := attribution(comparison):
        parts += [Text(), *attributed]
    if experimented := experiments(comparison):
        parts += [Text(), *experimented]
    if comparison.num_rows:
        parts += [Text(), *_around(ViewModel(comparison), summary, width)]
    # A command must not be broken over lines, however long its path.
    command = Text(f"step through it:  kldive tui {comparison.directory}", "bold", no_wrap=True)
    command.overflow = "ignore"
    parts += [Text(), command]
    return Group(*parts)


def _facts(summary: Mapping[str, Any]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    probability, rows, jump = summary["probability"], summary["rows"], summary["jump"]
    table.add_row("A rollout", _side(summary["a"]))
    table.add_row("B trainer", _side(summary["b"]))
    table.add_row("model", _model(summary["a"]["model"]))
    for title, text in newer_notes(summary):
        table.add_row(title, Text(text, "bold yellow"))
    table.add_row("result", _result(summary))
    weights = summary["weights"]
    table.add_row(
        "weights", Text(f"{weights}: {summary['weights_detail']['text']}", WEIGHTS_STYLE[weights])
    )
    table.add_row(
        "rows", f"{share(rows['compared'], rows['expected'])} compared, token ids proved equal"
    )
    table.add_row("KL(A‖B)", f"{_kl(summary['kl'])}  nats per token")
    table.add_row("", f"over {count(probability['n'])} {probability['over']}")
    table.add_row(
        "|dlogp|",
        f"max {short(summary['max_abs_dlogp'])} · mean {short(probability['abs_dlogp']['mean'])}"
        "  dlogp = logp A − logp B",
    )
    table.add_row("routing", _routing(summary["routing"]))
    table.add_row(
        "tolerance", f"{summary['tolerance']['profile']}: {summary['tolerance']['reason']}"
    )
    table.add_row("jump", "none: no site adds more than rounding" if jump is None else _jump(jump))
    return table


def _side(side: Mapping[str, Any]) -> str:
    words = [f"{side['engine']} {side['version']}".strip(), side["dtype"]]
    if not side["complete"]:
        words.append("INCOMPLETE")
    return " · ".join(word for word in words if word)


def _model(model: Mapping[str, Any]) -> str:
    return (
        f"{model['id']} · {model['architecture']}, {model['num_layers']} layers, "
        f"{model['num_experts']} experts, top-{model['top_k']}"
    )


def _result(summary: Mapping[str, Any]) -> Text:
    status: Status = summary["status"]
    text = Text(status.replace("_", " ").upper(), STATUS_STYLE[status])
    text.append(f" · {summary['verdict']}", "bold")
    return text.append(f": {summary['reason']}" if summary["reason"] else "", "not bold")


def _kl(kl: Mapping[str, float | None]) -> str:
    names = {"exact_mean": "exact", "k1": "k1", "k2": "k2", "k3": "k3"}
    return " · ".join(f"{title} {short(kl[name])}" for name, title in names.items())


def _routing(routing: Mapping[str, Any]) -> str:
    if not routing["compared"]:
        return "no router recorded on both sides"
    flips = f"another expert set in {share(routing['flips'], routing['compared'])} of (row, layer)"
    if not routing["flips"]:
        return flips
    kinds = [
        f"{count(routing[name])} {name}"
        for name in ("explained", "unexplained", "unjudged")
        if routing[name]
    ]
    return f"{flips}: {', '.join(kinds)}"


def _jump(jump: Mapping[str, Any]) -> str:
    layer = "" if jump["layer"] is None else f"L{jump['layer']} "
    text = (
        f"{layer}{jump['site']}: median relative error {short(jump['size'])}, "
        f"its inputs carry {short(jump['input_error'])}"
    )
    return f"{text}; A ≈ {jump['scale']:.4g} × B" if jump["constant"] else text


def _firsts(summary: Mapping[str, Any]) -> Table:
    table = Table(**_TABLE)
    for title in ("first …", "where", "token"):
        table.add_column(title)
    for title in ("size", "A", "B"):
        table.add_column(title, justify="right")
    for klass in DIVERGENCE_CLASSES:
        entry = summary["first"][klass]
        if entry is None:
            table.add_row(CLASS_TITLES[klass], Text(_why_none(summary, klass), "dim"))
            continue
        table.add_row(
            CLASS_TITLES[klass],
            place(entry),
            quote(entry["token"], 12),
            _size(klass, entry["size"]),
            _value(entry["a"]),
            _value(entry["b"]),
        )
    return table


def _size(klass: DivergenceClass, size: float | None) -> str:
    if klass == "flip" and size is not None:
        return f"{size:.0f} expert" + ("s" if size != 1 else "")
    return short(size)


def _why_none(summary: Mapping[str, Any], klass: DivergenceClass) -> str:
    if klass == "local_error" and "attribution" not in summary:
        return "needs the model: kldive attribute"
    return "none"


def _value(value: Any) -> str:
    if isinstance(value, list):
        return "{" + ",".join(str(expert) for expert in value) + "}"
    return fixed(value)


def _around(model: ViewModel, summary: Mapping[str, Any], width: int) -> list[RenderableType]:
    """The cell the workbench would open at: its text, and both sides' experts."""
    state = model.state
    entry = summary["first"][state.klass]
    if entry is None:
        return [Text("No divergence of any class: every compared cell is bit-equal.")]
    first, stop = model.request_rows(state.row)
    strip = Text("  ")
    for token in strip_tokens(model.text, row=state.row, first=first, stop=stop, width=width - 8):
        mark = ("[", "]", "bold reverse") if token.row == state.row else ("", "", "")
        strip.append(f"{mark[0]}{token.text}{mark[1]}", mark[2])
    parts: list[RenderableType] = [
        Text(f"at the first {CLASS_TITLES[state.klass]}, {place(entry)}:", "bold"),
        strip,
    ]
    layer = _layer_to_show(model, entry)
    router = model.cell_facts(Cell(layer=layer, row=state.row)).router
    return parts if router is None else [*parts, Text(), _experts(router, layer)]


def _layer_to_show(model: ViewModel, entry: Mapping[str, Any]) -> int:
    """The entry's layer; for a row as a whole its first layer that flips, or the last."""
    if entry["layer"] is not None:
        return int(entry["layer"])
    row = model.state.row
    for layer in range(model.num_layers):
        router = model.cell_facts(Cell(layer=layer, row=row)).router
        if router is not None and router.num_flips:
            return layer
    return model.num_layers - 1


def _experts(router: RouterFacts, layer: int) -> RenderableType:
    table = Table(**_TABLE)
    table.add_column("expert", justify="right")
    for side in ("A rollout", "B trainer"):
        table.add_column(f"{side} #", justify="right")
        table.add_column("logit", justify="right")
        table.add_column("gate", justify="right")
    table.add_column("")
    for row in router.experts:
        table.add_row(
            str(row.expert),
            *_expert_side(row.rank_a, row.logit_a, row.gate_a),
            *_expert_side(row.rank_b, row.logit_b, row.gate_b),
            "" if row.on == "both" else f"only {row.on}",
        )
    margins = f"margin k/k+1: A {short(router.margin_a.gap)}, B {short(router.margin_b.gap)}"
    if router.num_flips:
        margins += f" · flip {explained_word(router)}"
        if router.needed is not None and router.bound is not None:
            margins += f": needs {short(router.needed)}, inputs can move {short(router.bound)}"
    return Group(
        Text(f"  router of layer {layer}, experts by rank", "dim"),
        Padding(table, (0, 0, 0, 2)),
        Padding(Text(margins, "dim"), (0, 0, 0, 2)),
    )


def _expert_side(rank: int | None, logit: float | None, gate: float | None) -> tuple[str, str, str]:
    return ("–" if rank is None else str(rank), fixed(logit), fixed(gate))
