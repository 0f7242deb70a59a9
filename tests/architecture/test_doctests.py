"""Examples in docstrings run as written."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def modules_with_examples() -> list[str]:
    """Dotted names of our modules that hold a `>>>`."""
    files = [*ROOT.glob("workbench/**/*.py"), *ROOT.glob("tui/**/*.py")]
    found = [file for file in files if ">>> " in file.read_text(encoding="utf-8")]
    return sorted(".".join(file.relative_to(ROOT).with_suffix("").parts) for file in found)


@pytest.mark.parametrize("module", modules_with_examples())
def test_docstring_examples_give_what_they_say(module: str) -> None:
    name = module.removesuffix(".__init__")
    results = doctest.testmod(import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert results.attempted > 0
    assert results.failed == 0
