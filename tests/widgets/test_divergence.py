"""Traits, state and what people get from the stepper; the front end is a comm that keeps all."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import ipywidgets
import numpy as np
import pytest

from tests.view.attributed import attributed
from tests.view.synthetic import ArraySource, make_source
from tests.widgets.conftest import Wire
from workbench.errors import UsageError
from workbench.view.actions import ACTIONS
from workbench.view.state import Area, Cell
from workbench.widgets.content import OVERVIEW_COLUMNS
from workbench.widgets.divergence import Divergence
from workbench.widgets.keys import FRONT_END, browser_key, key_map
from workbench.widgets.panel import Workbench, view

FLIPS = ((1, 5), (3, 20), (0, 41))
HOSTILE = "<script>alert('x')</script>"


def source(**events: Any) -> ArraySource:
    """Sixty tokens with three flips."""
    return make_source(**{"flips": FLIPS, "noise": 1e-5, **events})


def widget(**events: Any) -> Divergence:
    """The stepper over it."""
    return Divergence(source(**events))


def bundle(shown: Divergence | Workbench) -> dict[str, Any]:
    """What a notebook keeps of a displayed widget."""
    found: Any = shown._repr_mimebundle_()
    data: dict[str, Any] = found[0] if isinstance(found, tuple) else found
    return data


def test_it_opens_at_the_first_divergence(wire: Wire) -> None:
    found = widget()
    assert found.cursor == (1, 5)
    assert (found.klass, found.lens) == ("flip", "router")
    assert found.state.cell == Cell(1, 5)
    assert found._screen["headline"]["text"].startswith("first flip: L1 t5")


def test_what_is_asked_for_at_opening_is_shown(wire: Wire) -> None:
    found = Divergence(source(), klass="bit", lens="gates", cursor=(2, 30), pin=(0, 1))
    assert (found.klass, found.lens, found.cursor, found.pin) == ("bit", "gates", (2, 30), (0, 1))
    assert found.state.pin == Cell(0, 1)


def test_a_written_trait_changes_the_state_and_is_observed(wire: Wire) -> None:
    found = widget()
    seen: list[Any] = []
    found.observe(lambda change: seen.append(change["new"]), names="cursor")
    found.cursor = (3, 20)
    assert found.state.cell == Cell(3, 20)
    assert seen == [(3, 20)]


def test_a_trait_written_by_the_front_end_is_taken_up_and_not_sent_back(wire: Wire) -> None:
    found = widget()
    wire.clear()
    wire.write(found, cursor=[3, 20])
    assert found.state.cell == Cell(3, 20)
    assert all("cursor" not in message.data["state"] for message in wire.updates)


def test_a_cursor_outside_is_put_inside(wire: Wire) -> None:
    found = widget()
    found.cursor = (99, -4)
    assert found.cursor == (3, 0)


@pytest.mark.parametrize(
    ("trait", "value", "near"), [("lens", "rout", "router"), ("klass", "flips", "flip")]
)
def test_an_unknown_name_is_refused_with_the_nearest(
    wire: Wire, trait: str, value: str, near: str
) -> None:
    found = widget()
    before = getattr(found, trait)
    with pytest.raises(UsageError, match=f"did you mean .*{near}"):
        setattr(found, trait, value)
    assert getattr(found, trait) == before


def test_an_unknown_tolerance_is_refused(wire: Wire) -> None:
    found = widget()
    with pytest.raises(UsageError, match="unknown tolerance profile"):
        found.tolerance = "bf17"
    found.tolerance = "bitwise"
    assert found.state.tolerance == "bitwise"


def test_a_class_without_a_cell_is_not_taken_up_and_said_to_be_empty(wire: Wire) -> None:
    found = widget()
    found.klass = "unexplained_flip"
    assert found.klass == "flip"
    assert "no unexplained flip" in found._screen["headline"]["text"]


def test_every_action_of_the_model_can_be_asked_for_by_the_front_end(wire: Wire) -> None:
    found = widget()
    for action in (a for a in ACTIONS if a.run is not None):
        content, _ = wire.ask(found, id="v:1", op="act", action=action.id)
        assert "error" not in content, action.id
        assert found.cursor == found.state.cell == tuple(content["cell"]["at"]), action.id


def test_an_action_that_only_a_terminal_has_is_answered_with_an_error(wire: Wire) -> None:
    found = widget()
    content, _ = wire.ask(found, id="v:1", op="act", action="quit")
    assert content["id"] == "v:1"
    assert "'quit' cannot be done here" in content["error"]


def test_the_next_divergence_is_in_the_window(wire: Wire) -> None:
    found = widget(num_rows=3000, flips=((1, 5), (2, 2900)))
    found.act("jump.next")
    l0, l1, t0, t1 = found.window
    assert found.cursor == (2, 2900)
    assert l0 <= 2 < l1
    assert t0 <= 2900 < t1 <= 3000


def test_moving_inside_the_window_leaves_it_where_it_is(wire: Wire) -> None:
    found = widget(num_rows=3000)
    before = found.window
    found.act("cursor.right")
    assert found.window == before


def test_a_written_window_zooms_until_it_is_shown(wire: Wire) -> None:
    found = widget(num_rows=3000)
    found.window = (0, 4, 400, 1400)
    l0, l1, t0, t1 = found.window
    assert (l0, l1) == (0, 4)
    assert t0 <= 400
    assert t1 >= 1400
    assert found.state.cell == Cell(1, 5)


def test_a_window_of_the_same_size_only_moves(wire: Wire) -> None:
    found = widget(num_rows=3000)
    zoom, (l0, l1, t0, t1) = found.state.zoom, found.window
    wire.write(found, window=[l0, l1, t0 + 100, t1 + 100])
    assert found.window == (l0, l1, t0 + 100, t1 + 100)
    assert found.state.zoom == zoom


def test_zooming_out_fits_every_token_and_keeps_the_cursor_in_view(wire: Wire) -> None:
    found = widget(num_rows=3000)
    found.act("zoom.fit")
    assert found.window == (0, 4, 0, 3000)


def test_a_selection_is_the_area_of_the_state_and_the_frame_has_its_cells(wire: Wire) -> None:
    found = widget()
    found.selection = [(0, 2, 5, 7), (1, 3, 6, 8), (9, 12, 0, 3)]
    assert found.state.area == Area(Cell(1, 6), Cell(2, 7))
    frame = found.frame()
    cells = sorted(frame.select("row", "layer").rows())
    assert cells == [(5, 0), (5, 1), (6, 0), (6, 1), (6, 2), (7, 1), (7, 2)]
    assert found.selection == [(0, 2, 5, 7), (1, 3, 6, 8)]


def test_a_selection_made_with_keys_is_seen_in_the_trait(wire: Wire) -> None:
    found = widget()
    for action in ("area.select", "cursor.right", "cursor.down"):
        found.act(action)
    assert found.selection == [(1, 3, 5, 7)]


def test_the_frame_of_nothing_selected_is_the_cell_at_the_cursor(wire: Wire) -> None:
    found = widget()
    frame = found.frame()
    assert frame.select("layer", "row").rows() == [(1, 5)]
    assert frame["topk.num_flips"].to_list() == [1]
    assert frame["topk.explained"].to_list() == [True]


def test_the_code_shows_the_same_state_again(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = source(num_rows=3000)
    found = Divergence(comparison)
    found.klass, found.lens, found.tolerance = "bit", "gates", "bitwise"
    found.cursor, found.pin, found.selection = (2, 700), (0, 3), [(0, 1, 2, 3)]
    made: list[Workbench] = []

    def again(_directory: str, **settings: Any) -> None:
        made.append(view(comparison, **settings))

    monkeypatch.setattr("workbench.widgets.view", again, raising=False)
    exec(found.to_code(), {})
    for trait in ("klass", "lens", "tolerance", "cursor", "pin", "window", "selection"):
        assert getattr(made[0].divergence, trait) == getattr(found, trait), trait


def test_the_page_has_the_window_and_no_script(wire: Wire, tmp_path: Path) -> None:
    found = widget(texts=[HOSTILE] * 60)
    page = found.to_html(tmp_path / "x.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "L1 t5" in page
    assert len(page.encode()) <= 2_000_000


def test_a_saved_notebook_has_text_and_picture(wire: Wire) -> None:
    for shown in (widget(), view(source())):
        data = bundle(shown)
        assert "first flip: L1 t5" in data["text/plain"]
        assert data["text/plain"].count("\n") < 12
        assert data["text/html"].count('src="data:image/svg+xml,') == 1
        assert "application/vnd.jupyter.widget-view+json" in data


@pytest.mark.parametrize("kind", ["large", "all noise", "empty"])
def test_the_saved_picture_stays_small(wire: Wire, kind: str) -> None:
    events: dict[str, dict[str, Any]] = {
        "large": {"num_layers": 96, "num_rows": 4096, "noise": 1e-3},
        "all noise": {"num_layers": 40, "num_rows": 700, "noise": 0.05},
        "empty": {"num_rows": 0, "flips": ()},
    }
    found = widget(**events[kind])
    found.lens = "combined"
    assert len(bundle(found)["text/html"].encode()) <= 150_000


def test_a_comparison_without_rows_opens(wire: Wire) -> None:
    found = widget(num_rows=0, flips=())
    assert found._screen["headline"]["text"] == "no rows to compare"
    found.act("cursor.right")
    assert wire.ask(found, id="v:1", op="cell", layer=0, token=0)[0]["error"]


def test_messages_of_a_move_are_small(wire: Wire) -> None:
    found = widget(num_rows=3000, texts=["ω" * 40] * 3000)
    for action in ("cursor.right", "jump.next", "mark.toggle", "lens.gates", "zoom.out"):
        wire.clear()
        found.act(action)
        for message in wire.updates:
            assert message.size <= 4096, action


def test_the_overview_is_sent_when_the_grid_changes_and_only_then(wire: Wire) -> None:
    found = widget(num_rows=3000)
    assert len(found._overview) == 4 * OVERVIEW_COLUMNS
    wire.clear()
    found.act("cursor.right")
    assert not any(message.buffers for message in wire.updates)
    found.lens = "gates"
    (sent,) = [message for message in wire.updates if message.buffers]
    assert sent.buffers == [found._overview]


def test_what_a_notebook_saves_of_a_widget_stays_small(wire: Wire) -> None:
    state = widget(num_layers=96, num_rows=4096).get_state()
    grid = base64.b64encode(state.pop("_overview"))
    assert len(json.dumps(state, default=str).encode()) + len(grid) <= 200_000


def test_every_key_of_the_table_is_a_browser_key_or_a_chord() -> None:
    known = key_map()
    assert {entry["id"] for entry in known} >= {a.id for a in ACTIONS if a.run is not None}
    assert {entry["id"] for entry in known} >= set(FRONT_END)
    keys = [key for entry in known for key in entry["keys"]]
    assert len(keys) == len(set(keys))
    for action in ACTIONS:
        for key in action.keys:
            assert browser_key(key) is not None or "+" in key


def test_going_back_leads_out_of_a_search_before_it_leads_out_of_the_widget(wire: Wire) -> None:
    found = widget()
    seen = [found._screen]
    wire.ask(found, id="v:1", op="choose", action="find.show", value="=")
    seen.append(found._screen)
    found.act("back")
    seen.append(found._screen)
    assert [(screen["find"], screen["back"]) for screen in seen] == [
        ("", False),
        ("=", True),
        ("", False),
    ]


def test_a_persons_own_keys_are_those_of_the_widget(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "keys.toml"
    file.write_text('[keys]\n"jump.next" = ["full_stop", "f3"]\n"site.next" = ["n"]\n')
    monkeypatch.setenv("KLDIVE_KEYS", str(file))
    keys = {entry["id"]: entry["keys"] for entry in widget()._about["actions"]}
    assert keys["jump.next"] == [".", "F3"]
    assert keys["site.next"] == ["n"]


def test_the_widget_opens_with_a_zoom_that_suits_its_room(wire: Wire) -> None:
    found = widget(num_layers=96, num_rows=3000, flips=((1, 5),))
    assert found.window[:2] == (0, 96)
    room = {"columns": 100, "bands": 1, "layers": 28, "dense_layers": 90}
    wire.tell(found, id="v:1", op="room", **room)
    assert found.window == (0, 90, 0, 100)
    found.act("zoom.in")
    assert found.window[1] - found.window[0] == 28


def test_few_layers_go_on_in_bands(wire: Wire) -> None:
    found = widget(num_rows=3000)
    before = found.window[3] - found.window[2]
    room = {"columns": 120, "bands": 3, "layers": 28, "dense_layers": 100}
    wire.tell(found, id="v:1", op="room", **room)
    assert found.window[3] - found.window[2] == 3 * before


@pytest.mark.parametrize("room", [{}, {"columns": 0}, {"columns": "9"}, {"columns": True}])
def test_a_room_that_cannot_be_is_answered_with_an_error(wire: Wire, room: dict[str, Any]) -> None:
    found = widget()
    sizes = {"bands": 1, "layers": 9, "dense_layers": 9, **room}
    content, _ = wire.ask(found, id="v:1", op="room", **sizes)
    assert "columns cannot be shown" in content["error"]


def test_controls_and_stepper_follow_each_other(wire: Wire) -> None:
    shown = view(attributed(source(), {(1, 5, "attention"): 0.2}))
    found = shown.divergence
    controls = {c.description: c for c in shown.children[0].children if c.description}
    controls["lens"].value = "gates"
    controls["layer"].value = 2
    assert (found.lens, found.cursor[0]) == ("gates", 2)
    found.lens = "local"
    found.cursor = (3, 7)
    found.tolerance = "bf16*4"
    assert controls["lens"].value == "local"
    assert controls["layer"].value == 3
    assert controls["tolerance"].value == "bf16*4"
    assert found.tolerance == "bf16*4"
    controls["class"].value = "flip"
    controls["next"].click()
    assert found.cursor == (3, 20)


def test_a_class_that_is_empty_leaves_the_dropdown_where_it_was(wire: Wire) -> None:
    shown = view(source())
    shown.divergence.klass = "unexplained_flip"
    controls = {c.description: c for c in shown.children[0].children if c.description}
    assert controls["class"].value == "flip"


def test_interact_and_links_of_jupyter_work_on_the_traits(wire: Wire) -> None:
    found = widget()
    slider = ipywidgets.IntSlider(min=0, max=59)
    ipywidgets.dlink((slider, "value"), (found, "cursor"), lambda row: (2, row))
    slider.value = 33
    assert found.state.cell == Cell(2, 33)


def test_numbers_of_the_frame_are_those_of_the_comparison(wire: Wire) -> None:
    comparison = source()
    found = Divergence(comparison, selection=[(0, 4, 0, 60)])
    frame = found.frame()
    assert len(frame) == 240
    shown = frame["mlp_out.rel_l2"].to_numpy().reshape(60, 4).T
    missing = comparison.missing("mlp_out.rel_l2")
    assert np.array_equal(np.isnan(shown), missing)
    assert np.array_equal(shown[~missing], comparison.column("mlp_out.rel_l2")[~missing])
