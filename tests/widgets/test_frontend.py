"""The front end: its pure functions under node, and what its two files must not hold."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from workbench.view.palette import LOOKS
from workbench.widgets.keys import key_map

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "workbench" / "widgets"
SCRIPT, STYLE = FOLDER / "divergence.js", FOLDER / "divergence.css"
NODE = shutil.which("node")


@pytest.mark.skipif(NODE is None, reason="no node on PATH")
@pytest.mark.parametrize(
    "file", sorted((Path(__file__).parent / "frontend").glob("*.test.mjs")), ids=lambda f: f.stem
)
def test_pure_functions_under_node(file: Path) -> None:
    assert NODE is not None
    run = subprocess.run(
        [NODE, "--test", str(file)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "KLDIVE_ACTIONS": json.dumps(key_map())},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    passed = re.search(r"^# pass (\d+)$", run.stdout, re.MULTILINE)
    assert passed is not None
    assert int(passed[1]) > 0


@pytest.mark.parametrize("file", [SCRIPT, STYLE], ids=lambda f: f.name)
def test_nothing_is_fetched(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    for word in ("http:", "https:", "//cdn", "@import", "url("):
        assert word not in text
    assert re.search(r"\bimport\s*[({\"'*]|\bfetch\(|XMLHttpRequest|\beval\(", text) is None


def test_texts_never_become_markup() -> None:
    text = SCRIPT.read_text(encoding="utf-8")
    assert re.search(r"innerHTML|insertAdjacentHTML|document\.write", text) is None


def test_both_files_are_small() -> None:
    assert SCRIPT.stat().st_size + STYLE.stat().st_size <= 100_000


def test_every_class_has_the_prefix() -> None:
    names = re.findall(r"(?<![\d.\w])\.([a-zA-Z][\w-]*)", STYLE.read_text(encoding="utf-8"))
    assert len(names) > 50
    assert {name for name in names if not name.startswith("kld")} == set()


def test_level_colours_have_one_source() -> None:
    text = "".join(file.read_text(encoding="utf-8").lower() for file in (SCRIPT, STYLE))
    assert not [look.fill for look in LOOKS if look.fill in text]
