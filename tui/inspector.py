"""The inspector: both sides of the cursor's cell, as a panel on the right or a drawer below."""

from __future__ import annotations

from rich.segment import Segment

from tui import sections
from tui.arbiter import arbiter, arbiter_line
from tui.lines import Lines
from tui.sections import FULL_TABLE
from tui.styles import RULE
from workbench.view.lenses import LENSES, is_error_lens
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
        rest = [
            *self._folded(inner),
            sections.logprob(facts, inner, b_first=self.model.state.b_first),
        ]
        rest.append(sections.profile(facts, inner))
        fixed = len(head) + sum(map(len, rest))
        most = LEAST_EXPERTS + len(facts.router.experts if facts.router else ())
        table = self._table(inner, height - fixed - LEAST_EXPERTS)
        least = 4 if not self._by_module else len(table)
        # Low panels lose the gaps first, then sites far from the one in focus.
        gaps = 4 if height >= fixed + most + len(table) + 4 else 0
        budget = min(most, height - fixed - least)
        experts = sections.experts(
            facts, inner, max(LEAST_EXPERTS, budget), b_first=self.model.state.b_first
        )
        room = height - fixed - len(experts) - gaps
        if len(table) > room:
            table = table[:room] if self._by_module else _round_focus(table, self.model, room)
        blank = [BLANK] if gaps else []
        parts = (head, table, experts, *rest) if self._by_module else (head, experts, table, *rest)
        lines = [line for part in parts for line in (*part, *blank)]
        lines = lines[: len(lines) - len(blank)]
        legend = sections.legend(LENSES[self.model.state.lens], self.model.legend())
        spare = height - len(lines) - len(legend)
        lines += [*([BLANK] * spare), *legend] if spare > 0 else [BLANK] * (height - len(lines))
        return [[Segment("│", RULE), *line] for line in lines]

    def _drawer(self, width: int, height: int) -> list[list[Segment]]:
        """A rule, then two columns."""
        facts, (code, meaning) = self.model.cell_facts(), self.model.meaning()
        left = PANEL_WIDTH
        right = width - left - 1
        body = height - 1
        head = sections.header(facts, code, meaning, left)
        b_first = self.model.state.b_first
        rest = [
            *sections.logprob(facts, right, b_first=b_first),
            *sections.profile(facts, right),
        ]
        room = body - len(rest)
        if self._by_module:
            first = [*head, *self._table(left, body - len(head))]
            second = (
                sections.experts(facts, right, room, b_first=b_first) if right >= FULL_TABLE else []
            )
        else:
            first = [*head, *sections.experts(facts, left, body - len(head), b_first=b_first)]
            rest = [*(line for part in self._folded(right) for line in part), *rest]
            second = self._table(right, room)
            room = body - len(rest)
            if len(second) > room:
                second = _round_focus(second, self.model, room)
        second = [*second[: max(0, room)], *rest]
        lines = [[Segment("─" * width, RULE)]]
        first += [BLANK] * (body - len(first))
        second += [BLANK] * (body - len(second))
        for line_a, line_b in zip(sections.padded(first, left), second, strict=False):
            lines.append([*line_a, Segment("│", RULE), *line_b])
        return lines[:height]

    @property
    def _by_module(self) -> bool:
        """Whether the table is of modules on A's input, not of sites."""
        return self.model.attribution is not None and is_error_lens(self.model.state.lens)

    def _table(self, width: int, height: int) -> list[list[Segment]]:
        model, facts = self.model, self.model.cell_facts()
        if model.attribution is None or not self._by_module:
            return sections.sites(facts, width)
        return arbiter(facts, model.attribution, model.state.lens, width, height)

    def _folded(self, width: int) -> list[list[list[Segment]]]:
        """One line on the modules while the table is of sites."""
        if self.model.attribution is None or self._by_module:
            return []
        return [arbiter_line(self.model.cell_facts(), width)]


def _round_focus(lines: list[list[Segment]], model: ViewModel, room: int) -> list[list[Segment]]:
    """The heading and the rows of the table round the site in focus, in `room` lines or three."""
    rows = max(2, room - 1)
    names = [site.site for site in model.cell_facts().sites]
    focus = names.index(model.state.site) if model.state.site in names else len(names) - 1
    start = max(0, min(focus - rows // 2, len(names) - rows))
    return [lines[0], *lines[1 + start : 1 + start + rows]]
