"""A flip in a few characters: the experts that changed, and whether the input explains it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from workbench.errors import CaptureError
from workbench.view.source import Source
from workbench.view.state import Cell


class Flip(NamedTuple):
    """What one routing decision came to.

    Attributes:
        num: Experts of A that B did not select.
        only_a, only_b: Their ids; empty where the vectors cannot be read.
        explained: None where there is no flip, or none that could be judged.
    """

    num: int
    only_a: tuple[int, ...] = ()
    only_b: tuple[int, ...] = ()
    explained: bool | None = None

    @property
    def word(self) -> str:
        """`explained`, `UNEXPLAINED` or `not judged`; empty without a flip."""
        if not self.num:
            return ""
        if self.explained is None:
            return "not judged"
        return "explained" if self.explained else "UNEXPLAINED"

    def short(self, width: int) -> str:
        """The experts as `5→7`, or their number where that is too wide."""
        if not self.num:
            return "·"
        text = f"{_ids(self.only_a)}→{_ids(self.only_b)}"
        known = self.only_a and self.only_b and len(text) <= width
        return text if known else f"{self.num} flip{'' if self.num == 1 else 's'}"


def flip_of(
    source: Source, cell: Cell, line: Mapping[str, float | int | bool | None]
) -> Flip | None:
    """The flip of a cell; None where routing was not compared.

    Args:
        source: The comparison.
        cell: Which cell.
        line: Its metrics.
    """
    if line.get("topk.set_equal") is None:
        return None
    count = int(line.get("topk.num_flips") or 0)
    if not count:
        return Flip(0)
    explained = line.get("topk.explained")
    judged = None if explained is None else bool(explained)
    try:
        ids = source.numbers(cell.layer, cell.row, "topk_ids")
    except CaptureError:
        return Flip(count, explained=judged)
    if ids.a is None or ids.b is None:
        return Flip(count, explained=judged)
    a, b = ({int(e) for e in side if e >= 0} for side in (ids.a, ids.b))
    return Flip(count, tuple(sorted(a - b)), tuple(sorted(b - a)), judged)


def _ids(experts: tuple[int, ...]) -> str:
    return ",".join(map(str, experts))
