"""What an import may bring along, seen in `sys.modules` of a fresh interpreter.

The import contracts judge the source; this sees what really loads, deferred imports included.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.captures import ROLLOUT, TRAINER, make_pair
from workbench.comparison.run import compare

ROOT = Path(__file__).resolve().parents[2]
ENGINES = {"torch", "transformers", "vllm"}
# The wings that run models. Everything else opens on a machine without torch.
HEAVY = {"attribution", "capture", "diagnose", "faults"}

IMPORT_ALL = """
import importlib, pkgutil, sys
root = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(getattr(root, "__path__", []), root.__name__ + "."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print(*sys.modules)
"""
SHOW_HELP = """
import sys
from workbench.cli import main
sys.argv = ["kldive", *sys.argv[1:]]
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
print(*sys.modules)
"""

RUN_COMMAND = """
import sys
from workbench.cli import main
code = main(sys.argv[1:])
assert code in (0, 1), code
print()
print(*sys.modules)
"""
OPEN_WORKBENCH = """
import asyncio, sys
from tui.app import KldiveApp
from workbench.comparison.result import open_comparison

async def look():
    app = KldiveApp(open_comparison(sys.argv[1]))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("f", "n", "l")
        assert app.model.cell_facts().router.experts[0].logit_a is not None

asyncio.run(look())
print(*sys.modules)
"""


@pytest.fixture(scope="session")
def bfloat16_comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison of two bfloat16 captures."""
    directory = tmp_path_factory.mktemp("bfloat16")
    sides = [replace(side, dtype="bfloat16") for side in (ROLLOUT, TRAINER)]
    a, b = make_pair(directory, a=replace(sides[0], rounding="often"), b=sides[1])
    return compare(a, b, out=directory / "comparison").directory


def children_of_workbench() -> list[str]:
    """Names of the modules and packages directly in `workbench`."""
    entries = (ROOT / "workbench").iterdir()
    names = {
        entry.stem if entry.suffix == ".py" else entry.name
        for entry in entries
        if entry.suffix == ".py" or (entry / "__init__.py").exists()
    }
    return sorted(names - {"__init__", "__main__"})


def light_packages() -> list[str]:
    """Everything that has to load without torch."""
    light = [f"workbench.{name}" for name in children_of_workbench() if name not in HEAVY]
    return light + (["tui"] if (ROOT / "tui" / "__init__.py").exists() else [])


def modules_after(code: str, *arguments: str) -> set[str]:
    """Top-level modules loaded once `code` has run in a fresh interpreter."""
    run = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert run.returncode == 0, run.stderr
    return {name.partition(".")[0] for name in run.stdout.splitlines()[-1].split()}


@pytest.mark.parametrize("package", light_packages())
def test_no_module_of_a_light_package_loads_an_engine(package: str) -> None:
    assert modules_after(IMPORT_ALL, package) & ENGINES == set()


def test_the_root_import_loads_nothing_heavy() -> None:
    loaded = modules_after("import sys, workbench\nprint(*sys.modules)")
    assert loaded & (ENGINES | {"numpy", "polars", "rich", "safetensors", "textual"}) == set()


@pytest.mark.skipif("cli" not in children_of_workbench(), reason="no command line yet")
def test_help_loads_no_array_library_and_no_terminal_toolkit() -> None:
    loaded = modules_after(SHOW_HELP, "--help")
    assert loaded & (ENGINES | {"numpy", "polars", "textual"}) == set()


@pytest.mark.parametrize("command", [["show"], ["show", "--json"]])
def test_a_report_with_bfloat16_cells_loads_no_package_for_them(
    command: list[str], bfloat16_comparison: Path
) -> None:
    loaded = modules_after(RUN_COMMAND, *command, str(bfloat16_comparison))
    assert loaded & (ENGINES | {"ml_dtypes", "textual"}) == set()


def test_the_workbench_shows_bfloat16_cells_without_a_package_for_them(
    bfloat16_comparison: Path,
) -> None:
    loaded = modules_after(OPEN_WORKBENCH, str(bfloat16_comparison))
    assert "textual" in loaded
    assert loaded & (ENGINES | {"ml_dtypes"}) == set()
