"""The columns of `local.arrow` while they are filled: one file per column, mapped, not held.

Batches come in the order of requests, the table wants one layer after the other; between them stand
mapped scratch files of four bytes per (layer, row) and column. Memory does not grow with the rows.

Axis legend: L layer, T row.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from workbench.attribution.kinds import MODULE_BY_NAME, MODULES
from workbench.comparison.arrow import Column, LayerTableWriter, Values
from workbench.comparison.columns import LOCAL_ERROR

NUMBERS: Final = ("local", "inherited", "total", "units_a", "units_b")
"""Per module: local error of A against B's module on A's input; what the difference of the inputs
makes of B's module; A against B as captured; error of A, and of B's module, against the arbiter in
units of rounding."""
OVER: Final = "over"


def column_name(module: str, number: str) -> str:
    """Name of a column, for example `routed_experts.local`."""
    return f"{module}.{number}"


def local_columns(modules: list[str]) -> list[Column]:
    """Columns of `local.arrow` when some modules were measured."""
    columns = [Column("layer", "u4"), Column("row", "u4"), Column(LOCAL_ERROR, "b1")]
    for module in (m.name for m in MODULES if m.name in modules):
        columns += [Column(column_name(module, n), "f4") for n in NUMBERS]
        columns.append(Column(column_name(module, OVER), "b1"))
    return columns


class Scratch:
    """Float columns by (module, number), NaN until written.

    Args:
        directory: For the scratch files; the caller removes it.
        num_layers: L.
        num_rows: T.
    """

    def __init__(self, directory: Path, *, num_layers: int, num_rows: int) -> None:
        self._directory = directory
        self.num_layers, self.num_rows = num_layers, num_rows
        self._maps: dict[tuple[str, str], np.ndarray] = {}
        self.over: dict[str, np.ndarray] = {}

    @property
    def modules(self) -> list[str]:
        """Modules with a local error, in execution order."""
        return [m.name for m in MODULES if (m.name, "local") in self._maps]

    def put(
        self, module: str, number: str, layer: int | None, rows: np.ndarray, values: np.ndarray
    ) -> None:
        """Writes values of some rows."""
        self.column(module, number)[self.line(module, layer), rows] = values

    def column(self, module: str, number: str) -> np.ndarray:
        """A column as (L, T), made when it is new."""
        key = (module, number)
        if key not in self._maps:
            path = self._directory / f"{module}.{number}.f4"
            shape = (self.num_layers, max(1, self.num_rows))
            fresh = np.memmap(path, np.float32, mode="w+", shape=shape)
            fresh[:] = np.nan
            self._maps[key] = fresh[:, : self.num_rows]
        return self._maps[key]

    def line(self, module: str, layer: int | None) -> int:
        """The table's layer of a module: the first for embeddings, the last for what ends a model.

        Other modules stand in their own layer.
        """
        if layer is not None and not MODULE_BY_NAME[module].of_model:
            return layer
        return 0 if module == "embedding" else self.num_layers - 1

    def values(self, module: str, number: str, layer: int | None) -> np.ndarray:
        """One module's column, (T,); all NaN when nothing was written."""
        if (module, number) not in self._maps:
            return np.full(self.num_rows, np.nan, np.float32)
        found: np.ndarray = self.column(module, number)[self.line(module, layer)]
        return found

    def mark_over(self, module: str, layer: int | None, over_T: np.ndarray) -> None:
        """Notes which rows of a module are beyond its budget."""
        if module not in self.over:
            self.over[module] = np.zeros((self.num_layers, self.num_rows), np.bool_)
        self.over[module][self.line(module, layer)] |= over_T

    def write(self, path: Path) -> list[Column]:
        """Writes the table, layer by layer, and gives its columns."""
        columns = local_columns(self.modules)
        writer = LayerTableWriter(path, columns, num_layers=self.num_layers, num_rows=self.num_rows)
        rows = np.arange(self.num_rows, dtype=np.uint32)
        for layer in range(self.num_layers):
            values = {
                "layer": Values(np.full(self.num_rows, layer, np.uint32)),
                "row": Values(rows),
            }
            for (module, number), column in self._maps.items():
                slice_T = np.array(column[layer])
                values[column_name(module, number)] = Values(slice_T, np.isnan(slice_T))
            beyond_T = [over[layer] for over in self.over.values()]
            any_T = (
                np.logical_or.reduce(beyond_T) if beyond_T else np.zeros(self.num_rows, np.bool_)
            )
            values[LOCAL_ERROR] = Values(any_T)
            for module, over in self.over.items():
                missing = np.isnan(self.column(module, "local")[layer])
                values[column_name(module, OVER)] = Values(over[layer], missing)
            writer.append(values)
        writer.close()
        return columns
