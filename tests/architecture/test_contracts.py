"""The import contracts name every part: a new package cannot slip past them unseen."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.architecture.test_imports import HEAVY, ROOT, children_of_workbench, light_packages

# Stands on everything, so no wall can be put round it: test_imports watches what it loads.
ABOVE_THE_WALL = {"workbench.cli"}


def contract(name: str) -> dict[str, list[str]]:
    """One contract of pyproject.toml, by its id."""
    config = tomllib.loads(Path(ROOT, "pyproject.toml").read_text(encoding="utf-8"))
    (found,) = [c for c in config["tool"]["importlinter"]["contracts"] if c["id"] == name]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("package", [p for p in light_packages() if p not in ABOVE_THE_WALL])
def test_every_light_package_is_kept_from_the_engines(package: str) -> None:
    assert package in contract("torch-free")["source_modules"], (
        f"add {package!r} to source_modules of the torch-free contract in pyproject.toml"
    )


@pytest.mark.parametrize("name", [n for n in children_of_workbench() if n in HEAVY])
def test_every_heavy_package_is_let_into_torch(name: str) -> None:
    assert f"workbench.{name}" in contract("torch-home")["allowed_importers"], (
        f"add 'workbench.{name}' to allowed_importers of the torch-home contract in pyproject.toml"
    )


@pytest.mark.parametrize("name", children_of_workbench())
def test_every_package_has_its_layer(name: str) -> None:
    layers = " ".join(contract("layers")["layers"])
    assert f"workbench.{name}" in layers.translate(str.maketrans("()|:", "    ")).split(), (
        f"give 'workbench.{name}' its place in the layers contract in pyproject.toml"
    )
