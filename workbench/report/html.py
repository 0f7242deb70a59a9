"""A comparison as HTML: one self-contained page, and a short block for a saved notebook.

No script, no link, no request to anywhere: what is shown is all in the text. Token texts come from
a model's vocabulary and may hold anything, so every text is escaped here, where it becomes HTML.
"""

from __future__ import annotations

from html import escape as to_html
from string import Template
from typing import Final
from urllib.parse import quote as quote_address

from workbench.names import DEFAULT_CLASS_ORDER, DIRECTION, SAMPLING_SIDE, SIDE_A, SIDE_B
from workbench.report.panels import Panel, Row, panels
from workbench.report.svg import overview_svg, window_svg
from workbench.view import palette
from workbench.view.classes import CLASS_HELP, CLASS_TITLES
from workbench.view.facts import SideFacts
from workbench.view.headline import Headline, headline, verdict_line
from workbench.view.lenses import LENSES
from workbench.view.model import ViewModel
from workbench.view.numbers import count
from workbench.view.palette import ABSENT, LOOKS, code_of_level
from workbench.view.rows import escape, quote

_PAGE: Final = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>$style</style>
</head>
<body>
<main>
$body
</main>
</body>
</html>
""")

_STYLE: Final = Template("""
:root { color-scheme: light dark; --ink: #1b1f27; --dim: #5b6472; --rule: #d7dbe2; --paper: #fff; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8ec; --dim: #98a1b0; --rule: #39414f; --paper: #171b24; }
}
body { margin: 0; background: var(--paper); color: var(--ink); }
body { font: 14px/1.5 system-ui, sans-serif; }
main { max-width: 960px; margin: 0 auto; padding: 24px 16px 48px; }
h1 { font-size: 18px; margin: 0 0 4px; } h2 { font-size: 14px; margin: 24px 0 6px; }
p { margin: 4px 0; } .dim { color: var(--dim); } .strong { font-weight: 700; }
svg { display: block; margin: 12px 0; }
table { border-collapse: collapse; font: 12px/1.6 ui-monospace, Menlo, Consolas, monospace; }
th, td { padding: 1px 12px 1px 0; text-align: right; white-space: nowrap; }
th { color: var(--dim); font-weight: 400; border-bottom: 1px solid var(--rule); }
th:first-child, td:first-child, td[colspan], .words th, .words td { text-align: left; }
.chip { border-radius: 3px; padding: 0 6px; font-weight: 700; }
.a { background: $a; color: #fff; } .b { background: $b; color: #000; }
.tables { display: flex; flex-wrap: wrap; gap: 0 40px; }
""").substitute(a=palette.SIDE_A_FILL, b=palette.SIDE_B_FILL)


def page(model: ViewModel, window: tuple[int, int, int, int] | None = None) -> str:
    """The comparison as one HTML file: finding, overview, cells round the cursor, both sides.

    Args:
        model: The view-model.
        window: The part of the grid to draw; round the cursor when not given.
    """
    name = escape(model.facts.model) or "comparison"
    body = [
        f"<h1>kldive · {to_html(name)}</h1>",
        f"<p>{_side(SIDE_A, 'a', model.facts.a)} &nbsp; {_side(SIDE_B, 'b', model.facts.b)}</p>",
        _line(verdict_line(model)),
    ]
    if not model.num_rows:
        return _document(name, [*body, "<p>No rows were compared.</p>"])
    body += [
        _line(headline(model)),
        overview_svg(model),
        window_svg(model, window),
        _legend(model),
        _firsts(model),
        *_cell(model),
        f'<p class="dim">{to_html(DIRECTION)}<br>{to_html(SAMPLING_SIDE)}</p>',
        f"<p>step through it: <code>{to_html(_command(model))}</code></p>",
    ]
    return _document(name, body)


def block(model: ViewModel) -> str:
    """The finding with the overview, for places where the widget itself cannot run."""
    parts = [
        f"<p>{_side(SIDE_A, 'a', model.facts.a)} {_side(SIDE_B, 'b', model.facts.b)}</p>",
        _line(verdict_line(model)),
        _line(headline(model)) if model.num_rows else "",
        _image(overview_svg(model), verdict_line(model).text) if model.num_rows else "",
        f"<p><code>{to_html(_command(model))}</code></p>",
    ]
    # Styles in place: what renders a saved notebook may drop a style element.
    text = "".join(parts)
    for name, style in _IN_PLACE.items():
        text = text.replace(f'class="chip {name}"', f'style="{style}"')
    return f'<div style="max-width:960px;font-family:system-ui,sans-serif">{text}</div>'


def _image(svg: str, alternative: str) -> str:
    """A picture that survives where SVG elements are dropped, as from a stranger's notebook."""
    source = quote_address(svg, safe=" =:/,;()")
    return (
        f'<img alt="{to_html(alternative, quote=True)}" style="width:100%" '
        f'src="data:image/svg+xml,{source}">'
    )


_CHIP: Final = "border-radius:3px;padding:0 6px;font-weight:700;"
_IN_PLACE: Final = {
    "a": f"{_CHIP}background:{palette.SIDE_A_FILL};color:#fff",
    "b": f"{_CHIP}background:{palette.SIDE_B_FILL};color:#000",
}


def _document(name: str, body: list[str]) -> str:
    return _PAGE.substitute(title=f"kldive · {to_html(name)}", style=_STYLE, body="\n".join(body))


def _side(title: str, name: str, facts: SideFacts) -> str:
    words = " ".join(filter(None, (facts.engine, facts.version, facts.dtype)))
    return f'<span class="chip {name}">{to_html(title)}</span> {to_html(escape(words))}'


def _line(found: Headline) -> str:
    weight = ' class="strong"' if found.tone in ("finding", "warning") else ""
    return f"<p{weight}>{to_html(escape(found.text))}</p>"


def _command(model: ViewModel) -> str:
    return f"kldive tui {escape(str(model.source.directory))} --at '{model.address()}'"


def _legend(model: ViewModel) -> str:
    lens = LENSES[model.state.lens]
    entries = [(code_of_level(level), text) for level, text in enumerate(lens.legend)]
    chips = " ".join(
        f'<span style="white-space:nowrap;margin-right:14px"><span class="chip" style="'
        f'background:{LOOKS[code].fill};color:{LOOKS[code].text}">{LOOKS[code].glyph}</span> '
        f"{to_html(text)}</span>"
        for code, text in [*entries, (ABSENT, lens.absent)]
    )
    return f'<p class="dim">levels of the lens {to_html(lens.title)}: {chips}</p>'


def _firsts(model: ViewModel) -> str:
    """The first cell of every class, and how many there are."""
    counts = model.class_counts()
    lines = []
    for klass in DEFAULT_CLASS_ORDER:
        first = model.jumps(klass, "token").first()
        cells = ("none", "", "")
        if first is not None:
            where, text = model.address(first), quote(model.text(first.row), 16)
            cells = (count(counts[klass]), where, text)
        lines.append((CLASS_TITLES[klass], *cells, CLASS_HELP[klass]))
    head = ("class", "cells", "first", "token", "what it is")
    return (
        "<h2>First divergences</h2>"
        f'<table class="words"><tr>{_cells("th", head)}</tr>'
        + "".join(f"<tr>{_cells('td', line)}</tr>" for line in lines)
        + "</table>"
    )


def _cell(model: ViewModel) -> list[str]:
    facts = model.cell_facts()
    _, meaning = model.meaning()
    token = facts.token
    about = f"{token.request} · position {token.position} · {token.phase} · id {token.token_id}"
    tables = panels(model)
    title = f"At {facts.address} {quote(token.text, 24)}: {meaning}"
    return [
        f"<h2>{to_html(title)}</h2>",
        f'<p class="dim">{to_html(escape(about))}</p>',
        f'<div class="tables">{"".join(_table(panel) for panel in tables)}</div>',
    ]


def _table(panel: Panel) -> str:
    head = "".join(
        f"<th>{_chip(side)}{to_html(title)}</th>"
        for title, side in zip(panel.head, panel.sides, strict=True)
    )
    rows = "".join(_table_row(row, len(panel.head)) for row in panel.rows)
    notes = "".join(
        f'<p class="{"strong" if tone == "strong" else "dim"}">{to_html(escape(text))}</p>'
        for text, tone in panel.notes
    )
    table = f"<table><tr>{head}</tr>{rows}</table>" if panel.head else ""
    return f"<section><h2>{to_html(panel.title)}</h2>{table}{notes}</section>"


def _chip(side: str) -> str:
    return f'<span class="chip {side.lower()}">{side}</span> ' if side else ""


def _table_row(row: Row, columns: int) -> str:
    weight = ' class="strong"' if row.tone == "strong" or row.mark == "focus" else ""
    cells = [to_html(text) for text in row.cells]
    if row.mark in ("A", "B"):
        cells[0] = f"{cells[0]} only {row.mark}"
    if len(cells) < columns:
        rest = columns - len(cells) + 1
        return f"<tr{weight}><td>{cells[0]}</td><td colspan={rest}>{cells[1]}</td></tr>"
    return f"<tr{weight}>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _cells(tag: str, texts: tuple[str, ...]) -> str:
    return "".join(f"<{tag}>{to_html(text)}</{tag}>" for text in texts)
