"""What is about to be opened, as far as its small JSON file tells, read without numpy or polars.

Checks nothing: the real reader does, a moment later. What is not as expected is left out here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from workbench.view.rows import escape

COMPARISON_NAME: Final = "comparison.json"
CAPTURE_NAME: Final = "manifest.json"
_MAX_BYTES: Final = 8 * 1024 * 1024
"""A larger file takes too long for the first frame."""
_SIDES: Final = {"rollout": "A", "trainer": "B"}


class SideName(NamedTuple):
    """A side: its letter, its path, its engine and element type."""

    letter: str
    path: str
    engine: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What the first frame says.

    Attributes:
        title: What is going on, for example `opening run/comparison`.
        sides: The sides it has.
        facts: Label and text.
    """

    title: str
    sides: tuple[SideName, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()


def of_comparison(directory: str | os.PathLike[str]) -> Subject:
    """Facts of a comparison's directory."""
    body = _read(Path(directory) / COMPARISON_NAME)
    sides = [_object(body, name) for name in ("a", "b")]
    rows = _object(body, "rows")
    facts = [
        ("model", _model(_object(sides[0], "model"))),
        ("rows", _rows(rows.get("compared"), rows.get("expected"))),
        ("result", _joined(" · ", body.get("status"), body.get("verdict"))),
        ("", _text(body.get("reason"))),
        ("tolerance", _text(_object(body, "tolerance").get("profile"))),
    ]
    return Subject(
        title=f"opening {escape(os.fspath(directory))}",
        sides=tuple(_side(side, letter) for side, letter in zip(sides, "AB", strict=True) if side),
        facts=tuple(fact for fact in facts if fact[1]),
    )


def is_capture(directory: str | os.PathLike[str]) -> bool:
    """Whether a directory looks like a capture and not like a comparison."""
    path = Path(directory)
    return (path / CAPTURE_NAME).is_file() and not (path / COMPARISON_NAME).exists()


def of_captures(title: str, *directories: str | os.PathLike[str]) -> Subject:
    """Facts of one or two captures."""
    bodies = [_read(Path(directory) / CAPTURE_NAME) for directory in directories]
    letters = "AB" if len(bodies) > 1 else _SIDES.get(str(bodies[0].get("path")), "A")
    facts = [("model", next((m for b in bodies if (m := _model(_object(b, "model")))), ""))]
    for letter, body, directory in zip(letters, bodies, directories, strict=True):
        facts.append((letter, escape(os.fspath(directory))))
        if body:
            found = body.get("chunks")
            count = len(found) if isinstance(found, list) else 0
            state = "complete" if body.get("complete") is True else "not complete"
            chunks = f"{count:,} chunk{'s' if count != 1 else ''}"
            facts.append(("", f"{_rows(body.get('rows'))} rows · {chunks} · {state}"))
    return Subject(
        title=title,
        sides=tuple(_side(b, letter) for b, letter in zip(bodies, letters, strict=True) if b),
        facts=tuple(fact for fact in facts if fact[1]),
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MAX_BYTES:
            return {}
        body = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def _object(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = body.get(name)
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return escape(value[:400]) if isinstance(value, str) else ""


def _joined(joiner: str, *values: object) -> str:
    return joiner.join(filter(None, map(_text, values)))


def _side(body: Mapping[str, Any], letter: str) -> SideName:
    # A path that is not named stands where it was given.
    path = _text(body.get("path")) or {"A": "rollout", "B": "trainer"}[letter]
    return SideName(letter, path, _joined(" ", body.get("engine"), body.get("dtype")))


def _model(model: Mapping[str, Any]) -> str:
    name = _text(model.get("id")).rstrip("/").rpartition("/")[2]
    sizes = [
        words.format(value)
        for key, words in (
            ("num_layers", "{:,} layers"),
            ("num_experts", "{:,} experts"),
            ("top_k", "top-{}"),
        )
        if type(value := model.get(key)) is int and value > 0
    ]
    return ", ".join(filter(None, [name, *sizes]))


def _rows(count: object, expected: object = None) -> str:
    if type(count) is not int:
        return ""
    return f"{count:,} of {expected:,}" if type(expected) is int else f"{count:,}"
