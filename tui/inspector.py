"""The inspector: both sides of the cursor's cell, as a panel on the right or a drawer below."""

from __future__ import annotations

from rich.segment import Segment

from tui import sections
from tui.lines import Lines
from tui.styles import RULE
from workbench.view.lenses import LENSES
from workbench.view.model import ViewModel

PANEL_WIDTH = 44
BLANK: list[Segment] = []
LEAST_EXPERTS = 5
"""Lines of the table of experts besides its rows."""


class Inspector(Lines):
    """Facts of one cell; lays its sections out one below the other, or side by side when wide."""

    def __init__(self, model: ViewModel) -> None:
        super().__init__("inspector")
        self.model = model

    def lines(self, width: int, height: int) -> list[list[Segment]]:
        if not self.model.num_rows:
            return []
        return self._panel(width, height) if width <= 60 else self._drawer(width, height)

    def _panel(self, width: int, height: int) -> list[list[Segment]]:
        """One column, with a line on its left."""
        inner = width - 1
        facts, (code, meaning) = self.model.cell_facts(), self.model.meaning()
        head = sections.header(facts, code, meaning, inner)
        table = sections.sites(facts, inner)
        rest = [sections.logprob(facts, inner), sections.profile(facts, inner)]
        fixed = len(head) + sum(map(len, rest))
        most = LEAST_EXPERTS + len(facts.router.experts if facts.router else ())
        # Low panels lose the gaps first, then sites far from the one in focus.
        gaps = 4 if height >= fixed + most + len(table) + 4 else 0
        experts = sections.experts(facts, inner, max(LEAST_EXPERTS, min(most, height - fixed - 4)))
        room = height - fixed - len(experts) - gaps
        table = _round_focus(table, self.model, room) if len(table) > room else table
        blank = [BLANK] if gaps else []
        lines = [line for part in (head, experts, table, *rest) for line in (*part, *blank)]
        lines = lines[: len(lines) - len(blank)]
        legend = sections.legend(LENSES[self.model.state.lens])
        spare = height - len(lines) - len(legend)
        lines += [*([BLANK] * spare), *legend] if spare > 0 else [BLANK] * (height - len(lines))
        return [[Segment("│", RULE), *line] for line in lines]

    def _drawer(self, width: int, height: int) -> list[list[Segment]]:
        """A rule, then two or three columns."""
        facts, (code, meaning) = self.model.cell_facts(), self.model.meaning()
        left = PANEL_WIDTH
        right = width - left - 1
        body = height - 1
        head = sections.header(facts, code, meaning, left)
        first = [*head, *sections.experts(facts, left, body - len(head))]
        second = sections.sites(facts, right)
        rest = [*sections.logprob(facts, right), *sections.profile(facts, right)]
        room = body - len(rest)
        if len(second) > room:
            second = _round_focus(second, self.model, room)
        second += rest
        lines = [[Segment("─" * width, RULE)]]
        first += [BLANK] * (body - len(first))
        second += [BLANK] * (body - len(second))
        for line_a, line_b in zip(sections.padded(first, left), second, strict=False):
            lines.append([*line_a, Segment("│", RULE), *line_b])
        return lines[:height]


def _round_focus(lines: list[list[Segment]], model: ViewModel, room: int) -> list[list[Segment]]:
    """The heading and the rows of the table round the site in focus, in `room` lines or three."""
    rows = max(2, room - 1)
    names = [site.site for site in model.cell_facts().sites]
    focus = names.index(model.state.site) if model.state.site in names else len(names) - 1
    start = max(0, min(focus - rows // 2, len(names) - rows))
    return [lines[0], *lines[1 + start : 1 + start + rows]]
