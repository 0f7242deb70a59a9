"""Requests and answers byte for byte, over a comm that keeps what is sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.view.attributed import attributed
from tests.view.synthetic import make_source
from tests.widgets.conftest import Wire
from workbench.errors import CaptureError
from workbench.view.tiles import pool_to_width
from workbench.widgets.content import OVERVIEW_COLUMNS
from workbench.widgets.divergence import Divergence

FLIPS = ((1, 5), (3, 20), (0, 41))


def widget(**events: Any) -> Divergence:
    """Sixty tokens with three flips."""
    return Divergence(make_source(**{"flips": FLIPS, "noise": 1e-5, **events}))


def test_a_tile_is_the_grid_in_c_order(wire: Wire) -> None:
    found = widget()
    content, buffers = wire.ask(
        found, id="v:7", op="tile", lens="router", level=0, l0=1, l1=3, t0=4, t1=9
    )
    assert content == {
        "id": "v:7",
        "op": "tile",
        "shape": [2, 5],
        "dtype": "uint8",
        "lens": "router",
        "level": 0,
        "l0": 1,
        "t0": 4,
        "grid": "router|diff|bf16|",
    }
    assert buffers == [found.model.codes()[1:3, 4:9].tobytes()]


def test_a_tile_of_a_level_keeps_the_worst_of_its_tokens(wire: Wire) -> None:
    found = widget(num_rows=1000)
    _, (buffer,) = wire.ask(
        found, id="v:1", op="tile", lens="router", level=3, l0=0, l1=96, t0=0, t1=512
    )
    codes = found.model.codes()
    pooled = np.array([codes[:, i : i + 8].max(axis=1) for i in range(0, 1000, 8)]).T
    assert buffer == pooled.tobytes()


def test_a_tile_over_the_edge_is_cut_there(wire: Wire) -> None:
    found = widget()
    content, (buffer,) = wire.ask(
        found, id="v:1", op="tile", lens="router", level=0, l0=0, l1=96, t0=0, t1=512
    )
    assert content["shape"] == [4, 60]
    assert len(buffer) == 240


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lens": "nope"}, "unknown lens 'nope'"),
        ({"level": -1}, "level cannot be shown"),
        ({"l0": 5}, "l0 cannot be shown"),
        ({"t1": 5000}, "a tile is too large"),
        ({"t0": 1.5}, "t0 cannot be shown"),
        ({"l0": None}, "l0 cannot be shown"),
    ],
)
def test_a_tile_that_cannot_be_is_an_error_with_the_same_id(
    wire: Wire, change: dict[str, Any], words: str
) -> None:
    request = {"lens": "router", "level": 0, "l0": 0, "l1": 4, "t0": 0, "t1": 60, **change}
    content, buffers = wire.ask(widget(), id="v:9", op="tile", **request)
    assert (content["id"], content["op"]) == ("v:9", "tile")
    assert words in content["error"]
    assert buffers == []


def test_an_unknown_request_is_an_error_and_no_request_is_nothing(wire: Wire) -> None:
    found = widget()
    content, _ = wire.ask(found, id="v:1", op="tiles")
    assert "did you mean tile?" in content["error"]
    wire.clear()
    data = {"method": "custom", "content": "hello"}
    found._handle_msg({"content": {"data": data}, "buffers": []})
    assert wire.sent == []


def test_a_cell_is_words_in_tables_and_valid_json(wire: Wire) -> None:
    found = widget(nans=((1, 7),))
    content, _ = wire.ask(found, id="v:1", op="cell", layer=1, token=7)
    json.dumps(content, allow_nan=False)
    assert content["at"] == [1, 7]
    assert content["address"] == "L1 t7"
    sites = next(p for p in content["panels"] if p["id"] == "sites")
    mlp_out = next(row for row in sites["rows"] if row["cells"][0] == "mlp_out")
    assert mlp_out["cells"] == ("mlp_out", "NaN or Inf: A 3, B 0")


def test_experts_of_a_flip_say_which_side_alone_selected_them(wire: Wire) -> None:
    content, _ = wire.ask(widget(), id="v:1", op="cell", layer=1, token=5)
    experts = next(p for p in content["panels"] if p["id"] == "experts")
    assert sorted(row["mark"] for row in experts["rows"]) == ["", "A", "B"]
    only_a = next(row for row in experts["rows"] if row["mark"] == "A")
    assert only_a["cells"][4:6] == ("–", "–")
    assert experts["notes"][-1][0].startswith("explained flip")


def test_looking_at_another_cell_changes_nothing(wire: Wire) -> None:
    found = widget()
    before = found.state
    content, _ = wire.ask(found, id="v:1", op="cell", layer=3, token=20)
    assert content["meaning"] == "one expert differs"
    assert found.state == before


def test_modules_are_there_once_they_are_known(wire: Wire) -> None:
    source = attributed(make_source(noise=1e-5), {(2, 9, "attention"): 0.2}, who="A")
    found = Divergence(source)
    assert found.cursor == (2, 9)
    content, _ = wire.ask(found, id="v:1", op="cell", layer=2, token=9)
    modules = next(p for p in content["panels"] if p["id"] == "modules")
    (wrong,) = [row for row in modules["rows"] if row["mark"] == "over"]
    assert wrong["cells"][0] == "attention"
    assert modules["notes"][0][0].startswith("attention: A (rollout) is wrong")


def test_a_moved_capture_leaves_the_rest_of_the_cell(wire: Wire) -> None:
    found = widget()

    def moved(layer: int, row: int, site: str) -> object:
        raise CaptureError("the capture of side A is not where it was compared")

    found.model.source.cell = moved  # type: ignore[method-assign,assignment]
    content, _ = wire.ask(found, id="v:1", op="cell", layer=0, token=8)
    assert "error" not in content
    assert content["panels"][0]["notes"][0][0].startswith("the capture of side A")


def test_the_overview_is_pooled_by_maximum(wire: Wire) -> None:
    found = widget(num_rows=5000)
    codes = found.model.codes()
    assert found._overview == pool_to_width(codes, OVERVIEW_COLUMNS).tobytes()
    assert max(found._overview) == codes.max()


def test_headings_are_escaped_and_know_their_request(wire: Wire) -> None:
    found = widget(texts=["\x1b[2J"] * 60)
    content, _ = wire.ask(found, id="v:1", op="headings", t0=10, t1=14)
    assert content["first"] == 10
    assert len(content["texts"]) == len(content["requests"]) == 4
    assert all("\x1b" not in text for text in content["texts"])


def test_menus_name_what_can_be_chosen(wire: Wire) -> None:
    found = widget()
    classes, _ = wire.ask(found, id="v:1", op="menu", action="class.choose")
    assert classes["chosen"] == "flip"
    numbers = {value: number for value, _, number, _ in classes["entries"]}
    assert (numbers["flip"], numbers["unexplained_flip"]) == ("3", "none")
    assert numbers["local_error"] == "needs the model"
    profiles, _ = wire.ask(found, id="v:2", op="menu", action="tolerance.choose")
    assert profiles["chosen"] == "bf16"


@pytest.mark.parametrize(
    ("action", "value", "trait", "after"),
    [
        ("class.choose", "bit", "klass", "bit"),
        ("tolerance.choose", "bitwise", "tolerance", "bitwise"),
        ("goto.show", "L2 t30", "cursor", (2, 30)),
        ("goto.show", "t31", "cursor", (1, 31)),
        ("goto.show", " 17 ", "cursor", (1, 17)),
        ("mark.list", "L0 t41", "cursor", (0, 41)),
    ],
)
def test_a_choice_is_carried_out_and_answered(
    wire: Wire, action: str, value: str, trait: str, after: object
) -> None:
    found = widget()
    content, _ = wire.ask(found, id="v:3", op="choose", action=action, value=value)
    assert (content["id"], content["op"]) == ("v:3", "choose")
    assert "error" not in content
    assert content["cell"]["at"] == list(found.cursor)
    assert getattr(found, trait) == after


@pytest.mark.parametrize(
    ("action", "value", "words"),
    [
        ("goto.show", "L2 t9x", "is not an address"),
        ("class.choose", "flops", "unknown class"),
        ("filter.show", "nonsense", "filter"),
        ("tolerance.choose", "bf17", "unknown tolerance profile"),
        ("quit", "", "nothing to choose"),
        ("export.show", "docx", "unknown kind of file"),
        ("goto.show", "kldive://elsewhere?at=L1.t2", "leads to another comparison"),
    ],
)
def test_a_choice_that_cannot_be_is_answered_with_why(
    wire: Wire, action: str, value: str, words: str
) -> None:
    content, _ = wire.ask(widget(), id="v:3", op="choose", action=action, value=value)
    assert words in content["error"]


def test_a_filter_hides_cells_and_makes_a_new_grid(wire: Wire) -> None:
    found = widget()
    before = found._screen["grid"]
    wire.ask(found, id="v:1", op="choose", action="filter.show", value="L1-2")
    assert found._screen["grid"] != before
    assert found._screen["filter"] == "L1-2"
    assert set(found._overview[:60]) == {0}


def test_copies_are_the_cell_and_the_code(wire: Wire) -> None:
    found = widget()
    cell, _ = wire.ask(found, id="v:1", op="copy", action="copy.cell")
    assert cell["text"].startswith("kldive L1 t5")
    code, _ = wire.ask(found, id="v:2", op="copy", action="copy.link")
    assert code["text"].startswith(found.to_code())
    assert code["text"].endswith(f"# {found.model.link().command}")


def test_swaps_are_a_page_of_text_or_the_command_that_runs_them(wire: Wire) -> None:
    bare, _ = wire.ask(widget(), id="v:1", op="read", action="swaps.show")
    assert bare["text"].startswith("No swap was run yet: kldive attribute")
    source = make_source()
    text = "L1 routed_experts is the cause: KL 0.0002 before, 0 after"
    source.summary |= {"proof": {"state": "proved", "text": text}}
    found, _ = wire.ask(Divergence(source), id="v:2", op="read", action="swaps.show")
    assert found["text"] == f"proof  proved  {text}"


def test_a_copied_link_leads_back(wire: Wire) -> None:
    found = widget()
    link = str(found.model.link())
    found.cursor = (3, 50)
    content, _ = wire.ask(found, id="v:1", op="choose", action="goto.show", value=link)
    assert "error" not in content
    assert found.cursor == (1, 5)


def test_places_to_go_to_are_bookmarks_pin_and_firsts(wire: Wire) -> None:
    found = widget()
    found.act("mark.toggle")
    found.pin = (3, 20)
    content, _ = wire.ask(found, id="v:1", op="menu", action="mark.list")
    titles = [title for _, title, _, _ in content["entries"]]
    assert titles == ["bookmark", "pin", "first flip", "first bit difference"]
    assert content["entries"][1][:3] == ("L3 t20", "pin", "L3 t20")


def test_an_export_is_written_beside_the_notebook(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    found = widget(num_rows=30, flips=((1, 5),))
    found.selection = [(0, 2, 4, 9)]
    content, _ = wire.ask(found, id="v:1", op="menu", action="export.show")
    assert content["entries"][0][2:] == ("10", "selected")
    wire.ask(found, id="v:2", op="choose", action="export.show", value="parquet")
    (file,) = tmp_path.iterdir()
    assert len(pl.read_parquet(file)) == 10
    assert found._screen["headline"]["text"] == f"wrote {file}"
