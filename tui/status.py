"""The top of the screen: what is compared, how it is looked at, and the finding in one line."""

from __future__ import annotations

import numpy as np
from rich.segment import Segment
from rich.style import Style

from tui import styles
from tui.background import Background
from tui.lines import Lines, joined
from workbench.view.classes import CLASS_TITLES
from workbench.view.facts import SideFacts
from workbench.view.headline import Headline, Tone, headline, verdict_line
from workbench.view.lenses import LENSES
from workbench.view.model import ViewModel
from workbench.view.numbers import count
from workbench.view.rows import cut, cut_sentence, escape, quote
from workbench.view.sides import side_about

WIDE = 110
_TONES: dict[Tone, Style] = {
    "good": styles.GOOD,
    "finding": styles.BOLD,
    "plain": styles.BASE,
    "warning": styles.CHIP_WARNING,
}


class Status(Lines):
    """Three lines: both sides, the verdict on the whole, and what is at the cursor."""

    fill = styles.BAR

    def __init__(self, model: ViewModel, background: Background) -> None:
        super().__init__("status")
        self.model = model
        self.background = background

    def lines(self, width: int, height: int) -> list[list[Segment]]:
        verdict = self._line(verdict_line(self.model), width)
        return [self._facts(width), verdict, self._line(headline(self.model), width)][:height]

    def _facts(self, width: int) -> list[Segment]:
        right = self._looking(wide=width >= WIDE)
        room = width - _length(right)
        choices = [self._sides(detail) for detail in (2, 1, 0)]
        left = next((line for line in choices if _length(line) + 2 <= room), choices[-1])
        return [*left, Segment(" " * max(room - _length(left), 1), styles.BAR), *right]

    def _sides(self, detail: int) -> list[Segment]:
        """Both sides and the model; less of it with less detail."""
        facts = self.model.facts
        parts = [
            [Segment(" A rollout ", styles.CHIP_A), *_engine(facts.a, detail)],
            [Segment(" B trainer ", styles.CHIP_B), *_engine(facts.b, detail)],
            self._warnings(),
        ]
        if self.model.state.b_first:
            parts[:2] = parts[1::-1]
        if detail > 1:
            parts.insert(2, [Segment(cut(_short_name(facts.model), 24), styles.BAR)])
        return joined(parts, Segment("  ", styles.BAR))

    def _looking(self, *, wide: bool) -> list[Segment]:
        """Lens, tolerance, class, and where in the class the cursor is."""
        model, state = self.model, self.model.state
        lens = LENSES[state.lens]
        index = model.jumps(state.klass, state.order)
        before, here = index.place(state.cell)
        total = count(len(index))
        parts = [[Segment(f"lens {lens.key} ", styles.BAR_MUTED)] if wide else []]
        if state.side == "diff":
            parts[0].append(Segment(lens.title, styles.BAR_BOLD))
        else:
            chip = styles.CHIP_A if state.side == "a" else styles.CHIP_B
            parts[0] += [Segment(f" {state.side.upper()} ", chip)]
            parts[0] += [Segment(f" {side_about(state.lens)}", styles.BAR_BOLD)]
        if wide or state.tolerance != model.facts.tolerance:
            parts.append([Segment(state.tolerance, styles.BAR)])
        place = f"{count(before + 1)} of {total}" if here else total
        if not model.source.summary.get("alone"):
            title = Segment(f"{CLASS_TITLES[state.klass]} ", styles.BAR_BOLD)
            parts.append([title, Segment(place, styles.BAR)])
        parts += self._chips()
        if self.background.note:
            parts.append([Segment(self.background.note, styles.BAR_MUTED)])
        return [*joined(parts, Segment(" · ", styles.BAR_MUTED)), Segment(" ", styles.BAR)]

    def _chips(self) -> list[list[Segment]]:
        """The filter, the search and the selection, where there are any."""
        model, state = self.model, self.model.state
        words = []
        if state.filter:
            words.append(f" only {state.filter} ")
        if state.find:
            hits = model.hits(state.find)
            place = int(np.searchsorted(hits, state.row, side="right"))
            words.append(f" find {quote(state.find, 16)} {place}/{count(len(hits))} ")
        if state.area is not None:
            layers, rows = (b - a for a, b in (state.area.layers, state.area.rows))
            words.append(f" {layers} × {count(rows)} {'…' if state.selecting else 'selected'} ")
        return [[Segment(text, styles.CHIP)] for text in words]

    def _warnings(self) -> list[Segment]:
        facts = self.model.facts
        found = []
        if self.background.alarm:
            found.append(Segment(f" {self.background.alarm} ", styles.CHIP_WARNING))
        found += [Segment(f" {text} ", styles.CHIP_WARNING) for text in facts.newer]
        if facts.weights == "different":
            found.append(Segment(" WEIGHTS DIFFER ", styles.CHIP_WARNING))
        if facts.rows_compared < facts.rows_expected:
            text = f" {count(facts.rows_compared)} of {count(facts.rows_expected)} rows "
            found.append(Segment(text, styles.CHIP_WARNING))
        if self.model.state.side == "diff" and self.model.num_missing:
            text = f" {count(self.model.num_missing)} cells missing "
            found.append(Segment(text, styles.CHIP_WARNING))
        return found

    def _line(self, found: Headline, width: int) -> list[Segment]:
        style = _TONES[found.tone]
        return [
            Segment(" ", styles.BASE),
            Segment(cut_sentence(found.text, width - 2), style),
            Segment(" " * width, styles.BASE),
        ]


def _engine(side: SideFacts, detail: int) -> list[Segment]:
    text = " ".join(filter(None, (side.engine if detail else "", side.dtype)))
    return [Segment(f" {escape(text)}", styles.BAR_MUTED)]


def _short_name(model: str) -> str:
    return escape(model.rstrip("/").rpartition("/")[2])


def _length(line: list[Segment]) -> int:
    return sum(part.cell_length for part in line)
