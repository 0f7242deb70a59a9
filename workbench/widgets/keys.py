"""The table of actions as the notebook needs it: browser keys, and who carries an action out.

Made from `workbench.view.actions`; no key is named a second time. Stdlib only.
"""

from __future__ import annotations

from typing import Any, Final

from workbench.view.actions import ACTIONS, GROUP_TITLES, key_name

MENUS: Final = ("class.choose", "tolerance.choose")
"""Actions that ask for one of a few entries."""
PROMPTS: Final = {
    "find.show": "find token text or #id",
    "goto.show": "go to, such as L12 t4096",
    "filter.show": "show only, such as L4-12 t100-400 >=3 e17",
}
"""Actions that ask for a line of text, and what they ask."""
COPIES: Final = ("copy.cell", "copy.link")
"""Actions that put a text on the clipboard."""
FRONT_END: Final = (*MENUS, *PROMPTS, *COPIES, "help.show")

_BROWSER_KEYS: Final = {
    "full_stop": ".",
    "comma": ",",
    "question_mark": "?",
    "slash": "/",
    "colon": ":",
    "apostrophe": "'",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "backspace": "Backspace",
    "space": " ",
    "enter": "Enter",
    "left": "ArrowLeft",
    "right": "ArrowRight",
    "up": "ArrowUp",
    "down": "ArrowDown",
    "pageup": "PageUp",
    "pagedown": "PageDown",
    "home": "Home",
    "end": "End",
    "escape": "Escape",
    "f1": "F1",
}


def browser_key(key: str) -> str | None:
    """A key as a browser's `KeyboardEvent.key`; None for chords, which belong to the browser.

    >>> browser_key("full_stop"), browser_key("N"), browser_key("ctrl+p")
    ('.', 'N', None)
    """
    if "+" in key and len(key) > 1:
        return None
    found = _BROWSER_KEYS.get(key, key)
    if len(found) > 1 and key not in _BROWSER_KEYS:
        raise ValueError(f"no browser key is known for {key!r}")
    return found


def key_map() -> list[dict[str, Any]]:
    """The actions of the notebook in the table's order, with keys, words and kind, for JSON.

    `kind` says who acts: `model` is sent to Python as it is; `menu`, `prompt`, `copy` and `help`
    start in the front end. Actions of a terminal alone (its palette, quitting) are left out.
    """
    return [
        {
            "id": action.id,
            "keys": [k for key in action.keys if (k := browser_key(key)) is not None],
            "names": [key_name(key) for key in action.keys if browser_key(key) is not None],
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
    return "copy" if action_id in COPIES else "help" if action_id == "help.show" else ""
