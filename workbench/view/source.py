"""What the view asks of a comparison, so that tests can stand in a small one. No I/O here.

Axes: L layer, T row.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import polars as pl

from workbench.comparison.excuses import Excuses
from workbench.comparison.tolerance import Budgets
from workbench.names import DivergenceClass


class Pair(Protocol):
    """Both sides' arrays of one cell; None where a side does not have it."""

    @property
    def a(self) -> np.ndarray | None:
        """Side A (rollout)."""

    @property
    def b(self) -> np.ndarray | None:
        """Side B (trainer)."""


class Numbers(Protocol):
    """Both sides' numbers of one cell; None where a side does not have them."""

    @property
    def a(self) -> np.ndarray | None:
        """Side A (rollout), of a type that numpy itself knows."""

    @property
    def b(self) -> np.ndarray | None:
        """Side B (trainer)."""

    @property
    def dtype_a(self) -> str:
        """Name of the type that A stored; empty where there is nothing."""

    @property
    def dtype_b(self) -> str:
        """Name of the type that B stored."""


class Source(Protocol):
    """The part of `workbench.comparison.result.Comparison` that the view reads."""

    @property
    def directory(self) -> Path:
        """Where the comparison lies."""

    @property
    def summary(self) -> Mapping[str, Any]:
        """The content of `comparison.json`."""

    @property
    def rows(self) -> pl.DataFrame:
        """One line per row."""

    @property
    def num_layers(self) -> int:
        """L."""

    @property
    def num_rows(self) -> int:
        """T."""

    def has_column(self, name: str) -> bool:
        """Whether a metric was measured anywhere."""

    def column(self, name: str) -> np.ndarray:
        """A metric per cell, shape (L, T)."""

    def at_row(self, name: str, row: int) -> np.ndarray:
        """A metric at one row, shape (L,), without reading the rest of it."""

    def forget(self) -> None:
        """Gives the memory of columns that were read back to the system; they stay readable."""

    def missing(self, name: str) -> np.ndarray:
        """Where a metric has no value, bool (L, T)."""

    def metrics(self, layer: int, row: int) -> dict[str, float | int | bool | None]:
        """Every metric of one cell, None where missing."""

    def local(self, layer: int, row: int) -> dict[str, float | int | bool | None]:
        """Every number of `local.arrow` at one cell, None where missing; {} without attribution."""

    def cell(self, layer: int | None, row: int, site: str) -> Pair:
        """Both sides' stored vectors at one cell, in their own types; may load ml_dtypes."""

    def numbers(self, layer: int | None, row: int, site: str) -> Numbers:
        """Both sides' numbers at one cell, for showing: cheap from the first one on."""

    def selects(self, expert: int) -> np.ndarray:
        """Where either side selected an expert, bool, shape (L, T)."""

    def budgets(self, profile: str | None = None) -> Budgets:
        """Rounding budgets of a profile; None: of the one that the comparison was made with."""

    def excuses(self, profile: str | None = None) -> Excuses:
        """What lies downstream of explained flips."""

    def class_mask(self, klass: DivergenceClass, profile: str | None = None) -> np.ndarray:
        """Which cells belong to a class, bool, shape (L, T)."""

    def sites_at(
        self, klass: DivergenceClass, layer: int, row: int, profile: str | None = None
    ) -> list[str]:
        """Sites of a cell that belong to a class, in execution order."""
