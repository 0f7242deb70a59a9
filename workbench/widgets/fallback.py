"""What a saved, exported or unrunnable notebook shows in the widget's place: text and a picture.

JupyterLab prefers a widget over all else in an output, also when its kernel is gone, and then says
that there is none. What stands in for a widget is therefore an output of its own, after the
widget's; the living widget hides it, by its name.
"""

from __future__ import annotations

from typing import Any, Final

from IPython.display import display

from workbench.report import html
from workbench.view.headline import headline, verdict_line
from workbench.view.model import ViewModel

# An output that holds no element is a widget that is being looked for, or was not found. What
# stands in for it comes late, or it would flash by whenever a cell is run.
_STYLE: Final = """<style>
.jp-OutputArea-child:has(+ * .kld-saved) > .jp-OutputArea-output:not(:has(*)) { display: none; }
@keyframes kld-late { from { max-height: 0; overflow: hidden; } }
.kld-saved { animation: kld-late 0.8s step-end; }
</style>"""
_HINT: Final = "<p><i>Saved with the notebook. Run the cell to step through it.</i></p>"
_ELSEWHERE: Final = {
    "text/html": "<!-- the stepper, while its kernel runs; else see the next output -->",
    "text/plain": "",
}


def display_with_fallback(
    bundle: dict[str, Any], metadata: dict[str, Any], model: ViewModel, name: str
) -> None:
    """Displays a widget, and after it what stands in for it.

    Args:
        bundle: What the widget displays, by type.
        metadata: Of the bundle.
        model: What it shows.
        name: By which the widget's front end finds what to hide.
    """
    saved = f'<div class="kld-saved kld-saved-{name}">{_STYLE}{html.block(model)}{_HINT}</div>'
    for data, about in (
        ({**bundle, **_ELSEWHERE}, metadata),
        ({"text/html": saved, "text/plain": short_report(model)}, dict[str, Any]()),
    ):
        display(data, metadata=about, raw=True)  # type: ignore[no-untyped-call]


def static_bundle(model: ViewModel) -> dict[str, str]:
    """The short report and the overview, beside the widget in one bundle."""
    return {"text/plain": short_report(model), "text/html": html.block(model)}


def short_report(model: ViewModel) -> str:
    """The finding in at most a dozen lines."""
    facts = model.facts
    lines = [
        f"kldive · {facts.model}",
        f"A rollout  {facts.a.engine} {facts.a.version} {facts.a.dtype}",
        f"B trainer  {facts.b.engine} {facts.b.version} {facts.b.dtype}",
        *facts.newer,
        verdict_line(model).text,
        headline(model).text,
        f"step through it:  kldive tui {model.source.directory}",
    ]
    return "\n".join(line.rstrip() for line in lines)
