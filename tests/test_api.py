"""The public surface: a change of it needs a changelog line and a change here."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import workbench
import workbench.widgets
from tests.view.synthetic import make_source
from workbench.errors import MissingDependencyError

ROOT = Path(__file__).resolve().parents[1]
SURFACE = [
    "Capture",
    "Comparison",
    "KldiveError",
    "attribute",
    "compare",
    "open_capture",
    "open_comparison",
    "record",
    "show",
    "view",
]


def test_the_public_names_are_these() -> None:
    assert sorted(workbench.__all__) == SURFACE
    assert set(SURFACE) <= set(dir(workbench))


@pytest.mark.parametrize("name", [n for n in SURFACE if n not in ("attribute", "record")])
def test_a_public_name_loads(name: str) -> None:
    assert callable(getattr(workbench, name))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'vieww'"):
        workbench.vieww  # noqa: B018


def test_view_is_a_verb_and_stays_the_package_of_the_view_model() -> None:
    from workbench.view.model import ViewModel
    from workbench.widgets.panel import view

    shown = workbench.view(make_source(flips=((1, 5),)), lens="gates")
    assert isinstance(shown.divergence.model, ViewModel)
    assert shown.state.lens == "gates"
    assert inspect.signature(workbench.view) == inspect.signature(view)


def test_a_missing_widget_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("workbench.widgets.panel", "workbench.widgets.divergence"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delitem(vars(workbench.widgets), "view", raising=False)
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.raises(MissingDependencyError, match=r"anywidget is needed.*\n.*kldive\[jupyter\]"):
        workbench.view(make_source())


def test_the_files_of_the_widget_are_in_the_package() -> None:
    """The wheel takes the folder whole; what is ignored or elsewhere would be left out."""
    names = ["workbench/widgets/divergence.js", "workbench/widgets/divergence.css"]
    listed = subprocess.run(
        ["git", "ls-files", *names], capture_output=True, text=True, check=False, cwd=ROOT
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    assert sorted(listed.stdout.split()) == sorted(names)
