"""The inspector's part on local errors: the layer's modules on A's input, and who is wrong.

Pure drawing of facts, within a given width and height.
"""

from __future__ import annotations

import math
from textwrap import wrap
from typing import Final

from rich.segment import Segment
from rich.style import Style

from tui.sections import FULL_TABLE, Line
from tui.styles import BASE, BOLD, GOOD, MUTED, SIDE_A, SIDE_B
from workbench.view.inspector import CellFacts
from workbench.view.local import Attribution, ModuleError
from workbench.view.modules import WHO, short_title
from workbench.view.numbers import compact_count, count, short, times
from workbench.view.rows import cut
from workbench.view.state import LensId

Said = tuple[str, Style]

_VALUES: Final[dict[str, str]] = {"local": "local", "inherited": "inherit", "total": "total"}


def arbiter(
    facts: CellFacts, found: Attribution, lens: LensId, width: int, height: int
) -> list[Line]:
    """The table of modules, then what it comes to.

    With fewer lines, modules that are within budget go first, then the small print.
    """
    errors = facts.errors
    number = lens if lens in _VALUES else "local"
    judged = any(e.units_a is not None for e in errors)
    wide = width >= FULL_TABLE
    heading = [Segment(f" {'module':<14} {_VALUES[number]:>7} budget", MUTED)]
    if wide:
        heading += [Segment("    A", SIDE_A), Segment("    B", SIDE_B)]
    sentences = [
        [[Segment(f" {part}", style)] for part in wrap(text, max(8, width - 2))]
        for text, style in (*_conclusion(facts, found), *_scope(found, judged=judged))
    ]
    room = height - 1 - sum(map(len, sentences))
    shown = _most_telling(facts, number, max(2, room), height)
    lines: list[Line] = [heading]
    lines += [_module(facts, e, number, judged=judged, wide=wide) for e in shown]
    if len(shown) < len(errors):
        lines.append([Segment(f"   … {len(errors) - len(shown)} more modules, smaller", MUTED)])
    for sentence in sentences:
        if len(lines) + len(sentence) <= height:
            lines += sentence
    return lines[:height]


def _most_telling(facts: CellFacts, number: str, room: int, height: int) -> list[ModuleError]:
    """Modules that fit in `room` lines, beyond before in focus before large, in their order."""
    errors = facts.errors
    if len(errors) <= room or len(errors) + 2 <= height - 2:
        return list(errors)

    def weight(error: ModuleError) -> tuple[bool, bool, float]:
        return (error.over, error.site == facts.site, error.size(number) or 0.0)

    kept = sorted(errors, key=weight, reverse=True)[: max(1, room - 1)]
    return [error for error in errors if error in kept]


def arbiter_line(facts: CellFacts, width: int) -> list[Line]:
    """The section folded into one line."""
    beyond = [error for error in facts.errors if error.over]
    known = [(size, e) for e in facts.errors if (size := e.size("local")) is not None]
    if beyond:
        names = ", ".join(f"{short_title(e.verdict.module)} ({e.outside})" for e in beyond)
        return [[Segment(" 6 ", MUTED), Segment(cut(f"outside: {names}", width - 3), BOLD)]]
    if not known:
        return [[Segment(cut(" 6 local error not attributable here", width), MUTED)]]
    size = max(size for size, _ in known)
    if size == 0:
        text = "every module equal on the same input"
    else:
        text = f"modules within budget, at most {times(size)}"
    return [[Segment(" 6 ", MUTED), Segment(cut(text, width - 3), GOOD)]]


def _module(facts: CellFacts, error: ModuleError, number: str, *, judged: bool, wide: bool) -> Line:
    in_focus = error.site == facts.site
    style = BOLD if error.over or in_focus else BASE
    value = {"local": error.local, "inherited": error.inherited, "total": error.total}[number]
    name = f"{'▶' if in_focus else ' '}{short_title(error.verdict.module):<14}"
    if value is None:
        return [Segment(name, style), Segment("  not attributable here", MUTED)]
    units_a, units_b = error.units_a, error.units_b
    if not judged:
        units_a, units_b = error.verdict.units_a, error.verdict.units_b
    size = f"   equal{'':7}"
    if value:
        share = error.of_budget if number == "local" else error.size(number)
        size = f" {short(value, 1):>7} {'' if share is None else times(share):>6}"
    line = [Segment(name, style), Segment(size, style if value else MUTED)]
    if wide:
        line += [_units(units_a, SIDE_A), _units(units_b, SIDE_B)]
    return [*line, Segment(f" {error.outside}", BOLD)]


def _units(value: float | None, side: Style) -> Segment:
    if value is None or not math.isfinite(value):
        return Segment(f"{short(value):>5}", side)
    text = "0" if value == 0 else f"{value:.1f}" if value < 100 else compact_count(int(value))
    return Segment(f"{text:>5}", side if value else MUTED)


def _scope(found: Attribution, *, judged: bool) -> list[Said]:
    """What the two right columns are."""
    if found.arbiter is None:
        return [("A, B: no exact copy of the model, so nobody says which side is wrong", MUTED)]
    of = "at this row" if judged else "medians of the layer: not judged at this row"
    return [(f"A, B: units of rounding from {found.arbiter}, {of}", MUTED)]


def _conclusion(facts: CellFacts, found: Attribution) -> list[Said]:
    """Who is outside in this layer, module by module; the combine order where nobody is."""
    over = [error.verdict for error in facts.errors if error.verdict.over]
    if not over:
        known = any(error.local is not None for error in facts.errors)
        text = "no module of this layer is beyond its budget"
        lines: list[Said] = [(text, GOOD)] if known else []
        return lines + _combine(facts, found)
    lines = []
    for verdict in over[:2]:
        share = f"{count(verdict.over)} of {count(verdict.rows)} rows beyond"
        lines.append((f"{short_title(verdict.module)}: {share}", BOLD))
        scale = "" if verdict.scale is None else f"; A ≈ {verdict.scale:.4g} × B"
        lines.append((f"{WHO.get(verdict.who, verdict.who)}{scale}", BASE))
        if verdict.includes:
            names = ", ".join(map(short_title, verdict.includes))
            lines.append((f"cannot be told from {names}", MUTED))
    if len(over) > 2:
        lines.append((f"and {len(over) - 2} more modules", MUTED))
    return lines


def _combine(facts: CellFacts, found: Attribution) -> list[Said]:
    experts = any(e.verdict.module == "routed_experts" for e in facts.errors)
    return [(f"combine order: {found.combine}", BASE)] if experts and found.combine else []
