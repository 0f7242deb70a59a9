"""The page that holds the cursor's cell against the pinned one, metric by metric."""

from __future__ import annotations

from rich.segment import Segment

from tui.drill_page import Line, TextPage, paragraph
from tui.styles import BASE, BOLD, GOOD, MUTED, SIDE_A, SIDE_B
from workbench.view.drill.beside import Beside, Difference, Sides
from workbench.view.inspector import CellFacts, SiteDifference
from workbench.view.numbers import compact_count, count, short
from workbench.view.rows import cut, escape, quote


def pin_page(found: Beside | None, key: str, width: int) -> TextPage:
    """The page; without a pin, how to set one.

    Args:
        found: Both cells, or None without a pin.
        key: The key that pins.
        width: Columns.
    """
    if found is None:
        text = (
            f"Nothing is pinned. Go to the cell to compare with, press {key} there, come back to "
            "another cell and drill again: both stand here side by side."
        )
        return TextPage(width, paragraph(text, MUTED, width))
    lines: list[Line] = [
        _who("here", found.here, width),
        _who("pin ", found.pin, width),
        [],
        _side_heads(),
        *(_side(sides) for sides in found.sides),
        _flips(found),
        [],
        *_difference_heads(),
        *(_difference(difference) for difference in found.differences),
    ]
    if found.here.address == found.pin.address:
        lines.insert(2, [Segment(" this cell is the pinned one", MUTED)])
    return TextPage(width, lines)


def _who(name: str, facts: CellFacts, width: int) -> Line:
    token = facts.token
    text = f"{quote(token.text, 16)} · {escape(token.request)} position {token.position}"
    return [
        Segment(f" {name}  ", MUTED),
        Segment(f"{facts.address}  ", BOLD),
        Segment(cut(text, width - 8 - len(facts.address)), BASE),
    ]


def _side_heads() -> Line:
    return [
        Segment(f" {'':<15}", MUTED),
        Segment(f"{'here A':>12}", SIDE_A),
        Segment(f"{'here B':>12}", SIDE_B),
        Segment(f"{'pin A':>14}", SIDE_A),
        Segment(f"{'pin B':>12}", SIDE_B),
    ]


def _side(found: Sides) -> Line:
    return [
        Segment(f" {found.name:<15}", MUTED),
        Segment(f"{_value(found.name, found.here_a):>12}", SIDE_A),
        Segment(f"{_value(found.name, found.here_b):>12}", SIDE_B),
        Segment(f"{_value(found.name, found.pin_a):>14}", SIDE_A),
        Segment(f"{_value(found.name, found.pin_b):>12}", SIDE_B),
    ]


def _value(name: str, value: float | None) -> str:
    """A rank is a whole number, the rest are measurements."""
    if name == "rank":
        return "–" if value is None else count(int(value))
    return short(value, 3)


def _flips(found: Beside) -> Line:
    here, pin = ("–" if number is None else str(number) for number in found.flips)
    return [Segment(f" {'flips A − B':<15}", MUTED), Segment(f"{here:>24}{pin:>26}", BASE)]


def _difference_heads() -> list[Line]:
    heads = f"{'rel L2':>9}{'max|Δ|':>9}{'ulp':>6}"
    return [
        [Segment(f" {'':<15}{'here A − B':>24}  {'pin A − B':>24}", MUTED)],
        [Segment(f" {'site':<15}{heads}  {heads}", MUTED)],
    ]


def _difference(found: Difference) -> Line:
    return [
        Segment(f" {found.site:<15}", BASE),
        *_numbers(found.site, found.here),
        Segment("  ", BASE),
        *_numbers(found.site, found.pin),
    ]


def _numbers(site: str, found: SiteDifference | None) -> Line:
    """One cell's numbers at a site, in 24 columns."""
    if found is None:
        return [Segment(f"{'not of this layer':>24}", MUTED)]
    if not found.known:
        return [Segment(f"{'not recorded':>24}", MUTED)]
    if site == "topk_ids":
        text = "same experts" if found.bit_equal else "other experts"
        return [Segment(f"{text:>24}", GOOD if found.bit_equal else BOLD)]
    if found.nonfinite_a or found.nonfinite_b:
        text = f"NaN/Inf A {found.nonfinite_a} B {found.nonfinite_b}"
        return [Segment(f"{text:>24}", BOLD)]
    if found.bit_equal:
        return [Segment(f"{'equal bit for bit':>24}", GOOD)]
    ulp = "" if found.max_ulp is None else compact_count(int(found.max_ulp))
    return [Segment(f"{short(found.rel_l2, 1):>9}{short(found.max_abs, 1):>9}{ulp:>6}", BASE)]
