from pathlib import Path

import pytest

from workbench.errors import UsageError
from workbench.view.actions import ACTIONS
from workbench.view.drill_actions import DRILL_ACTIONS, DRILL_PAGES
from workbench.view.keymap import (
    DEFAULT_KEYS,
    TAKEN,
    drill_keys,
    keymap_path,
    keymap_text,
    load_keymap,
    parse_keymap,
)


def test_the_built_in_keys_survive_a_file() -> None:
    assert parse_keymap(keymap_text(DEFAULT_KEYS)) == DEFAULT_KEYS


def test_no_built_in_key_is_one_that_may_not_be_chosen() -> None:
    keys = {key for action in (*ACTIONS, *DRILL_ACTIONS) for key in action.keys}
    assert not keys & set(TAKEN)


def test_no_two_actions_of_the_drill_share_a_key() -> None:
    keys = [key for own in drill_keys(DEFAULT_KEYS).values() for key in own]
    assert len(keys) == len(set(keys))


def test_a_key_chosen_for_the_table_holds_in_the_drill_and_built_in_ones_give_way() -> None:
    # Space turns a screenful in the drill; on the grid it opens the drill.
    keymap = parse_keymap('[keys]\n"drill.show" = "enter"\n"order.toggle" = "space"\n')
    keys = drill_keys(keymap)
    assert keys["order.toggle"] == ("space",)
    assert keys["page.forward"] == ("pagedown", "L")
    assert keys["cursor.down"] == ("j", "down")


def test_pages_of_the_drill_have_keys_of_their_own() -> None:
    keymap = parse_keymap('[keys]\n"drill.experts" = "f6"\n')
    assert drill_keys(keymap)["drill.experts"] == ("f6",)
    assert [keymap[page.id] for page in DRILL_PAGES if page.id != "drill.experts"] == [
        ("1",),
        ("3",),
        ("4",),
        ("5",),
    ]


def test_a_file_changes_what_it_names_and_nothing_else() -> None:
    keymap = parse_keymap('[keys]\n"jump.next" = ["f3", "n"]\njump.previous = "f2"\n')
    assert keymap["jump.next"] == ("f3", "n")
    assert keymap["jump.previous"] == ("f2",)
    others = {name: keys for name, keys in keymap.items() if not name.startswith("jump.")}
    assert others == {n: k for n, k in DEFAULT_KEYS.items() if not n.startswith("jump.")}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[keys", "not TOML"),
        ('[kyes]\n"jump.next" = "n"', "one table"),
        ('keys = "n"', "one table"),
        ('[keys]\n"jump.nxt" = "x"', "unknown action"),
        ('[keys]\n"jump.next" = []', "no keys"),
        ('[keys]\n"jump.next" = [3]', "no keys"),
        ('[keys]\n"jump.next" = "f"', "two things"),
        ('[keys]\n"drill.experts" = "3"', "two things"),
        ('[keys]\n"drill.experts" = "y"', "two things"),
        ('[keys]\n"drill.expert" = "f6"', "drill.experts"),
        ('[keys]\n"jump.next" = "ctrl+s"', "cannot be used"),
        ('[keys]\n"jump.next" = "alt+n"', "cannot be used"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(text: str, what: str, tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=what) as caught:
        load_keymap(path)
    assert str(path) in str(caught.value)


def test_without_a_file_the_built_in_keys_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KLDIVE_KEYS", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert load_keymap() == DEFAULT_KEYS
    assert keymap_path() == tmp_path / "kldive" / "keys.toml"


def test_a_file_that_was_named_has_to_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KLDIVE_KEYS", str(tmp_path / "none.toml"))
    with pytest.raises(UsageError, match="no such keymap"):
        load_keymap()
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="cannot be read"):
        load_keymap(tmp_path / "bad.toml")
