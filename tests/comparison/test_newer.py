"""Comparisons of a newer format: read as far as they are known, said so, and never written into."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.captures import TRAINER, make_pair
from workbench.attribution.experiments import add_results
from workbench.attribution.run import attribute
from workbench.comparison.newer import newer_chips, newer_notes, with_notes
from workbench.comparison.result import Comparison, open_comparison
from workbench.comparison.run import compare
from workbench.errors import CaptureError
from workbench.report.text import show
from workbench.store import open_capture
from workbench.view.facts import comparison_facts
from workbench.view.salvage import salvaged

LINE = "version 2, newer than this kldive reads (1): what it does not know was left out"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    run = tmp_path_factory.mktemp("run")
    pair = make_pair(run, b=replace(TRAINER, scale_experts=(1, 1.02)))
    return compare(pair.a, pair.b, out=run / "comparison")


def body(written: Comparison) -> dict[str, Any]:
    """What a newer kldive may write of the same comparison."""
    found = copy.deepcopy({**written.summary, "version": 2, "topology": {"tp": 8}})
    found["coverage"]["gate_in"] = {"share": 0.5}
    found["precision"]["accumulator"] = "float32"
    found["first"]["nan"] = {"where": [1, 2]}
    found["layers"]["codec"] = "plain"
    return found


def opened(written: Comparison, summary: dict[str, Any]) -> Comparison:
    (written.directory / "comparison.json").write_text(json.dumps(summary), "utf-8")
    try:
        return open_comparison(written.directory)
    finally:
        (written.directory / "comparison.json").write_text(json.dumps(written.summary), "utf-8")


def test_what_is_known_of_a_newer_comparison_is_read_and_said_to_be_newer(
    written: Comparison,
) -> None:
    found = opened(written, body(written))
    assert found.newer_version == 2
    assert written.newer_version is None
    assert newer_notes(found.summary) == [("format", f"{LINE}, 1 site of it: gate_in")]
    assert newer_chips(found.summary) == ("format 2, newer than 1",)
    assert (found.column("output.rel_l2") == written.column("output.rel_l2")).all()
    assert found.metrics(1, 0) == written.metrics(1, 0)
    assert comparison_facts(found).jump == comparison_facts(written).jump
    assert salvaged(found) is found


def test_a_comparison_of_this_format_says_nothing(written: Comparison) -> None:
    assert newer_notes(written.summary) == []
    assert with_notes(written.summary) == written.summary
    assert comparison_facts(written).newer == ()


def test_what_running_the_model_found_is_left_out_and_that_is_said(written: Comparison) -> None:
    summary = {**body(written), "attribution": {"modules": "by rank"}, "left_out": ["mine"]}
    found = opened(written, summary)
    assert "attribution" not in found.summary
    ((_, text),) = newer_notes(found.summary)
    assert text.endswith("; what running the model found is not shown")
    assert "mine" not in show(found)


def without(*path: str) -> Callable[[dict[str, Any]], None]:
    def change(summary: dict[str, Any]) -> None:
        for name in path[:-1]:
            summary = summary[name]
        del summary[path[-1]]

    return change


def having(value: Any, *path: str) -> Callable[[dict[str, Any]], None]:
    def change(summary: dict[str, Any]) -> None:
        for name in path[:-1]:
            summary = summary[name]
        summary[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (without("kl"), "a field kl"),
        (without("jump"), "a field jump"),
        (without("first", "bit"), "a field first.bit"),
        (without("first"), "an object as first"),
        (without("a", "model", "layer_kinds"), "a field a.model.layer_kinds"),
        (having("many", "rows", "expected"), "a whole number as rows.expected"),
        (having(True, "rows", "compared"), "a whole number as rows.compared"),
        (having("soft", "status"), "status: equal, diverged, not_comparable"),
        (having([], "kl"), "an object as kl"),
        (having("bf16x3", "tolerance", "profile"), "a known tolerance profile"),
        (having([["output.rel_l2", "f8"]], "layers", "columns"), "layers.columns"),
        (having([["output.rel_l2", "u4"]], "layers", "columns"), "output.rel_l2 as f4"),
        (having(999, "first", "bit", "row"), "first.bit.row below 36"),
        (having("gate_in", "first", "bit", "site"), "a known site as first.bit.site"),
        (having(1, "layers"), "an object as layers"),
    ],
)
def test_a_known_thing_that_is_missing_or_of_another_shape_is_one_clear_error(
    written: Comparison, change: Callable[[dict[str, Any]], None], expected: str
) -> None:
    summary = body(written)
    change(summary)
    with pytest.raises(CaptureError, match="newer format version 2; this kldive reads up to") as e:
        opened(written, summary)
    assert expected in str(e.value.expected)
    assert e.value.where == str(written.directory / "comparison.json")
    assert e.value.do == "update kldive"
    assert len(str(e.value)) < 1000


@pytest.mark.parametrize("version", [0, -3, 2.0, True, None, "2", 10**400, 2**40])
def test_what_is_no_version_is_no_newer_version(written: Comparison, version: Any) -> None:
    with pytest.raises(CaptureError, match="a whole number as version"):
        opened(written, {**body(written), "version": version})


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


def _paths(value: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(value, dict):
        return [path]
    return [path, *(p for name in value for p in _paths(value[name], (*path, name)))]


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_no_newer_comparison_ever_gives_another_error(
    written: Comparison, data: st.DataObject
) -> None:
    summary = body(written)
    path = data.draw(st.sampled_from(_paths(summary)[1:]))
    change = without(*path) if data.draw(st.booleans()) else having(data.draw(values), *path)
    change(summary)
    try:
        found = salvaged(opened(written, summary))
    except CaptureError as error:
        assert error.do  # noqa: PT017
        return
    show(found)
    json.dumps(with_notes(found.summary))


def test_nothing_is_written_into_a_newer_comparison(tmp_path: Path) -> None:
    pair = make_pair(tmp_path)
    directory = compare(pair.a, pair.b, out=tmp_path / "c").directory
    path = directory / "comparison.json"
    path.write_text(path.read_text("utf-8").replace('"version": 1,', '"version": 2,', 1), "utf-8")
    before = path.read_bytes()
    found = open_comparison(directory)
    writes: list[Callable[[], object]] = [
        lambda: add_results(found, {"swaps": 1}),
        lambda: attribute(directory, "no/such/model"),
        lambda: compare(pair.a, pair.b, out=directory),
    ]
    for write in writes:
        with pytest.raises(CaptureError, match="would be lost") as caught:
            write()
        assert caught.value.got == "version 2"
    assert path.read_bytes() == before


def newer_capture(directory: Path) -> None:
    path = directory / "manifest.json"
    manifest = json.loads(path.read_text("utf-8"))
    manifest["sites"]["layers.0.gate_in"] = {"codec": 3}
    path.write_text(json.dumps({**manifest, "version": 3, "topology": 8}), "utf-8")


def test_captures_of_a_newer_format_compare_and_the_comparison_keeps_it(tmp_path: Path) -> None:
    pair = make_pair(tmp_path)
    newer_capture(pair.b)
    said: list[str] = []
    found = compare(pair.a, pair.b, out=tmp_path / "c", progress=said.append)
    line = "version 3, newer than this kldive reads (1): what it does not know was left out"
    assert newer_notes(open_comparison(found.directory).summary) == [
        ("B format", f"{line}, 1 site of it: layers.0.gate_in")
    ]
    assert said[0].startswith(f"B format  {line}")
    assert found.summary["status"] == "equal"
    assert found.newer_version is None
    assert comparison_facts(found).newer == ("B: format 3, newer than 1",)
    assert "newer" not in found.summary["a"]


def test_a_chunk_of_a_newer_capture_that_cannot_be_read_is_not_called_damaged(
    tmp_path: Path,
) -> None:
    pair = make_pair(tmp_path)
    newer_capture(pair.a)
    (pair.a / "chunk-000000.safetensors").write_bytes(b"another codec")
    (error,) = open_capture(pair.a).damaged
    assert "newer format version 3" in error.what
    assert error.do == "update kldive"


def test_arrays_of_sites_that_are_not_known_are_passed_over(tmp_path: Path) -> None:
    pair = make_pair(tmp_path)
    for path in pair.a.iterdir():
        # The same length, so that sizes and offsets stay.
        path.write_bytes(path.read_bytes().replace(b"layers.1.mlp_out", b"layers.1.mlp_new"))
    path = pair.a / "manifest.json"
    path.write_text(path.read_text("utf-8").replace('"version": 1', '"version": 2', 1), "utf-8")
    found = open_capture(pair.a)
    assert found.damaged == []
    assert found.manifest.unknown_sites == ("layers.1.mlp_new",)
    assert "layers.1.mlp_out" not in found.sites
