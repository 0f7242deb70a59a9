"""The page of experts: gates of both sides by id, what the block made, and what is not known."""

from __future__ import annotations

from rich.segment import Segment

from tui.drill_page import Line, TextPage, paragraph
from tui.styles import BASE, BOLD, GOOD, MUTED, SIDE_A, SIDE_B
from workbench.view.bars import bar
from workbench.view.drill.experts import ExpertFacts, ExpertShare, Output
from workbench.view.local import ModuleError
from workbench.view.numbers import fixed, short, signed, times

_NOT_RECORDED = (
    "What each expert adds, g × E(x), is in no capture: they hold the gates of the selected "
    "experts and the combined output. "
)


def experts_page(facts: ExpertFacts, command: str, width: int) -> TextPage:
    """The page.

    Args:
        facts: The block at the cell.
        command: What attributes this comparison.
        width: Columns.
    """
    lines: list[Line] = []
    if facts.problem:
        lines += paragraph(facts.problem, MUTED, width)
    else:
        lines += [*_sentence(facts, width), [], _heads()]
        lines += [_expert(expert, width) for expert in facts.experts]
        lines.append(_sums(facts))
        lines += _contributions(facts, width)
    if facts.outputs:
        lines += [[], _output_heads(), *(_output(output) for output in facts.outputs)]
    if not facts.problem:
        note = "" if facts.contributions else _NOT_RECORDED
        lines += [[], *_module(facts.error, note, command, width)]
    return TextPage(width, lines)


def _sentence(facts: ExpertFacts, width: int) -> list[Line]:
    router = facts.router
    flips = 0 if router is None else router.num_flips
    moved = "" if facts.mass_moved is None else f"{100 * facts.mass_moved:.3g}% of the gate mass"
    if flips:
        what = "1 expert flips" if flips == 1 else f"{flips} experts flip"
        return paragraph(f"{what}{f'; {moved} goes elsewhere' if moved else ''}", BOLD, width)
    if facts.mass_moved == 0:
        return paragraph("same experts with the same gate weights", GOOD, width)
    return paragraph(f"same experts{f'; {moved} moved between them' if moved else ''}", BASE, width)


def _heads() -> Line:
    return [
        Segment(" expert  on  ", MUTED),
        Segment(f"{'gate A':>9} {'share':>6}", SIDE_A),
        Segment(f"  {'gate B':>9} {'share':>6}", SIDE_B),
        Segment(f"  {'A − B':>10}", MUTED),
    ]


def _expert(found: ExpertShare, width: int) -> Line:
    style = BASE if found.on == "both" else BOLD
    on = {"both": "A B", "A": "A  ", "B": "  B"}[found.on]
    move = abs(found.moved) if found.moved is not None else None
    line = [
        Segment(f" {found.expert:>6}  {on} ", style),
        Segment(f"{_gate(found.gate_a, found.on != 'B')}", SIDE_A),
        Segment(f" {_percent(found.share_a):>6}  ", SIDE_A),
        Segment(f"{_gate(found.gate_b, found.on != 'A')}", SIDE_B),
        Segment(f" {_percent(found.share_b):>6}  ", SIDE_B),
        Segment(f"{signed(found.moved):>10}", style),
    ]
    return [*line, Segment(f"  {bar(move, min(30, width - 64))}", style)] if width > 70 else line


def _gate(gate: float | None, selected: bool) -> str:
    return f"{fixed(gate, 5):>9}" if selected else f"{'–':>9}"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}%"


def _sums(facts: ExpertFacts) -> Line:
    moved = None if facts.mass_moved is None else facts.mass_moved
    return [
        Segment(f" {'all':>6}      ", MUTED),
        Segment(f"{fixed(facts.mass_a, 5):>9}{'':9}", SIDE_A),
        Segment(f"{fixed(facts.mass_b, 5):>9}{'':9}", SIDE_B),
        Segment(f"{short(moved):>10}", BASE),
        Segment("  ½ Σ|A − B|", MUTED),
    ]


def _contributions(facts: ExpertFacts, width: int) -> list[Line]:
    """What each expert adds, where attribution ran the experts one by one."""
    if not facts.contributions:
        return []
    sides = facts.contributions
    most = max((size for pair in sides.values() for size in pair if size), default=0.0)
    lines: list[Line] = [
        [],
        [
            Segment(" expert    ", MUTED),
            Segment(f"{'‖g·E(x)‖ A':>12}", SIDE_A),
            Segment(f"{'B':>12}", SIDE_B),
            Segment(f"{'A − B':>12}", MUTED),
        ],
    ]
    order = [e.expert for e in facts.experts if e.expert in sides]
    for expert in order:
        a, b = sides[expert]
        difference = None if a is None or b is None else a - b
        largest = max((size for size in (a, b) if size is not None), default=0.0)
        blocks = bar(largest / most if most else 0.0, min(28, max(0, width - 52)))
        lines.append(
            [
                Segment(f" {expert:>6}    ", BASE),
                Segment(f"{short(a):>12}", SIDE_A),
                Segment(f"{short(b):>12}", SIDE_B),
                Segment(f"{signed(difference):>12}", BASE),
                Segment(f"  {blocks}", MUTED),
            ]
        )
    text = "by the trainer's experts on each side's own input, weighed by its own gates"
    return [*lines, *paragraph(text, MUTED, width)]


def _output_heads() -> Line:
    return [
        Segment(f" {'output':<18}", MUTED),
        Segment(f"{'‖A‖':>10}", SIDE_A),
        Segment(f"{'‖B‖':>10}", SIDE_B),
        Segment(f"{'rel L2':>11}{'max |A−B|':>11}", MUTED),
    ]


def _output(found: Output) -> Line:
    line = [
        Segment(f" {found.title:<18}", MUTED),
        Segment(f"{short(found.norm_a):>10}", SIDE_A),
        Segment(f"{short(found.norm_b):>10}", SIDE_B),
    ]
    if not found.difference.known:
        return [*line, Segment("  not recorded on both sides", MUTED)]
    if found.difference.bit_equal:
        return [*line, Segment("  equal bit for bit", GOOD)]
    size = f"{short(found.difference.rel_l2, 1):>11}{short(found.difference.max_abs, 1):>11}"
    return [*line, Segment(size, BASE)]


def _module(error: ModuleError | None, note: str, command: str, width: int) -> list[Line]:
    """The experts as one module, and what would tell more."""
    if error is None:
        about = f"How far they are off, and what each adds at the first flips: {command}"
        return paragraph(note + about, MUTED, width)
    note = f"{note}Attribution ran them one by one at the first flips alone." if note else ""
    notes = paragraph(note, MUTED, width) if note else []
    if error.local is None:
        text = "all routed experts on A's own input: not attributable here"
        return paragraph(text, MUTED, width) + notes
    text = (
        f"all routed experts on A's own input: local error {short(error.local, 1)} "
        f"({times(error.of_budget)} budget), inherited {short(error.inherited, 1)}; "
        f"units of rounding A {short(error.units_a, 1)} B {short(error.units_b, 1)}"
    )
    sides = {"A": "A is wrong", "B": "B is wrong", "AB": "both are wrong", "?": "no arbiter"}
    verdict = f"beyond its budget: {sides[error.outside]}" if error.over else "within its budget"
    lines = paragraph(f"{text}; {verdict}", BOLD if error.over else BASE, width)
    return [*lines, *notes]
