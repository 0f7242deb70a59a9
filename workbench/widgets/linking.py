"""Widgets that move together: one cursor over two comparisons of the same tokens.

Guarded against loops by comparing values: a widget that already shows what it is told stays silent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, cast, get_args

from workbench.errors import UsageError, did_you_mean
from workbench.view.model import ViewModel

if TYPE_CHECKING:
    from workbench.widgets.divergence import Divergence
    from workbench.widgets.panel import Workbench

By = Literal["token", "layer", "cell"]
_BYS: Final = get_args(By)


class Link:
    """Two widgets in step, until `unlink` or until `link` of either is written empty."""

    def __init__(self, first: Divergence, second: Divergence, by: By) -> None:
        self.by = by
        self._pair = (first, second)
        self._moving = False
        for widget in self._pair:
            widget.link = by
            widget.observe(self._moved, names=["cursor", "window"])
        self._follow(first, second)

    def unlink(self) -> None:
        """Lets both go their own way."""
        for widget in self._pair:
            widget.unobserve(self._moved, names=["cursor", "window"])
            widget.link = ""

    def _moved(self, change: Any) -> None:
        first, second = self._pair
        if self._moving or not (first.link and second.link):
            return
        leader, follower = (first, second) if change["owner"] is first else (second, first)
        self._follow(leader, follower, change["name"])

    def _follow(self, leader: Divergence, follower: Divergence, name: str = "cursor") -> None:
        wanted = self._cursor(leader, follower) if name == "cursor" else None
        window = self._window(leader, follower) if name == "window" else None
        self._moving = True
        try:
            if wanted is not None and wanted != follower.cursor:
                follower.cursor = wanted
            if window is not None and window[2] != follower.window[2]:
                follower.window = window
        finally:
            self._moving = False

    def _cursor(self, leader: Divergence, follower: Divergence) -> tuple[int, int] | None:
        (layer, token), (own_layer, own_token) = leader.cursor, follower.cursor
        row = own_token if self.by == "layer" else same_row(leader.model, follower.model, token)
        if row is None:
            return None
        own = own_layer if self.by == "token" else min(layer, follower.model.num_layers - 1)
        return own, row

    def _window(self, leader: Divergence, follower: Divergence) -> tuple[int, int, int, int] | None:
        if self.by == "layer":
            return None
        first = same_row(leader.model, follower.model, leader.window[2])
        l0, l1, t0, t1 = follower.window
        return None if first is None else (l0, l1, first, first + t1 - t0)


def link(
    first: Divergence | Workbench, second: Divergence | Workbench, *, by: By = "token"
) -> Link:
    """Keeps two widgets in step.

    Args:
        first: The one whose place is taken over at once.
        second: The other.
        by: `token`: the same token of the same request, each at its own layer. `layer`: the same
            layer, each at its own token. `cell`: both.

    Returns:
        The link; `unlink()` ends it. A token that the other comparison does not have moves nothing.

    Raises:
        UsageError: `by` is none of these, or a widget is linked with itself.
    """
    if by not in _BYS:
        raise UsageError(f"widgets cannot be linked by {by!r}", do=did_you_mean(by, _BYS))
    leader, follower = _stepper(first), _stepper(second)
    if leader is follower:
        raise UsageError("a widget cannot be linked with itself")
    return Link(leader, follower, by)


def _stepper(widget: Divergence | Workbench) -> Divergence:
    return cast("Divergence", getattr(widget, "divergence", widget))


def same_row(leader: ViewModel, follower: ViewModel, row: int) -> int | None:
    """The follower's row with the leader's (request, position); None where it has none."""
    if not 0 <= row < leader.num_rows:
        return None
    at = leader.source.rows.row(row, named=True)
    rows = follower.source.rows
    if row < follower.num_rows and _is_at(rows.row(row, named=True), at):
        return row
    same = (rows["request"] == at["request"]) & (rows["position"] == at["position"])
    found = same.arg_true()
    return int(found[0]) if len(found) else None


def _is_at(found: dict[str, Any], at: dict[str, Any]) -> bool:
    return bool(found["request"] == at["request"] and found["position"] == at["position"])
