"""The actions of the drill: those of the table under the same ids, and a few of its own.

A person's key for an id holds here as well. Keys that are built in here give way to it. Stdlib
only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from workbench.view.actions import ACTION_BY_ID, Action


def _here(action_id: str, title: str, about: str, keys: tuple[str, ...] = ()) -> Action:
    """An action of the table with what it does here, on its own keys or on others."""
    action = ACTION_BY_ID[action_id]
    return replace(action, title=title, help=about, keys=keys or action.keys, run=None)


def _page(name: str, key: str, about: str) -> Action:
    return Action(
        id=f"drill.{name}",
        keys=(key,),
        title=f"Page: {about}",
        help=f"The page {about}.",
        group="show",
    )


DRILL_PAGES: Final = (
    _page("vector", "1", "of both vectors"),
    _page("experts", "2", "of the experts"),
    _page("layers", "3", "of the token down the layers"),
    _page("tokens", "4", "of the layer across its tokens"),
    _page("pin", "5", "of this cell against the pinned one"),
)
"""Opening each page, in the order of the pages."""

DRILL_ACTIONS: Final = (
    _here("cursor.left", "Previous page", "The page to the left; Shift+Tab too."),
    _here("cursor.right", "Next page", "The page to the right; Tab too."),
    *DRILL_PAGES,
    _here("cursor.down", "Down", "One line down."),
    _here("cursor.up", "Up", "One line up."),
    # Space opens the drill on the grid and turns a screenful here, as on every page of text.
    _here("page.forward", "Page down", "One screen of lines down.", ("pagedown", "space", "L")),
    _here("page.back", "Page up", "One screen of lines up.", ("pageup", "H")),
    _here("token.first", "First line", "The first line."),
    _here("token.last", "Last line", "The last line."),
    _here("layer.first", "First line", "The first line."),
    _here("layer.last", "Last line", "The last line."),
    _here("drill.show", "Go there", "To the grid, at the cell of this line.", ("enter",)),
    _here("site.next", "Next site", "The next site in execution order; the grid goes along."),
    _here("site.previous", "Previous site", "Back towards the embedding."),
    _here("order.toggle", "Order", "Tokens in order, or the largest difference first."),
    _here("copy.cell", "Copy this page", "The page as text, to the clipboard (OSC 52)."),
    _here("failures.show", "What failed", "What went wrong, in full."),
    _here("help.show", "Help", "Keys, levels and words."),
    _here("back", "Back", "Back to the grid."),
    _here("quit", "Back", "Back to the grid.", ("q",)),
)
"""Everything that the drill does."""
