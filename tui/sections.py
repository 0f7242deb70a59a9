"""The inspector's parts as lines of segments: pure drawing of facts, each within a given width.

Axes: L layer.
"""

from __future__ import annotations

import math
from textwrap import wrap

from rich.segment import Segment
from rich.style import Style

from tui.styles import BASE, BOLD, CODE, CODE_TEXT, GOOD, HERE, MUTED, SIDE_A, SIDE_B
from workbench.names import LOGPROBS
from workbench.view.headline import alone_text
from workbench.view.inspector import CellFacts, ExpertRow, Margin, RouterFacts, SiteDifference
from workbench.view.lenses import Lens
from workbench.view.numbers import compact_count, fixed, short, signed, spark
from workbench.view.palette import ABSENT, GLYPHS, code_of_level
from workbench.view.rows import cut, escape, quote

Line = list[Segment]
FULL_TABLE = 43
"""Width from which the table of sites has room for the cosine."""


def header(facts: CellFacts, code: int, meaning: str, width: int) -> list[Line]:
    """Which cell, which token, and what the lens says about it."""
    token = facts.token
    about = f"{escape(token.request)} · position {token.position} · {token.phase}"
    if token.modality not in ("", "text"):
        about += f" · {token.modality}"
    text = f"{quote(token.text, 16)} id {token.token_id}"
    return [
        [Segment(f" {facts.address} ", BOLD), Segment(cut(f" {text}", width - 10), BASE)],
        [Segment(cut(f" {about}", width), MUTED)],
        [
            Segment(" ", BASE),
            Segment(f" {GLYPHS[code]} ", CODE[code]),
            Segment(cut(f" {meaning}", width - 4), BASE),
        ],
    ]


def experts(facts: CellFacts, width: int, height: int, *, b_first: bool = False) -> list[Line]:
    """Both sides' experts by id, the gap below the last selected, the verdict on a flip."""
    router = facts.router
    if router is None:
        reason = facts.problem or ("dense layer: no router" if facts.layer_kind == "dense" else "")
        reason = reason or "routing was not recorded here on both sides"
        return [[Segment(f" {line}", MUTED)] for line in wrap(reason, max(8, width - 2))]
    heading = [
        [
            Segment(" expert ", MUTED),
            *_in_order("A rollout", "B trainer", 18, b_first=b_first),
        ],
        [Segment("   id   #   gate   logit   #   gate   logit", MUTED)],
    ]
    verdict = explanation(router, width)
    if height < len(router.experts) + 5:
        heading, verdict = heading[:1], verdict[:1]
    rows, left_out = _chosen(router.experts, max(1, height - len(heading) - len(verdict) - 1))
    lines = [*heading, *(_expert(row, b_first=b_first) for row in rows)]
    if left_out:
        lines.append([Segment(f"   … {left_out} more on both sides", MUTED)])
    lines.append(
        [
            Segment(" gap   ", MUTED),
            *_in_order(_gap(router.margin_a), _gap(router.margin_b), 19, b_first=b_first),
        ]
    )
    return [*lines, *verdict]


def explanation(router: RouterFacts, width: int) -> list[Line]:
    """One or two lines on a flip; a positive line where there is none."""
    if router.alone:
        return [[Segment(f" {router.alone} alone: nothing to compare with", MUTED)]]
    if router.num_flips == 0:
        order = "" if router.same_order else ", in another order"
        return [[Segment(f" same experts{order}", GOOD)]]
    if router.explained is None:
        return [[Segment(" flip not judged: inputs or scores are missing", MUTED)]]
    word = "explained flip" if router.explained else "UNEXPLAINED flip"
    numbers = f"   needs {short(router.needed, 1)}, inputs can move {short(router.bound, 1)}"
    return [
        [Segment(f" {word}", GOOD if router.explained else BOLD)],
        [Segment(cut(numbers, width), MUTED)],
    ]


def _chosen(experts: tuple[ExpertRow, ...], room: int) -> tuple[list[ExpertRow], int]:
    """The rows that fit, those on one side only never left out for those on both."""
    if len(experts) <= room:
        return list(experts), 0
    alone = sum(row.on != "both" for row in experts)
    agreeing = max(0, room - 1 - alone)
    shown: list[ExpertRow] = []
    for row in experts:
        if row.on != "both" or agreeing > 0:
            agreeing -= row.on == "both"
            shown.append(row)
    return shown, len(experts) - len(shown)


def _in_order(text_a: str, text_b: str, width: int, *, b_first: bool) -> Line:
    """What both sides say, in the order in which they are drawn; the first fills its column."""
    sides = [(text_a, SIDE_A), (text_b, SIDE_B)]
    (first, style), (second, other) = reversed(sides) if b_first else sides
    return [Segment(first.ljust(width), style), Segment(second, other)]


def _expert(row: ExpertRow, *, b_first: bool) -> Line:
    style = BASE if row.on == "both" else BOLD
    mark = {"both": Segment("   ", BASE), "A": Segment(" A ", SIDE_A), "B": Segment(" B ", SIDE_B)}
    side_a = _side(row.rank_a, row.gate_a, row.logit_a)
    side_b = _side(row.rank_b, row.gate_b, row.logit_b)
    sides = [
        Segment(side_a, SIDE_A if row.rank_a else MUTED),
        Segment(side_b, SIDE_B if row.rank_b else MUTED),
    ]
    first, second = reversed(sides) if b_first else sides
    return [
        mark[row.on],
        Segment(f"{row.expert:<4}", style),
        first,
        Segment("  ", BASE),
        second,
    ]


def _side(rank: int | None, gate: float | None, logit: float | None) -> str:
    gate_text = fixed(gate, 4) if rank else "–"
    return f"{rank or '–':>2} {gate_text:>6} {fixed(logit, 3):>7}"


def _gap(margin: Margin) -> str:
    ulps = "" if math.isnan(margin.ulps) else f" ({_ulps(margin.ulps)} ulp)"
    return f"{short(margin.gap, 1)}{ulps}"


def _ulps(value: float) -> str:
    return f"{value:.1f}" if value < 100 else compact_count(int(value))


def sites(facts: CellFacts, width: int) -> list[Line]:
    """A against B at every recorded site of the layer."""
    cosine = "  cosine" if width >= FULL_TABLE else ""
    lines = [[Segment(cut(f" {'site':<13}  max|Δ|  rel L2{cosine}  ulp", width), MUTED)]]
    return lines + [_site(facts, found, width) for found in facts.sites]


def _site(facts: CellFacts, found: SiteDifference, width: int) -> Line:
    in_focus = found.site == facts.site
    style = BOLD if in_focus else BASE
    name = Segment(f"{'▶' if in_focus else ' '}{found.site:<13}", style)
    if found.alone:
        bad = found.nonfinite_a or found.nonfinite_b
        text = alone_text(found, facts.router)
        return [name, Segment(f"  {text}", CODE_TEXT[-1] if bad else style if in_focus else MUTED)]
    if not found.known:
        return [name, Segment("  not recorded here", MUTED)]
    if found.site == "topk_ids":
        return [name, _set_difference(facts.router, style)]
    if found.nonfinite_a or found.nonfinite_b:
        text = f"  NaN/Inf: A {found.nonfinite_a}, B {found.nonfinite_b}"
        return [name, Segment(text, CODE_TEXT[-1])]
    if found.bit_equal:
        return [name, Segment("  equal bit for bit", MUTED)]
    ulp = "" if found.max_ulp is None else compact_count(int(found.max_ulp))
    cosine = f" {_cosine(found.cosine):>7}" if width >= FULL_TABLE else ""
    return [
        name,
        Segment(
            f" {short(found.max_abs, 1):>7} {short(found.rel_l2, 1):>7}{cosine} {ulp:>4}", style
        ),
    ]


def _set_difference(router: RouterFacts | None, style: Style) -> Segment:
    if router is None or router.num_flips == 0:
        return Segment("  same experts", MUTED)
    chosen = sum(row.on != "B" for row in router.experts)
    return Segment(f"  {router.num_flips} of {chosen} differ", style)


def _cosine(value: float | None) -> str:
    """Five decimals, rounded towards 0 so that 1.00000 means at least that."""
    return "–" if value is None or math.isnan(value) else f"{math.floor(value * 1e5) / 1e5:.5f}"


def logprob(facts: CellFacts, width: int, *, b_first: bool = False) -> list[Line]:
    """Log-probability of the row's own token on both sides."""
    found = facts.logprob
    if found.a is None and found.b is None:
        return [[Segment(" logp  not scored on either side", MUTED)]]
    # Narrow columns lose the ranks and the KL, never the probabilities.
    roomy = width >= FULL_TABLE
    rank_a = f" rank {found.rank_a}" if roomy and found.rank_a is not None else ""
    rank_b = f" rank {found.rank_b}" if roomy and found.rank_b is not None else ""
    kl = f"  KL {short(found.kl, 1)}" if roomy and found.kl is not None else ""
    return [
        [
            Segment("▶logp  ", BOLD) if facts.site == LOGPROBS else Segment(" logp  ", MUTED),
            *_in_order(
                f"A {fixed(found.a)}{rank_a}",
                f"B {fixed(found.b)}{rank_b}",
                19 if roomy else 14,
                b_first=b_first,
            ),
        ],
        [
            Segment(" dlogp ", MUTED),
            Segment(f"{signed(found.dlogp)}", BOLD if found.dlogp else BASE),
            Segment(cut(f" (A − B){kl}", width - 16), MUTED),
        ],
    ]


def profile(facts: CellFacts, width: int) -> list[Line]:
    """The difference at the site in focus, layer by layer; pooled by the largest when too long."""
    values = facts.profile_L
    room = max(4, width - 12)
    group = -(-len(values) // room)
    pooled = [_largest(values[i : i + group]) for i in range(0, len(values), group)]
    at = facts.layer // group
    text = "".join(map(spark, pooled))
    return [
        [Segment(f" rel L2 of {facts.profile_site} by layer", MUTED)],
        [
            Segment(" L0 ", MUTED),
            Segment(text[:at], MUTED),
            Segment(text[at : at + 1], HERE),
            Segment(text[at + 1 :], MUTED),
            Segment(f" L{len(values) - 1}", MUTED),
        ],
    ]


def legend(lens: Lens, meanings: tuple[str, ...]) -> list[Line]:
    """What each level means."""
    lines = [[Segment(f" levels of lens {lens.key}, {lens.title}", MUTED)]]
    for level, meaning in enumerate(meanings):
        code = code_of_level(level)
        lines.append(
            [
                Segment(" ", BASE),
                Segment(f" {GLYPHS[code]} ", CODE[code]),
                Segment(f" {meaning}", MUTED),
            ]
        )
    absent = Segment(f" {GLYPHS[ABSENT]} ", CODE[ABSENT])
    return [*lines, [Segment(" ", BASE), absent, Segment(f" {lens.absent}", MUTED)]]


def _largest(values: tuple[float | None, ...]) -> float | None:
    if any(value is not None and math.isnan(value) for value in values):
        return math.nan
    return max((value for value in values if value is not None), default=None)


def padded(lines: list[Line], width: int) -> list[Line]:
    """Every line in exactly `width` columns."""
    return [Segment.adjust_line_length(line, width, BASE) for line in lines]
