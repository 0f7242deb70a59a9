"""The page of both vectors: what they come to, how many ULPs apart, and where they differ most."""

from __future__ import annotations

import math
from typing import Final

from rich.segment import Segment
from rich.style import Style

from tui.drill_page import Line, TextPage, paragraph
from tui.styles import BASE, BOLD, GOOD, MUTED, RULE, SIDE_A, SIDE_B
from workbench.view.bars import bar
from workbench.view.drill.vectors import Component, VectorFacts
from workbench.view.numbers import compact_count, count, short
from workbench.view.steps import of_budget

WIDE: Final = 112
"""Width from which the components stand beside the summary."""
_LEFT: Final = 52
_MAX_BAR: Final = 40


def vector_page(facts: VectorFacts, budget: float | None, width: int) -> TextPage:
    """The page.

    Args:
        facts: Both vectors, compared.
        budget: Relative L2 that rounding allows at this site; None where there is no budget.
        width: Columns.
    """
    if facts.problem:
        return TextPage(width, paragraph(facts.problem, MUTED, width))
    left_width = _LEFT if width >= WIDE else width
    left = [*_sentences(facts, left_width), [], *_summary(facts, budget)]
    if facts.integer:
        return TextPage(width, [*left, [], *_ids(facts)])
    left += [[], *_histogram(facts, left_width)]
    if not facts.components:
        return TextPage(width, left)
    if width < WIDE:
        return TextPage(width, [*left, [], *_components(facts, width)])
    heads, *right = _components(facts, width - _LEFT - 3)
    return TextPage(width, _beside(left, right), _beside([], [heads]))


def _beside(left: list[Line], right: list[Line]) -> list[Line]:
    num = max(len(left), len(right))
    left, right = left + [[]] * (num - len(left)), right + [[]] * (num - len(right))
    return [
        [*Segment.adjust_line_length(a, _LEFT, BASE), Segment(" │ ", RULE), *b]
        for a, b in zip(left, right, strict=True)
    ]


def _sentences(facts: VectorFacts, width: int) -> list[Line]:
    """What there is to know first."""
    what = "slots" if facts.integer else "experts" if facts.by_expert else "components"
    size = count(facts.size)
    if facts.bit_equal:
        lines = paragraph(f"equal bit for bit in all {size} {what}", GOOD, width)
    elif not facts.differing:
        lines = paragraph(f"the same values in all {size} {what}", GOOD, width)
    else:
        lines = paragraph(f"{count(facts.differing)} of {size} {what} differ", BOLD, width)
    if facts.scale_hint is not None:
        share = f"{100 * facts.scale_share:.0f}% of the squared error"
        text = f"A ≈ {facts.scale_hint:.5g} × B: this one factor explains {share}"
        lines += paragraph(text, BOLD, width)
    if facts.left_out:
        text = f"{count(facts.left_out)} more on one side alone are left out"
        lines += paragraph(text, MUTED, width)
    return lines


def _summary(facts: VectorFacts, budget: float | None) -> list[Line]:
    lines: list[Line] = [
        [Segment(f" {'':<13}{'A':>12}", SIDE_A), Segment(f"{'B':>12}", SIDE_B)],
        _row("type", facts.dtype_a, facts.dtype_b),
    ]
    if facts.integer:
        return lines
    share = of_budget(facts.rel_l2, budget)
    lines += [
        _row("norm", short(facts.norm_a, 3), short(facts.norm_b, 3)),
        _row("NaN or Inf", count(facts.nonfinite_a), count(facts.nonfinite_b)),
        [],
        _one("max |A − B|", short(facts.max_abs, 3)),
        _one("rel L2", short(facts.rel_l2, 3), share.replace("the rounding ", "")),
        _one("cosine", f"{facts.cosine:.6f}"),
    ]
    if facts.scale is not None and not facts.bit_equal and math.isfinite(facts.rel_l2):
        about = f"fits {100 * max(0.0, facts.scale_share):.0f}% of the error"
        lines.append(_one("best A / B", f"{facts.scale:.5g}", about))
    return lines


def _row(name: str, a: str, b: str) -> Line:
    return [
        Segment(f" {name:<13}", MUTED),
        Segment(f"{a:>12}", SIDE_A),
        Segment(f"{b:>12}", SIDE_B),
    ]


def _one(name: str, value: str, about: str = "") -> Line:
    return [
        Segment(f" {name:<13}", MUTED),
        Segment(f"{value:>12}", BASE),
        Segment(f"  {about}", MUTED),
    ]


def _histogram(facts: VectorFacts, width: int) -> list[Line]:
    """Components by distance, bars as shares of all."""
    room = min(_MAX_BAR, width - 28)
    total = max(1, facts.size)
    what = "experts" if facts.by_expert else "components"
    lines: list[Line] = [[Segment(f" {'ULPs apart':>11} {what:>11}", MUTED)]]
    for label, num in facts.histogram:
        style: Style = GOOD if label == "0" else BOLD if label == "NaN/Inf" else BASE
        share = num / total
        text = f"{100 * share:.0f}%" if share >= 0.005 or not num else "<1%"
        blocks = bar(share, room) or ("▏" if num else "")
        line = [Segment(f" {label:>11} {count(num):>11}", style if num else MUTED)]
        lines.append([*line, Segment(f"{text:>5} ", MUTED), Segment(blocks, style)])
    kind = "of their own type" if facts.dtype_a == facts.dtype_b else "of the coarser type"
    return [*lines, [Segment(f" units of the last place {kind}, {facts.coarser}", MUTED)]]


def _components(facts: VectorFacts, width: int) -> list[Line]:
    """Those that differ most, with their share of the squared error."""
    name = "expert" if facts.by_expert else "#"
    lines: list[Line] = [
        [
            Segment(f"{name:>7}", MUTED),
            Segment(f"{'A':>13}", SIDE_A),
            Segment(f"{'B':>13}", SIDE_B),
            Segment(f"{'A − B':>13}{'ULP':>7}{'share':>7}", MUTED),
        ]
    ]
    room = min(_MAX_BAR, width - 62)
    lines += [_component(component, room) for component in facts.components]
    rest = facts.differing - len(facts.components)
    if rest > 0:
        lines.append([Segment(f"{'…':>7} {count(rest)} more differ by less", MUTED)])
    return lines


def _component(found: Component, room: int) -> Line:
    ulps = "–" if found.ulps is None else compact_count(found.ulps)
    share = "–" if found.share is None else f"{100 * found.share:.1f}%"
    line = [
        Segment(f"{found.place:>7}", MUTED),
        Segment(f"{_value(found.a):>13}", SIDE_A),
        Segment(f"{_value(found.b):>13}", SIDE_B),
        Segment(f"{_difference(found):>13}{ulps:>7}{share:>7}", BASE),
    ]
    return [*line, Segment(f" {bar(found.share, room)}", BASE)] if room > 3 else line


def _difference(found: Component) -> str:
    value = found.a - found.b
    return f"{value:+.5g}" if math.isfinite(value) else short(value)


def _value(value: float) -> str:
    return f"{value:.6g}" if math.isfinite(value) else short(value)


def _ids(facts: VectorFacts) -> list[Line]:
    lines: list[Line] = [
        [Segment(f"{'slot':>7}", MUTED), Segment(f"{'A':>9}", SIDE_A), Segment(f"{'B':>9}", SIDE_B)]
    ]
    for found in facts.components:
        differs = "  differs" if found.a != found.b else ""
        lines.append(
            [
                Segment(f"{found.place:>7}", MUTED),
                Segment(f"{int(found.a):>9}", SIDE_A),
                Segment(f"{int(found.b):>9}", SIDE_B),
                Segment(differs, BOLD),
            ]
        )
    return lines
