"""Manifests: what is read back, and every way in which one can be wrong."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.captures import make_capture
from workbench.errors import CaptureError, ExitCode
from workbench.store import Manifest, ParameterSum, SiteInfo, open_capture, read_manifest
from workbench.store.manifest import parse_manifest, with_changes

HUGE = 10**400


def body(**changes: Any) -> dict[str, Any]:
    return {"format": "kldive-capture", "version": 1, "path": "rollout", **changes}


def parse(value: Any) -> Manifest:
    return parse_manifest(json.dumps(value), Path("manifest.json"))


def test_a_manifest_reads_back_as_it_was_written() -> None:
    manifest = Manifest(
        path="trainer",
        engine="transformers",
        versions={"torch": "2"},
        knobs={"eager": True, "list": [1]},
        contracts={"scoring": "softmax"},
        sites={"layers.0.output": SiteInfo(dtype="bfloat16", shape=(8,), derived=True)},
        missing={"embed": "fused"},
        weights={"embed": ParameterSum(sum=2**64 - 1, numel=3, dtype="float32")},
        router_pair_norm={0: 1.5},
        counts={"dropped": 2},
        complete=True,
    )
    assert parse_manifest(manifest.to_json(), Path("x")) == manifest


def test_sums_travel_as_text_because_json_numbers_lose_bits() -> None:
    weights = {"w": ParameterSum(sum=2**63 + 1, numel=1, dtype="float32")}
    written = json.loads(Manifest(path="rollout", weights=weights).to_json())
    assert written["weights"]["w"]["sum"] == "8000000000000001"


def test_changes_make_a_copy() -> None:
    manifest = Manifest(path="rollout")
    assert with_changes(manifest, {"engine": "x"}).engine == "x"
    assert manifest.engine == ""


CHUNK = {"arrays": "chunk-000000.safetensors", "tokens": "tokens-000000.parquet"}
BAD = {
    "not an object": [1],
    "a number": 7,
    "another format": {"format": "zip"},
    "no version": {"format": "kldive-capture"},
    "version as text": body(version="1"),
    "version as truth": body(version=True),
    "version zero": body(version=0),
    "another path": body(path="server"),
    "path of another type": body(path=3),
    "engine of another type": body(engine=[1]),
    "complete as text": body(complete="yes"),
    "model as list": body(model=[]),
    "negative layers": body(model={"num_layers": -1}),
    "huge layers": body(model={"num_layers": HUGE}),
    "layers as truth": body(model={"num_layers": True}),
    "layer kinds as text": body(model={"layer_kinds": "moe"}),
    "sites as list": body(sites=[]),
    "a site that is not one": body(sites={"../../etc": {"dtype": "float32", "shape": []}}),
    "a site as number": body(sites={"embed": 3}),
    "an unknown type": body(sites={"embed": {"dtype": "complex64", "shape": [1]}}),
    "a negative dimension": body(sites={"embed": {"dtype": "float32", "shape": [-1]}}),
    "a dimension as text": body(sites={"embed": {"dtype": "float32", "shape": ["8"]}}),
    "weights as list": body(weights=[1]),
    "a sum that is not hexadecimal": body(weights={"w": {"sum": "xyz"}}),
    "a sum too long": body(weights={"w": {"sum": "f" * 17}}),
    "a huge dimension": body(sites={"embed": {"dtype": "float32", "shape": [HUGE]}}),
    "too many dimensions": body(sites={"embed": {"dtype": "float32", "shape": [1] * 9}}),
    "a huge norm": body(router_pair_norm={"0": HUGE}),
    "a norm of a huge layer": body(router_pair_norm={"9" * 5000: 1.0}),
    "a huge hidden size": body(model={"hidden_size": HUGE}),
    "huge rows": body(chunks=[{**CHUNK, "rows": HUGE}]),
    "a norm as text": body(router_pair_norm={"0": "x"}),
    "a norm of no layer": body(router_pair_norm={"first": 1.0}),
    "counts as list": body(counts=[1]),
    "a count as text": body(counts={"x": "1"}),
    "versions of another type": body(versions={"torch": 2}),
    "chunks as object": body(chunks={}),
    "a chunk as text": body(chunks=["chunk-000000.safetensors"]),
    "a chunk outside": body(chunks=[{**CHUNK, "arrays": "../chunk-000000.safetensors"}]),
    "a chunk at the root": body(chunks=[{**CHUNK, "arrays": "/etc/passwd"}]),
    "a chunk with a newline": body(chunks=[{**CHUNK, "arrays": "chunk-000000.safetensors\n"}]),
    "tokens outside": body(chunks=[{**CHUNK, "tokens": "..\\tokens-000000.parquet"}]),
    "negative rows": body(chunks=[{**CHUNK, "rows": -1}]),
    "rows as float": body(chunks=[{**CHUNK, "rows": 1.5}]),
}


@pytest.mark.parametrize("value", BAD.values(), ids=BAD.keys())
def test_a_wrong_manifest_is_one_clear_error(value: Any) -> None:
    with pytest.raises(CaptureError) as caught:
        parse(value)
    error = caught.value
    assert error.exit_code == ExitCode.UNREADABLE
    assert error.where == "manifest.json"
    assert error.expected
    assert error.got
    assert error.do
    assert len(str(error)) < 1000


def newer(**changes: Any) -> dict[str, Any]:
    """What a newer kldive may write: all that is known, and more."""
    model = {"id": "toy", "num_layers": 2, "experts_by_layer": [8, 8]}
    known = json.loads(
        Manifest(
            path="rollout",
            sites={"embed": SiteInfo(dtype="float32", shape=(8,))},
            weights={"w": ParameterSum(sum=1, numel=2, dtype="float32")},
        ).to_json()
    )
    known["model"].update(model)
    known["sites"]["layers.0.gate_in"] = {"codec": 3}
    return {**known, "version": 2, "topology": {"tp": 8}, **changes}


def test_of_a_newer_version_what_is_known_is_read_and_the_rest_is_left_out() -> None:
    found = parse(newer())
    assert found.newer_version == 2
    assert found.model.num_layers == 2
    assert list(found.sites) == ["embed"]
    assert found.unknown_sites == ("layers.0.gate_in",)
    assert parse(body()).newer_version is None


@pytest.mark.parametrize("version", [0, -1, 1.5, 2.0, True, None, "2", [2], HUGE, 2**40])
def test_what_is_no_version_is_no_newer_version(version: Any) -> None:
    with pytest.raises(CaptureError, match="a whole number as version"):
        parse(newer(version=version))


@pytest.mark.parametrize("name", sorted({*newer()} - {*("format", "version", "rows", "topology")}))
def test_a_known_field_that_a_newer_version_lacks_is_one_clear_error(name: str) -> None:
    found = newer()
    del found[name]
    with pytest.raises(CaptureError, match="newer format version 2; this kldive reads up to") as e:
        parse(found)
    assert name in str(e.value) or name == "path"
    assert e.value.do == "update kldive"


@pytest.mark.parametrize("value", [v for v in BAD.values() if isinstance(v, dict) and len(v) > 3])
def test_what_is_wrong_is_wrong_in_a_newer_version_too(value: dict[str, Any]) -> None:
    changes = {k: v for k, v in value.items() if k not in ("format", "version")}
    unknown_alone: Any = BAD["a site that is not one"]
    if changes.get("sites") == unknown_alone["sites"]:
        changes["sites"] = {"embed": None}
    with pytest.raises(CaptureError, match="newer format version 2") as caught:
        parse(newer(**changes))
    assert caught.value.do == "update kldive"


def test_a_newer_manifest_is_never_written_back() -> None:
    with pytest.raises(CaptureError, match="would be lost"):
        parse(newer()).to_json()


@pytest.mark.parametrize(
    "text", ["", "{", "nul", '{"a": 1', "[" * 200_000, '{"x":' * 100_000, "\x00"]
)
def test_text_that_is_no_json_is_one_clear_error(text: str) -> None:
    with pytest.raises(CaptureError, match="cannot read the manifest"):
        parse_manifest(text, Path("manifest.json"))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = [*json.loads(Manifest(path="rollout").to_json()), "model.num_layers"]


@given(st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=4))
def test_no_manifest_ever_gives_another_error(changes: dict[str, Any]) -> None:
    with contextlib.suppress(CaptureError):
        parse(body(**changes))
    with contextlib.suppress(CaptureError):
        parse(newer(**changes))


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda _: None, "no such directory"),
        (lambda d: d.mkdir(), "no manifest.json in it"),
        (lambda d: (d.mkdir(), (d / "manifest.json").write_bytes(b"\xff\xfe")), "utf-8"),
        (lambda d: (d.mkdir(), (d / "manifest.json").mkdir()), "directory"),
    ],
)
def test_a_directory_that_is_no_capture(
    tmp_path: Path, prepare: Callable[[Path], object], message: str
) -> None:
    directory = tmp_path / "capture"
    prepare(directory)
    with pytest.raises(CaptureError, match=message):
        read_manifest(directory)


def test_deep_knobs_are_read_and_never_run(tmp_path: Path) -> None:
    directory = make_capture(tmp_path / "a")
    path = directory / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["knobs"] = {"__class__": "os.system", "deep": [[[[{}]]]]}
    path.write_text(json.dumps(manifest))
    assert open_capture(directory).manifest.knobs["__class__"] == "os.system"
