"""The decoded text round the cursor, and under each token the worst level of any layer."""

from __future__ import annotations

from rich.segment import Segment

from tui.lines import Lines
from tui.rail import FULL_WIDTH
from tui.styles import CODE_TEXT, CURSOR, HEADING, HEADING_ODD, HIT, MUTED
from workbench.view.model import ViewModel
from workbench.view.palette import GLYPHS
from workbench.view.rows import ELLIPSIS, fit, strip_tokens

LABEL_WIDTH = FULL_WIDTH


class TokenStrip(Lines):
    """Two lines: the text of the cursor's request, and the level of each token."""

    def __init__(self, model: ViewModel) -> None:
        super().__init__("strip")
        self.model = model

    def lines(self, width: int, height: int) -> list[list[Segment]]:
        model, row = self.model, self.model.state.row
        if not model.num_rows:
            return []
        label = LABEL_WIDTH if width > 80 else 0
        first, stop = model.request_rows(row)
        tokens = strip_tokens(model.text, row=row, first=first, stop=stop, width=width - label - 2)
        text = [Segment(fit(f" {model.request(row)}", label), MUTED)] if label else []
        level = [Segment(fit(" worst level", label), MUTED)] if label else []
        more_left, more_right = tokens[0].row > first, tokens[-1].row + 1 < stop
        text.append(Segment(ELLIPSIS if more_left else " ", MUTED))
        level.append(Segment(" ", MUTED))
        for token in tokens:
            style = CURSOR if token.row == row else (HEADING, HEADING_ODD)[token.row % 2]
            style = HIT if token.row != row and model.is_hit(token.row) else style
            text.append(Segment(token.text, style))
            code = model.worst_code(0, model.num_layers, token.row, token.row + 1)
            mark = GLYPHS[code] if token.row != row else "▲"
            level.append(Segment(fit(mark, token.width), CODE_TEXT[code]))
        text.append(Segment(ELLIPSIS if more_right else " ", MUTED))
        return [text, level][:height]
