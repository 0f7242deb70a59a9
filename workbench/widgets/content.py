"""What the front end is told: once about the comparison, then about the state, and about a cell.

Plain values for JSON. Numbers are short texts already (workbench.report.panels), so that no NaN can
be lost on the way; grids travel as bytes.
"""

from __future__ import annotations

from copy import copy
from dataclasses import asdict, replace
from typing import Any, Final

from workbench.names import SIDE_A, SIDE_B
from workbench.report.panels import panels, profile_heights
from workbench.view import palette
from workbench.view.actions import ACTION_BY_ID
from workbench.view.classes import CLASS_TITLES
from workbench.view.facts import SideFacts
from workbench.view.headline import headline, verdict_line
from workbench.view.keymap import load_keymap
from workbench.view.lenses import LENSES
from workbench.view.model import ViewModel
from workbench.view.numbers import count
from workbench.view.rows import escape, heading_cell, quote, strip_tokens
from workbench.view.state import DENSE_ZOOM, TEXT_ZOOM, Cell
from workbench.view.tiles import pool_to_width
from workbench.widgets.keys import key_map
from workbench.widgets.windows import CHARACTER

OVERVIEW_COLUMNS: Final = 960
"""With 96 layers in base64 123 KB, so that a saved widget stays under 200 KB."""
STRIP_COLUMNS: Final = 130
MAX_MARKS: Final = 100


def about(model: ViewModel) -> dict[str, Any]:
    """What never changes: sizes, sides, colours, keys."""
    facts = model.facts
    return {
        "layers": model.num_layers,
        "rows": model.num_rows,
        "kinds": list(facts.kinds),
        "model": escape(facts.model.rstrip("/").rpartition("/")[2]),
        "sides": [_side(SIDE_A, facts.a), _side(SIDE_B, facts.b)],
        "warnings": _warnings(model),
        "character": CHARACTER,
        "looks": [asdict(look) for look in palette.LOOKS],
        "colors": {
            "background": palette.BACKGROUND,
            "panel": palette.PANEL,
            "raised": palette.RAISED,
            "rule": palette.RULE,
            "text": palette.TEXT,
            "muted": palette.MUTED,
            "accent": palette.ACCENT,
            "first": palette.RAMP[5],
            "warning": palette.RAMP[6],
            "pin": palette.SIDE_A_TEXT,
            "a": palette.SIDE_A_FILL,
            "b": palette.SIDE_B_FILL,
        },
        "actions": key_map(load_keymap()),
    }


def _side(title: str, facts: SideFacts) -> dict[str, str]:
    words = " ".join(filter(None, (facts.engine, facts.version, facts.dtype)))
    return {"title": title, "about": escape(words)}


def _warnings(model: ViewModel) -> list[str]:
    facts = model.facts
    found = [*facts.newer, *(["weights differ"] if facts.weights == "different" else [])]
    if facts.rows_compared < facts.rows_expected:
        found.append(f"{count(facts.rows_compared)} of {count(facts.rows_expected)} rows compared")
    return found


def overview(model: ViewModel) -> bytes:
    """The grid with at most 960 pooled columns, row by row, one byte per cell."""
    return pool_to_width(model.codes(), OVERVIEW_COLUMNS).tobytes()


def grid_name(model: ViewModel) -> str:
    """A name that changes with everything that the grid's codes depend on."""
    state = model.state
    return "|".join((state.lens, state.side, state.tolerance, str(state.filter)))


def screen(model: ViewModel) -> dict[str, Any]:
    """What the current state shows besides the grid and the inspector."""
    state, layout = model.state, model.geometry
    lens = LENSES[state.lens]
    return {
        "grid": grid_name(model),
        "lens": f"{lens.key} {lens.title}",
        "legend": [*model.legend(), lens.absent],
        "verdict": verdict_line(model)._asdict(),
        "headline": headline(model)._asdict(),
        "class": CLASS_TITLES[state.klass],
        "place": _place(model),
        "tolerance": state.tolerance,
        "side": state.side,
        "filter": str(state.filter),
        "find": escape(state.find),
        "step": layout.step,
        "cell": layout.cell_width,
        "dense": state.zoom >= DENSE_ZOOM,
        "text": state.zoom == TEXT_ZOOM,
        "site": state.site,
        "inspector": state.inspector,
        "back": _leads_back(model),
        "marks": [list(mark) for mark in sorted(state.marks)[:MAX_MARKS]],
        "firsts": [[row, CLASS_TITLES[klass]] for klass, row in model.first_rows().items()],
        "strip": _strip(model),
    }


def _leads_back(model: ViewModel) -> bool:
    """Whether going back ends something here, as a search; else it leads out of the widget."""
    quiet, back = replace(model.state, message=""), ACTION_BY_ID["back"].run
    return back is not None and back(quiet, model) != quiet


def _place(model: ViewModel) -> str:
    """Where the cursor is among the cells of its class."""
    if not model.num_rows:
        return "none"
    index = model.jumps(model.state.klass, model.state.order)
    before, here = index.place(model.state.cell)
    total = count(len(index)) if len(index) else "none"
    return f"{count(before + 1)} of {total}" if here else total


def _strip(model: ViewModel) -> dict[str, Any]:
    """The text round the cursor, and the worst code of each token."""
    if not model.num_rows:
        return {"request": "", "first": 0, "texts": [], "codes": []}
    row = model.state.row
    first, stop = model.request_rows(row)
    tokens = strip_tokens(model.text, row=row, first=first, stop=stop, width=STRIP_COLUMNS)
    rows = [token.row for token in tokens]
    worst_T = model.codes()[:, rows[0] : rows[-1] + 1].max(axis=0, initial=0)
    return {
        "request": escape(model.request(row)),
        "first": rows[0],
        "texts": [token.text for token in tokens],
        "codes": worst_T.tolist(),
        "before": rows[0] > first,
        "after": rows[-1] + 1 < stop,
    }


def headings(model: ViewModel, first: int, stop: int) -> dict[str, Any]:
    """Texts above columns of one token each, and which request each belongs to (0 or 1)."""
    width = model.geometry.cell_width
    rows = range(first, stop)
    return {
        "first": first,
        "texts": [heading_cell(model.text(row), width).rstrip() for row in rows],
        "requests": [model.request_index(row) % 2 for row in rows],
    }


def inspected(model: ViewModel, cell: Cell) -> dict[str, Any]:
    """Everything the inspector says of a cell, in words."""
    there = seen_from(model, cell)
    facts, (code, meaning) = there.cell_facts(), there.meaning()
    token = facts.token
    about_token = f"{escape(token.request)} · position {token.position} · {token.phase}"
    return {
        "at": list(cell),
        "address": facts.address,
        "token": f"{quote(token.text, 24)} id {token.token_id}",
        "about": about_token,
        "code": code,
        "meaning": meaning,
        "panels": [asdict(panel) for panel in panels(there)],
        "profile": {"site": facts.profile_site, "heights": list(profile_heights(facts))},
    }


def seen_from(model: ViewModel, cell: Cell) -> ViewModel:
    """The model with its cursor elsewhere; it shares every grid, and the state stays as it is."""
    there = copy(model)
    there.state = replace(model.state, layer=cell.layer, row=cell.row)
    return there
