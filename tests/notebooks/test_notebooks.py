from __future__ import annotations

import re
import resource
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "notebooks"
LESSONS = sorted(FOLDER.glob("*.ipynb"))
STARTS_AN_ENGINE = {"01_first_divergence"}
MAX_CELLS = 25
SECONDS_PER_CELL = 400
CPU_SECONDS = 120
"""About a minute on two cores; wall time would judge the machine's other work too."""

each = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)


def runs() -> list[Any]:
    """Every lesson, those that start an engine marked."""
    marks = {name: [pytest.mark.engine] for name in STARTS_AN_ENGINE}
    return [pytest.param(p, id=p.stem, marks=marks.get(p.stem, [])) for p in LESSONS]


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]


def sources(path: Path) -> str:
    return "\n".join(str(cell.source) for cell in read(path).cells)


def test_there_are_six_lessons_and_the_readme_lists_them() -> None:
    assert [path.stem[:2] for path in LESSONS] == ["01", "02", "03", "04", "05", "06"]
    listed = re.findall(r"\]\(([^)]+\.ipynb)\)", (FOLDER / "README.md").read_text("utf-8"))
    assert listed == [path.name for path in LESSONS]


@each
def test_a_lesson_is_stored_without_outputs(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.outputs for cell in code] == [[]] * len(code)
    assert {cell.execution_count for cell in code} == {None}
    assert set(notebook.metadata) == {"kernelspec", "language_info"}


@each
def test_a_lesson_is_short_and_begins_with_its_name(path: Path) -> None:
    cells = read(path).cells
    assert len(cells) <= MAX_CELLS
    assert cells[0].cell_type == "markdown"
    assert cells[0].source.startswith("# ")


@each
def test_a_lesson_names_no_place_of_one_machine_and_no_address(path: Path) -> None:
    text = sources(path)
    assert not re.search(r"https?:|www\.", text)
    assert not re.search(r"""["'(\s](/|~/|[A-Z]:\\)\w""", text)


@each
def test_links_between_lessons_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", sources(path)):
        assert (FOLDER / target).is_file(), target


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", runs())
def test_a_lesson_runs_from_a_fresh_kernel(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook = read(path)
    started, before = time.monotonic(), cpu_of_children()
    run(notebook, tmp_path)
    wall, cpu = time.monotonic() - started, cpu_of_children() - before
    with capsys.disabled():
        sys.stdout.write(f"\n{path.stem}: {wall:.0f} s wall, {cpu:.0f} s of CPU\n")
    assert cpu <= CPU_SECONDS
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            assert output.output_type != "error"
            assert output.get("name") != "stderr", output.text
            assert_offline(output)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_without_an_engine_the_first_lesson_takes_the_recorded_rollout_and_says_so(
    tmp_path: Path,
) -> None:
    notebook = read(FOLDER / "01_first_divergence.ipynb")
    # As though it were not there: the import system answers for the name, and says no.
    imports = next(cell for cell in notebook.cells if cell.cell_type == "code")
    imports.source += "\nsys.modules['vllm'] = None"
    run(notebook, tmp_path)
    said = "".join(o.get("text", "") for c in notebook.cells for o in c.get("outputs", ()))
    assert "vLLM is not installed here: this is the rollout that comes with kldive" in said
    assert "proved - L1 routed_experts is the cause" in said


def run(notebook: Any, folder: Path) -> None:
    """Runs it in a folder of its own: what it wrote beside itself would stay there."""
    client = NotebookClient(
        notebook,
        timeout=SECONDS_PER_CELL,
        resources={"metadata": {"path": str(folder)}},
        extra_arguments=["--log-level=ERROR"],
    )
    client.execute()
    assert list(folder.iterdir()) == []


def cpu_of_children() -> float:
    """Seconds of CPU that ended child processes took, theirs included."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def assert_offline(output: Any) -> None:
    """What a cell shows loads nothing from anywhere."""
    shown = str(output.get("data", {}).get("text/html", ""))
    assert not re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//", shown)
    assert "@import" not in shown
