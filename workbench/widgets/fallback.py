"""What a saved, exported or unrunnable notebook shows in the widget's place: text and a picture."""

from __future__ import annotations

from workbench.report import html
from workbench.view.headline import headline, verdict_line
from workbench.view.model import ViewModel


def static_bundle(model: ViewModel) -> dict[str, str]:
    """What a saved notebook shows without a kernel: the short report, and the overview."""
    return {"text/plain": short_report(model), "text/html": html.block(model)}


def short_report(model: ViewModel) -> str:
    """The finding in at most a dozen lines."""
    facts = model.facts
    lines = [
        f"kldive · {facts.model}",
        f"A rollout  {facts.a.engine} {facts.a.version} {facts.a.dtype}",
        f"B trainer  {facts.b.engine} {facts.b.version} {facts.b.dtype}",
        verdict_line(model).text,
        headline(model).text,
        f"step through it:  kldive tui {model.source.directory}",
    ]
    return "\n".join(line.rstrip() for line in lines)
