"""The front end: its pure functions under node, and what its two files must not hold."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.view.synthetic import make_source
from workbench.view.palette import LOOKS
from workbench.widgets import content
from workbench.widgets.divergence import Divergence, front_end
from workbench.widgets.keys import MENUS, key_map
from workbench.widgets.menus import menu

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "workbench" / "widgets"
SCRIPT, STYLE = FOLDER / "divergence.js", FOLDER / "divergence.css"
FRONT_END_TESTS = Path(__file__).parent / "frontend"
NODE = shutil.which("node")
_TSC = ROOT / ".venv" / "node" / "node_modules" / ".bin" / "tsc"
TSC = shutil.which("tsc") or (str(_TSC) if _TSC.exists() else None)
needs_tsc = pytest.mark.skipif(
    NODE is None or TSC is None, reason="no tsc on PATH nor in .venv/node (see .ci/run)"
)


@pytest.mark.skipif(NODE is None, reason="no node on PATH")
@pytest.mark.parametrize("file", sorted(FRONT_END_TESTS.glob("*.test.mjs")), ids=lambda f: f.stem)
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


def tsc(project: Path) -> str:
    """What the type checker has against a project; nothing when all is well."""
    assert TSC is not None
    run = subprocess.run([TSC, "-p", str(project)], capture_output=True, text=True, check=False)
    assert run.returncode == 0 or run.stdout, run.stderr
    return run.stdout


@needs_tsc
def test_the_types_of_the_front_end_hold() -> None:
    assert tsc(FRONT_END_TESTS) == ""


def test_types_are_not_silenced() -> None:
    files = [SCRIPT, *FRONT_END_TESTS.glob("*.mjs")]
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    assert re.search(r"@ts-|\{[^{}]*\bany\b[^{}]*\}|@type \{\*\}", text) is None


@needs_tsc
@pytest.mark.parametrize("num_rows", [0, 60])
def test_what_python_tells_has_the_types_that_the_front_end_reads(
    num_rows: int, tmp_path: Path
) -> None:
    flips = ((1, 5),) if num_rows else ()
    model = Divergence(make_source(num_rows=num_rows, flips=flips)).model
    told: list[tuple[str, object]] = [
        ("About", {**content.about(model), "name": "w"}),
        ("Screen", content.screen(model)),
        ("Replies['headings']", content.headings(model, 0, num_rows)),
        *(("Replies['menu']", menu(model, action)) for action in MENUS),
    ]
    if num_rows:
        told.append(("Replies['cell']", content.inspected(model, model.state.cell)))
    lines = [
        f"const it{i}: talk.{kind} = {json.dumps(value)};" for i, (kind, value) in enumerate(told)
    ]
    script = json.dumps(str(SCRIPT))
    (tmp_path / "told.ts").write_text("\n".join([f"import type * as talk from {script};", *lines]))
    options = json.loads((FRONT_END_TESTS / "tsconfig.json").read_text("utf-8"))["compilerOptions"]
    project = {"compilerOptions": options, "files": ["told.ts"]}
    (tmp_path / "tsconfig.json").write_text(json.dumps(project))
    assert tsc(tmp_path) == ""


@pytest.mark.parametrize("file", [SCRIPT, STYLE], ids=lambda f: f.name)
def test_nothing_is_fetched(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    for word in ("http:", "https:", "//cdn", "@import", "url("):
        assert word not in text
    assert re.search(r"\bimport\s*[({\"'*]|\bfetch\(|XMLHttpRequest|\beval\(", text) is None


def test_a_browser_gets_the_module_without_its_documentation_and_nothing_else_is_missing() -> None:
    text, sent = SCRIPT.read_text(encoding="utf-8"), front_end()
    assert "@param" not in sent
    assert "@typedef" not in sent
    lines = [line for line in text.splitlines() if not re.match(r" *(/\*\*| \*)", line)]
    assert [line for line in sent.splitlines() if not re.match(r" */\*\*", line)] == lines


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
