"""The table of actions as the notebook needs it: browser keys, and who carries an action out.

Made from `workbench.view.actions` and a person's own keymap; no key is named a second time. Stdlib
only.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any, Final

from workbench.view.actions import ACTIONS, GROUP_TITLES, key_name
from workbench.view.keymap import DEFAULT_KEYS, Keymap

MENUS: Final = ("class.choose", "tolerance.choose", "mark.list", "export.show")
"""Actions that ask for one of a few entries."""
PROMPTS: Final = {
    "find.show": "find token text or #id",
    "goto.show": "go to, such as L12 t4096, a token's number or a link",
    "filter.show": "show only, such as L4-12 t100-400 >=3 e17",
}
"""Actions that ask for a line of text, and what they ask."""
COPIES: Final = ("copy.cell", "copy.link")
"""Actions that put a text on the clipboard."""
TEXTS: Final = ("swaps.show",)
"""Actions that show a page of text."""
FRONT_END: Final = (*MENUS, *PROMPTS, *COPIES, *TEXTS, "help.show")

_NAMED: Final = {
    "backspace": "Backspace",
    "space": " ",
    "enter": "Enter",
    "tab": "Tab",
    "delete": "Delete",
    "left": "ArrowLeft",
    "right": "ArrowRight",
    "up": "ArrowUp",
    "down": "ArrowDown",
    "pageup": "PageUp",
    "pagedown": "PageDown",
    "home": "Home",
    "end": "End",
    "escape": "Escape",
    "slash": "/",
    "backslash": "\\",
    "at": "@",
    "minus": "-",
    "plus": "+",
    "underscore": "_",
}
"""Keys without a character, and those that Textual calls by another name than Unicode does."""


def browser_key(key: str) -> str | None:
    """A key as a browser's `KeyboardEvent.key`; None for chords, which belong to the browser.

    >>> browser_key("full_stop"), browser_key("N"), browser_key("f1"), browser_key("ctrl+p")
    ('.', 'N', 'F1', None)
    """
    if len(key) == 1 or "+" in key:
        return key if len(key) == 1 else None
    if key in _NAMED:
        return _NAMED[key]
    if re.fullmatch(r"f\d{1,2}", key):
        return key.upper()
    return unicodedata.lookup(key.replace("_", " "))


def key_map(keymap: Keymap = DEFAULT_KEYS) -> list[dict[str, Any]]:
    """The actions of the notebook in the table's order, with keys, words and kind, for JSON.

    Args:
        keymap: Keys of each action, which may be a person's own.

    `kind` says who acts: `model` is sent to Python as it is; `menu`, `prompt`, `copy`, `read` and
    `help` start in the front end. Actions of a terminal alone (its palette, quitting) are left out.
    """
    return [
        {
            "id": action.id,
            "keys": [k for key in keymap[action.id] if (k := browser_key(key)) is not None],
            "names": [key_name(key) for key in keymap[action.id] if browser_key(key) is not None],
            "title": action.title,
            "help": action.help,
            "group": GROUP_TITLES[action.group],
            "kind": kind,
            "ask": PROMPTS.get(action.id, ""),
        }
        for action in ACTIONS
        if (kind := _kind(action.id, in_model=action.run is not None))
    ]


def _kind(action_id: str, *, in_model: bool) -> str:
    if in_model:
        return "model"
    if action_id in MENUS:
        return "menu"
    if action_id in PROMPTS:
        return "prompt"
    if action_id in TEXTS:
        return "read"
    return "copy" if action_id in COPIES else "help" if action_id == "help.show" else ""
