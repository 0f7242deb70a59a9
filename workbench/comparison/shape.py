"""The shape of `comparison.json`, as far as everything that shows a comparison relies on it.

Keys that are not listed may be there, and are nobody's business here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NoReturn, get_args

from workbench.comparison.columns import known_columns
from workbench.comparison.layertable import columns_from_json, unreadable_comparison
from workbench.names import DIVERGENCE_CLASSES, LOGPROBS, SITE_BY_NAME, Status, WeightsStatus

_TEXT: Final = "text"
_TRUTH: Final = "true or false"
_COUNT: Final = "a whole number"
_NUMBER: Final = "a number"
_NUMBER_OR_NULL: Final = "a number or null"
_COUNT_OR_NULL: Final = "a whole number or null"
_TABLE: Final = "an object"
_LIST: Final = "a list"
_VALUE: Final = "a number, a list of experts or null"
"""What a side has at a first divergence."""

_SIDE: Final = {
    **dict.fromkeys(("directory", "directory_relative", "engine", "version", "dtype"), _TEXT),
    "manifest_crc": _COUNT,
    "complete": _TRUTH,
    "missing": _TABLE,
    "model": {
        **dict.fromkeys(("id", "architecture"), _TEXT),
        **dict.fromkeys(("num_layers", "num_experts", "top_k", "vocab_size"), _COUNT),
        "layer_kinds": _LIST,
    },
}
_SHAPE: Final[dict[str, Any]] = {
    **dict.fromkeys(("status", "reason", "verdict", "weights"), _TEXT),
    "weights_detail": {"text": _TEXT},
    "rows": {"expected": _COUNT, "compared": _COUNT},
    "kl": dict.fromkeys(("exact_mean", "k1", "k2", "k3"), _NUMBER_OR_NULL),
    "max_abs_dlogp": _NUMBER_OR_NULL,
    "probability": {"n": _COUNT, "over": _TEXT, "abs_dlogp": {"mean": _NUMBER_OR_NULL}},
    "routing": dict.fromkeys(("compared", "flips", "explained", "unexplained", "unjudged"), _COUNT),
    "tolerance": {"profile": _TEXT, "reason": _TEXT, "kl_gate": _NUMBER},
    "precision": {
        **dict.fromkeys(("num_layers", "hidden_size", "top_k"), _COUNT),
        **dict.fromkeys(("dtype", "router_dtype"), _TEXT),
        "log_vocab": _NUMBER,
    },
    "flip_reasons": _TABLE,
    "coverage": _TABLE,
    "layers": {"num_layers": _COUNT, "num_rows": _COUNT, "columns": _LIST},
    "a": _SIDE,
    "b": _SIDE,
    "first": _TABLE,
}
_COVERED: Final = {
    **dict.fromkeys(("compared", "expected", "only_a", "only_b"), _COUNT),
    "reason": _TEXT,
}
_FIRST: Final = {
    **dict.fromkeys(("row", "position"), _COUNT),
    **dict.fromkeys(("site", "request", "token"), _TEXT),
    "layer": _COUNT_OR_NULL,
    **dict.fromkeys(("a", "b"), _VALUE),
    "size": _NUMBER_OR_NULL,
}
_JUMP: Final = {
    "layer": _COUNT_OR_NULL,
    "site": _TEXT,
    **dict.fromkeys(("size", "input_error", "scale"), _NUMBER_OR_NULL),
    "constant": _TRUTH,
}


def check_shape(summary: Mapping[str, Any], where: Path) -> None:
    """Checks that everything that is shown is there and of its kind.

    Raises:
        CaptureError: The first part that is missing or of another kind, by its path.
    """
    _check(summary, _SHAPE, "", where)
    for name, allowed in (("status", get_args(Status)), ("weights", get_args(WeightsStatus))):
        if summary[name] not in allowed:
            _wrong(where, f"{name}: {', '.join(allowed)}", summary[name])
    _check_kinds(summary["layers"]["columns"], where)
    for site, entry in summary["coverage"].items():
        if site in SITE_BY_NAME:
            _check(entry, _COVERED, f"coverage.{site}", where)
    for klass in DIVERGENCE_CLASSES:
        if klass not in summary["first"]:
            raise unreadable_comparison(where, f"a field first.{klass}", "none")
        _check_place(summary, summary["first"][klass], _FIRST, f"first.{klass}", where)
    if "jump" not in summary:
        raise unreadable_comparison(where, "a field jump", "none")
    _check_place(summary, summary["jump"], _JUMP, "jump", where)


def _check_kinds(columns: list[Any], where: Path) -> None:
    known = known_columns()
    for name, kind in columns_from_json(columns, where):
        if known.get(name, kind) != kind:
            _wrong(where, f"{name} as {known[name]} in layers.columns", kind)


def _check_place(
    summary: Mapping[str, Any], entry: Any, shape: Mapping[str, Any], path: str, where: Path
) -> None:
    if entry is None:
        return
    _check(entry, shape, path, where)
    layers = summary["layers"]
    if entry["site"] not in SITE_BY_NAME and entry["site"] != LOGPROBS:
        _wrong(where, f"a known site as {path}.site", entry["site"])
    for name, stop in (("layer", layers["num_layers"]), ("row", layers["num_rows"])):
        if entry.get(name) is not None and name in shape and entry[name] >= stop:
            _wrong(where, f"{path}.{name} below {stop}", entry[name])


def _check(value: Any, shape: Any, path: str, where: Path) -> None:
    if isinstance(shape, str):
        if not _is(value, shape):
            _wrong(where, f"{shape} as {path}", value)
        return
    if not isinstance(value, Mapping):
        _wrong(where, f"an object as {path}" if path else "an object", value)
    for name, inner in shape.items():
        full = f"{path}.{name}" if path else name
        if name not in value:
            raise unreadable_comparison(where, f"a field {full}", "none")
        _check(value[name], inner, full, where)


def _is(value: Any, kind: str) -> bool:
    if kind == _VALUE:
        experts = isinstance(value, list) and all(_is(expert, _COUNT) for expert in value)
        return experts or _is(value, _NUMBER_OR_NULL)
    if kind.endswith(" or null"):
        return value is None or _is(value, kind.removesuffix(" or null"))
    if kind == _COUNT:
        return type(value) is int and 0 <= value < 2**63
    if kind == _NUMBER:
        whole = type(value) is int and abs(value) < 2**63
        return whole or (type(value) is float and math.isfinite(value))
    types: dict[str, type] = {_TEXT: str, _TRUTH: bool, _TABLE: dict, _LIST: list}
    return isinstance(value, types[kind])


def _wrong(where: Path, expected: str, value: Any) -> NoReturn:
    raise unreadable_comparison(where, expected, repr(value)[:80])
