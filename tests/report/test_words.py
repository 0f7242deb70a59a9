"""How places and shares are written."""

from __future__ import annotations

from workbench.report.words import place, share


def test_a_share_of_nothing_has_no_percentage() -> None:
    assert share(0, 0) == "0 of 0"


def test_a_place_without_layer_starts_with_its_site() -> None:
    entry = {"layer": None, "site": "logprobs", "request": "a", "position": 3}
    assert place(entry) == "logprobs · a p3"
