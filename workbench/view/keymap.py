"""A person's own keys: one TOML file of action ids, laid over the table of actions. Stdlib only.

    [keys]
    "jump.next" = ["n", "f3"]

An action that the file does not name keeps its keys. Keys are spelled as Textual spells them.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from workbench.errors import UsageError, did_you_mean
from workbench.view.actions import ACTION_BY_ID, ACTIONS, key_name
from workbench.view.drill_actions import DRILL_ACTIONS, DRILL_PAGES

Keymap = Mapping[str, tuple[str, ...]]

DEFAULT_KEYS: Final[Keymap] = {action.id: action.keys for action in (*ACTIONS, *DRILL_PAGES)}
TAKEN: Final[dict[str, str]] = {
    **{f"ctrl+{letter}": "the shell's line editor and tmux" for letter in "abdefghjklnorstuwxyz"},
    "ctrl+c": "the terminal, to interrupt",
    "ctrl+i": "terminals, which send it as tab",
    "ctrl+m": "terminals, which send it as enter",
    "ctrl+v": "terminals, to paste",
    "tab": "moving between fields",
}
"""Keys that do not arrive everywhere, and who takes them."""


def keymap_path() -> Path:
    """Where a person's keymap lies: `KLDIVE_KEYS`, else `kldive/keys.toml` in the config folder."""
    named = os.environ.get("KLDIVE_KEYS")
    if named:
        return Path(named)
    config = os.environ.get("XDG_CONFIG_HOME")
    return (Path(config) if config else Path.home() / ".config") / "kldive" / "keys.toml"


def load_keymap(path: Path | None = None) -> Keymap:
    """The keys of every action, with those of a file laid over the built-in ones.

    Args:
        path: The file, which has to be there; None looks at `keymap_path`, which need not.

    Raises:
        UsageError: Not TOML, an unknown action, a key that cannot be used or is taken twice.
    """
    where = path or keymap_path()
    try:
        text = where.read_text("utf-8")
    except FileNotFoundError:
        if path is None and not os.environ.get("KLDIVE_KEYS"):
            return DEFAULT_KEYS
        raise UsageError("no such keymap", where=where) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError("the keymap cannot be read", where=where, got=str(error)) from error
    return parse_keymap(text, where)


def parse_keymap(text: str, where: Path | None = None) -> Keymap:
    r"""As `load_keymap`, from the content of a file.

    >>> parse_keymap('[keys]\n"jump.next" = ["f3"]')["jump.next"]
    ('f3',)
    """
    try:
        body = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError("the keymap is not TOML", where=where, got=str(error)) from error
    others = set(body) - {"keys"}
    table = body.get("keys", {})
    if others or not isinstance(table, dict):
        got = ", ".join(sorted(others)) or type(table).__name__
        raise UsageError("a keymap has one table", where=where, expected="[keys]", got=got)
    chosen = {name: _keys(name, keys, where) for name, keys in _flat(table)}
    keymap = {**DEFAULT_KEYS, **chosen}
    _check_unique({name: keymap[name] for name in ACTION_BY_ID}, where)
    in_drill = drill_keys(keymap)
    # Giving way must leave an action a key.
    _check_unique({n: keys or DEFAULT_KEYS[n] for n, keys in in_drill.items()}, where)
    return keymap


def drill_keys(keymap: Keymap) -> Keymap:
    r"""The keys of every action of the drill.

    A person's key for an action of the table holds here too; a built-in key of the drill gives way.

    >>> drill_keys(parse_keymap('[keys]\n"cursor.down" = ["f3"]'))["cursor.down"]
    ('f3',)
    """
    own = {a.id for a in DRILL_ACTIONS if keymap[a.id] != DEFAULT_KEYS[a.id]}
    taken = {key for name in own for key in keymap[name]}
    return {
        action.id: keymap[action.id]
        if action.id in own
        else tuple(key for key in action.keys if key not in taken)
        for action in DRILL_ACTIONS
    }


def scroll_hint(keymap: Keymap, leaving: str) -> str:
    """What keys do on a page of text, for its border.

    >>> scroll_hint(DEFAULT_KEYS, "closes this page")
    'j k scroll · esc closes this page'
    """
    down, up, back = (key_name(keymap[n][0]) for n in ("cursor.down", "cursor.up", "back"))
    return f"{down} {up} scroll · {back.lower()} {leaving}"


def keymap_text(keymap: Keymap) -> str:
    """A keymap as the file that gives it back."""
    lines = [f"{json.dumps(name)} = {json.dumps(list(keys))}" for name, keys in keymap.items()]
    return "\n".join(["[keys]", *lines, ""])


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Entries with their dotted names: `jump.next` and a table `jump` with `next` mean the same."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _keys(name: str, keys: object, where: Path | None) -> tuple[str, ...]:
    if name not in DEFAULT_KEYS:
        raise UsageError(
            f"unknown action {name!r}", where=where, do=did_you_mean(name, DEFAULT_KEYS)
        )
    given = [keys] if isinstance(keys, str) else keys
    if not isinstance(given, list) or not given or not all(isinstance(k, str) and k for k in given):
        raise UsageError(
            f"no keys for {name}",
            where=where,
            expected='a list such as ["n", "f3"]',
            got=repr(keys),
        )
    for key in given:
        if key in TAKEN or "alt" in key.split("+"):
            taker = TAKEN.get(key, "many terminals")
            raise UsageError(f"{key} cannot be used", where=where, got=f"it is taken by {taker}")
    return tuple(given)


def _check_unique(keymap: Keymap, where: Path | None) -> None:
    owner: dict[str, str] = {}
    for name, keys in keymap.items():
        for key in keys:
            if key in owner:
                raise UsageError(
                    f"{key} would do two things",
                    where=where,
                    got=f"{owner[key]} and {name}",
                    do="give one of them another key",
                )
            owner[key] = name
