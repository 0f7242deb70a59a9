import re

import pytest

from workbench.view.actions import ACTION_BY_ID, ACTIONS, GROUP_TITLES, key_name
from workbench.view.lenses import LENSES

TAKEN_ELSEWHERE = {
    # tmux and screen prefixes, terminal signals and flow control, the line editor of a shell.
    *(f"ctrl+{letter}" for letter in "abcdefjkorstuvwxyz"),
    "ctrl+backslash",
    "ctrl+enter",
}


def test_every_action_has_words_for_people() -> None:
    for action in ACTIONS:
        assert re.fullmatch(r"[a-z]+(\.[a-z]+)?", action.id), action.id
        assert action.title, action.id
        assert action.help.endswith("."), action.id
        assert action.group in GROUP_TITLES, action.id


def test_ids_are_unique() -> None:
    assert len(ACTION_BY_ID) == len(ACTIONS)


def test_no_two_actions_share_a_key() -> None:
    keys = [key for action in ACTIONS for key in action.keys]
    assert len(keys) == len(set(keys))
    assert all(action.keys for action in ACTIONS)


def test_no_key_is_taken_by_a_multiplexer_or_a_line_editor() -> None:
    keys = {key for action in ACTIONS for key in action.keys}
    assert not keys & TAKEN_ELSEWHERE
    assert not any(key.startswith(("alt+", "super+", "meta+")) for key in keys)


def test_there_is_one_action_per_key_of_a_lens() -> None:
    lens_keys = {a.id: a.keys for a in ACTIONS if a.id.startswith("lens.")}
    firsts = {lens.key: lens for lens in reversed(LENSES.values())}
    assert lens_keys == {f"lens.{lens.id}": (lens.key,) for lens in firsts.values()}


@pytest.mark.parametrize(
    ("key", "name"), [("full_stop", "."), ("question_mark", "?"), ("ctrl+p", "ctrl+p"), ("n", "n")]
)
def test_keys_are_named_as_they_are_printed(key: str, name: str) -> None:
    assert key_name(key) == name
