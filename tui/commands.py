"""The command palette's source: every action of the table, with its key."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider

from workbench.view.actions import ACTIONS, Action, key_name

if TYPE_CHECKING:
    from tui.app import Workbench


class ActionProvider(Provider):
    """Offers the actions by title."""

    async def discover(self) -> Hits:
        for action in _offered():
            yield DiscoveryHit(self._title(action), self._run(action), help=action.help)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for action in _offered():
            score = matcher.match(self._title(action))
            if score > 0:
                title = matcher.highlight(self._title(action))
                yield Hit(score, title, self._run(action), help=action.help)

    def _run(self, action: Action) -> partial[None]:
        return partial(cast("Workbench", self.screen).perform, action.id)

    def _title(self, action: Action) -> str:
        keys = cast("Workbench", self.screen).keymap[action.id]
        return f"{action.title}  ({' '.join(key_name(key) for key in keys)})"


def _offered() -> list[Action]:
    return [action for action in ACTIONS if action.id not in ("palette.show", "back")]
