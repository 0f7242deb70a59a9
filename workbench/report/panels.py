"""Everything the inspector says of a cell as tables of short texts: for HTML and for the notebook.

Numbers are written here and nowhere else, so that a page and a widget show the same words; missing,
NaN and Inf are words too, and nothing that leaves here can be misread as a number. Plain values
only: no markup, no colour. Texts of tokens and requests are escaped for a screen, not for HTML.

Axes: L layer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

from workbench.view.headline import absence
from workbench.view.inspector import CellFacts, ExpertRow, Margin, RouterFacts, SiteDifference
from workbench.view.lenses import is_error_lens
from workbench.view.local import Attribution, ModuleError
from workbench.view.model import ViewModel
from workbench.view.modules import WHO, short_title
from workbench.view.numbers import compact_count, fixed, short, signed, times

Tone = Literal["plain", "muted", "good", "strong"]
Mark = Literal["", "A", "B", "focus", "over"]
HEIGHTS: Final = 8
"""Heights of a bar of a profile, over `PROFILE_DECADES`."""
PROFILE_DECADES: Final = (-6.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a table.

    Attributes:
        cells: A text for each column.
        mark: Which side alone the line is of, whether it is in focus or beyond its budget.
        tone: How it is meant.
    """

    cells: tuple[str, ...]
    mark: Mark = ""
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A titled table with notes below it.

    Attributes:
        id: Stable name.
        title: A few words.
        head: Headings of the columns.
        sides: For each column, which side it is of: `A`, `B` or empty.
        rows: The lines.
        notes: Sentences with their tone.
    """

    id: str
    title: str
    head: tuple[str, ...] = ()
    sides: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    notes: tuple[tuple[str, Tone], ...] = ()


def panels(model: ViewModel) -> tuple[Panel, ...]:
    """All tables of the cursor's cell: what the lens is about comes first."""
    facts, found = model.cell_facts(), model.attribution
    experts, rest = experts_panel(facts), (sites_panel(facts), logprob_panel(facts))
    if found is None:
        return (experts, *rest)
    modules = modules_panel(facts, found)
    return (
        (modules, experts, *rest) if is_error_lens(model.state.lens) else (experts, modules, *rest)
    )


def experts_panel(facts: CellFacts) -> Panel:
    """Both sides' experts by id, the gap below the last selected, the verdict on a flip."""
    router = facts.router
    if router is None:
        reason = facts.problem or ("dense layer: no router" if facts.layer_kind == "dense" else "")
        reason = reason or "routing was not recorded here on both sides"
        return Panel(id="experts", title="experts", notes=((reason, "muted"),))
    gaps = (_gap(router.margin_a), _gap(router.margin_b))
    return Panel(
        id="experts",
        title="experts by id",
        head=("expert", "rank", "gate", "logit", "rank", "gate", "logit"),
        sides=("", "A", "A", "A", "B", "B", "B"),
        rows=tuple(_expert(row) for row in router.experts),
        notes=((f"gap below the last selected: A {gaps[0]}, B {gaps[1]}", "muted"), *_flip(router)),
    )


def _expert(row: ExpertRow) -> Row:
    return Row(
        cells=(
            str(row.expert),
            *_expert_side(row.rank_a, row.gate_a, row.logit_a),
            *_expert_side(row.rank_b, row.gate_b, row.logit_b),
        ),
        mark="" if row.on == "both" else row.on,
        tone="plain" if row.on == "both" else "strong",
    )


def _expert_side(rank: int | None, gate: float | None, logit: float | None) -> tuple[str, ...]:
    return (str(rank) if rank else "–", fixed(gate) if rank else "–", fixed(logit, 3))


def _gap(margin: Margin) -> str:
    if math.isnan(margin.ulps):
        return short(margin.gap, 1)
    ulps = f"{margin.ulps:.1f}" if margin.ulps < 100 else compact_count(int(margin.ulps))
    return f"{short(margin.gap, 1)} ({ulps} ulp)"


def _flip(router: RouterFacts) -> tuple[tuple[str, Tone], ...]:
    if router.num_flips == 0:
        order = "" if router.same_order else ", in another order"
        return ((f"same experts{order}", "good"),)
    if router.explained is None:
        return (("flip not judged: inputs or scores are missing", "muted"),)
    numbers = f"needs {short(router.needed, 1)}, inputs can move {short(router.bound, 1)}"
    if router.explained:
        return ((f"explained flip: {numbers}", "good"),)
    return ((f"UNEXPLAINED flip: {numbers}", "strong"),)


def sites_panel(facts: CellFacts) -> Panel:
    """A against B at every recorded site of the layer."""
    return Panel(
        id="sites",
        title="A against B, as captured",
        head=("site", "max |A − B|", "rel L2", "cosine", "ulp"),
        sides=("",) * 5,
        rows=tuple(_site(facts, site) for site in facts.sites),
    )


def _site(facts: CellFacts, found: SiteDifference) -> Row:
    mark: Mark = "focus" if found.site == facts.site else ""
    words = _site_words(facts, found)
    if words:
        text, tone = words
        return Row(cells=(found.site, text), mark=mark, tone=tone)
    ulp = "–" if found.max_ulp is None else compact_count(int(found.max_ulp))
    numbers = (short(found.max_abs, 1), short(found.rel_l2, 1), _cosine(found.cosine), ulp)
    return Row(cells=(found.site, *numbers), mark=mark)


def _site_words(facts: CellFacts, found: SiteDifference) -> tuple[str, Tone] | None:
    """What stands in place of numbers, where there are none to show."""
    if not found.known:
        return absence(facts), "muted"
    if found.site == "topk_ids":
        router = facts.router
        if found.bit_equal or router is None:
            return "same experts", "muted"
        return f"{router.num_flips} of {sum(e.on != 'B' for e in router.experts)} differ", "strong"
    if found.nonfinite_a or found.nonfinite_b:
        return f"NaN or Inf: A {found.nonfinite_a}, B {found.nonfinite_b}", "strong"
    return ("equal bit for bit", "muted") if found.bit_equal else None


def _cosine(value: float | None) -> str:
    """Five decimals, rounded towards 0 so that 1.00000 means at least that."""
    if value is None or not math.isfinite(value):
        return short(value)
    return f"{math.floor(value * 1e5) / 1e5:.5f}"


def modules_panel(facts: CellFacts, found: Attribution) -> Panel:
    """The layer's modules on A's own input: how far each is off, and who is wrong."""
    rows = tuple(_module(error) for error in facts.errors)
    wrong = next((e for e in facts.errors if e.over), None)
    notes: tuple[tuple[str, Tone], ...] = ()
    if wrong is not None:
        who = {"A": "A", "B": "B", "AB": "both"}.get(wrong.outside, "unknown")
        notes = ((f"{short_title(wrong.verdict.module)}: {WHO[who]}", "strong"),)
    elif rows:
        notes = (("every module is within its rounding budget here", "good"),)
    if found.arbiter is None:
        notes = (*notes, ("no arbiter ran: which side is wrong is not known", "muted"))
    return Panel(
        id="modules",
        title="modules on A's input",
        head=("module", "local", "budget", "inherited", "units A", "units B"),
        sides=("", "", "", "", "A", "B"),
        rows=rows,
        notes=notes,
    )


def _module(error: ModuleError) -> Row:
    return Row(
        cells=(
            short_title(error.verdict.module),
            short(error.local, 1),
            times(error.of_budget),
            short(error.inherited, 1),
            _units(error.units_a),
            _units(error.units_b),
        ),
        mark="over" if error.over else "",
        tone="strong" if error.over else "muted" if error.local in (None, 0) else "plain",
    )


def _units(value: float | None) -> str:
    return short(value) if value is None or not math.isfinite(value) else f"{value:.1f}"


def logprob_panel(facts: CellFacts) -> Panel:
    """Log-probability of the row's own token on both sides."""
    found = facts.logprob
    if found.a is None and found.b is None:
        notes: tuple[tuple[str, Tone], ...] = (("not scored on either side", "muted"),)
        return Panel(id="logprob", title="log-probability", notes=notes)
    ranks = ("–" if rank is None else str(rank) for rank in (found.rank_a, found.rank_b))
    return Panel(
        id="logprob",
        title="log-probability",
        head=("logp", "rank", "logp", "rank", "dlogp = A − B", "KL"),
        sides=("A", "A", "B", "B", "", ""),
        rows=(
            Row(
                cells=(
                    fixed(found.a),
                    next(ranks),
                    fixed(found.b),
                    next(ranks),
                    signed(found.dlogp),
                    short(found.kl, 1),
                )
            ),
        ),
    )


def profile_heights(facts: CellFacts) -> tuple[int, ...]:
    """The difference at the site in focus for every layer, as heights of bars.

    0 is equal, 1 to 8 lie on a fixed logarithmic scale of 1e-6 to 1; -1 is missing, 9 NaN or Inf.
    """
    return tuple(_height(value) for value in facts.profile_L)


def _height(value: float | None) -> int:
    if value is None:
        return -1
    if not math.isfinite(value):
        return HEIGHTS + 1
    if value <= 0:
        return 0
    low, high = PROFILE_DECADES
    share = (math.log10(value) - low) / (high - low)
    return 1 + min(HEIGHTS - 1, max(0, int(share * HEIGHTS)))
