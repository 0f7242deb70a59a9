"""A comparison on disk, opened for reading: summary, both tables, both captures on demand.

Owns what faces may ask of a comparison. Never imports torch, transformers or vllm. The invariant:
what is missing reads as NaN or through `missing`, and is never equal.

Axis legend: L layer, T row.
"""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import polars as pl

from workbench.comparison import classes, excuses
from workbench.comparison.arrow import Column, Values
from workbench.comparison.columns import LOCAL_SITES, ROW_SCHEMA, known_columns
from workbench.comparison.excuses import Excuses
from workbench.comparison.layertable import (
    LayerTable,
    columns_from_json,
    unreadable_comparison,
)
from workbench.comparison.newer import FORMAT_VERSION, as_far_as_known, newer_version
from workbench.comparison.recorded import Recorded, Vector, find_capture
from workbench.comparison.selected import selected_by_either
from workbench.comparison.shape import check_shape
from workbench.comparison.tolerance import Budgets, Precision, budgets
from workbench.errors import CaptureError, UsageError, did_you_mean
from workbench.names import (
    DIVERGENCE_CLASSES,
    MODEL_SITES,
    SITE_BY_NAME,
    DivergenceClass,
    layer_site,
)
from workbench.store import Capture, open_capture, read_manifest
from workbench.store.newer import is_version, unreadable_newer, unwritable_newer

FORMAT_NAME: Final = "kldive-comparison"
SUMMARY_NAME: Final = "comparison.json"
ROWS_NAME: Final = "rows.parquet"
LAYERS_NAME: Final = "layers.arrow"
LOCAL_NAME: Final = "local.arrow"
ATTRIBUTION_NAME: Final = "attribution.json"
MAX_SUMMARY_BYTES: Final = 256 * 1024 * 1024
_KEPT_COLUMNS: Final = 4

Side = Literal["a", "b"]
_SIDES: Final[tuple[Side, ...]] = ("a", "b")
Order = Literal["token", "layer"]


class CellPair(NamedTuple):
    """Both sides' stored vectors of one cell; None where a side does not have it."""

    a: np.ndarray | None
    b: np.ndarray | None


class CellNumbers(NamedTuple):
    """Both sides' numbers of one cell, for showing; None where a side does not have them.

    Attributes:
        a, b: As stored where numpy knows the type; bfloat16 and float8 as float32, exactly.
        dtype_a, dtype_b: Names of the stored types; empty where there is nothing.
    """

    a: np.ndarray | None
    b: np.ndarray | None
    dtype_a: str = ""
    dtype_b: str = ""


class Divergences(NamedTuple):
    """Cells of a class in scan order: parallel int32 arrays of layers and rows."""

    layers: np.ndarray
    rows: np.ndarray


class Comparison:
    """Two captures, aligned and measured.

    Args:
        directory: Where its files lie.
        summary: The content of `comparison.json`, or the part that describes the two tables.
        captures: Open captures, where the caller has them.

    Attributes:
        directory: Where the comparison lies.
        summary: The content of `comparison.json`.
        num_layers: L, at least 1.
        num_rows: T.
    """

    def __init__(
        self,
        directory: Path,
        summary: dict[str, Any],
        *,
        captures: dict[Side, Capture] | None = None,
    ) -> None:
        self.directory = directory
        self.summary = summary
        self._read_shape()
        # A face reads one cell while a thread of its own reads whole columns.
        self._lock = Lock()
        self._cache: OrderedDict[str, np.ndarray] = OrderedDict()
        self._captures: dict[Side, Capture] = dict(captures or {})
        self._recorded: dict[Side, Recorded] = {}
        self._budgets: dict[str, Budgets] = {}
        self._excuses: dict[str, Excuses] = {}
        self._masks: dict[tuple[DivergenceClass, str], np.ndarray] = {}

    @property
    def newer_version(self) -> int | None:
        """The version of a comparison whose format is newer than this kldive's, else None."""
        return newer_version(self.summary)

    def check_writable(self) -> None:
        """Refuses to be written into when it is of a newer format.

        Raises:
            CaptureError: What this kldive does not know of it would be lost.
        """
        if (version := self.newer_version) is not None:
            raise unwritable_newer(
                self.directory,
                version,
                reads=FORMAT_VERSION,
                do="update kldive, or compare the two captures again into another directory",
            )

    def _read_shape(self) -> None:
        where = self.directory / SUMMARY_NAME
        layers = self.summary.get("layers")
        precision = self.summary.get("precision")
        if not isinstance(layers, dict) or not isinstance(precision, dict):
            raise unreadable_comparison(where, "layers and precision as objects", "something else")
        self.num_layers: int = _whole_number(layers, "num_layers", where, least=1)
        self.num_rows: int = _whole_number(layers, "num_rows", where, least=0)
        self._columns: list[Column] = columns_from_json(layers.get("columns"), where)
        found = self.summary.get("attribution")
        local = found.get("columns") if isinstance(found, dict) else None
        self._local_columns = [] if local is None else columns_from_json(local, where)
        self._names = {column.name for column in (*self._columns, *self._local_columns)}
        try:
            if self.newer_version is not None:
                known = Precision.__dataclass_fields__
                precision = {name: precision[name] for name in precision if name in known}
            self._precision = Precision(**precision)
        except TypeError as error:
            raise unreadable_comparison(
                where, "precision as kldive writes it", str(error)
            ) from error

    @cached_property
    def rows(self) -> pl.DataFrame:
        """One line per row: `ROW_SCHEMA`, then the metrics of embed, final_norm and logits."""
        path = self.directory / ROWS_NAME
        try:
            table = pl.read_parquet(path)
        except (OSError, pl.exceptions.PolarsError) as error:
            raise unreadable_comparison(
                path, "a Parquet file", str(error).splitlines()[0]
            ) from error
        for name, dtype in ROW_SCHEMA.items():
            if table.schema.get(name) != dtype:
                raise unreadable_comparison(path, f"{name} as {dtype}", str(table.schema.get(name)))
        if table.height != self.num_rows:
            raise unreadable_comparison(path, f"{self.num_rows} rows", str(table.height))
        return table

    @cached_property
    def _table(self) -> LayerTable:
        return LayerTable(
            self.directory / LAYERS_NAME,
            self._columns,
            num_layers=self.num_layers,
            num_rows=self.num_rows,
        )

    @cached_property
    def _local(self) -> LayerTable:
        return LayerTable(
            self.directory / LOCAL_NAME,
            self._local_columns,
            num_layers=self.num_layers,
            num_rows=self.num_rows,
        )

    @property
    def local_modules(self) -> list[str]:
        """Modules with a local error in `local.arrow`, in execution order; empty without one."""
        names = {column.name for column in self._local_columns}
        return [module for module in LOCAL_SITES if f"{module}.local" in names]

    def has_column(self, name: str) -> bool:
        """Whether a table has this column: it could be measured, somewhere."""
        return name in self._names

    def _table_of(self, name: str) -> LayerTable:
        return self._table if name in self._table else self._local

    def column(self, name: str) -> np.ndarray:
        """A column of `layers.arrow`, or of `local.arrow`, as a read-only (L, T) array.

        float32 with NaN where missing; uint32 or bool with 0 or False where missing, and `missing`
        tells. A column that neither side recorded is missing everywhere. float32 and uint32 are
        maps of the file; bool is unpacked and kept.

        Raises:
            UsageError: No such column.
        """
        if not self.has_column(name):
            return self._absent(name)
        if (kept := self._kept(name)) is not None:
            return kept
        values = self._table_of(name).values(name)
        return self._keep(name, values) if values.dtype == np.bool_ else values

    def metrics(self, layer: int, row: int) -> dict[str, float | int | bool | None]:
        """Every column of `layers.arrow` at one cell, None where missing; costs microseconds.

        Raises:
            UsageError: No such layer or row.
        """
        self._check_cell(layer, row, "output")
        return self._table.line(layer, row)

    def local(self, layer: int, row: int) -> dict[str, float | int | bool | None]:
        """Every column of `local.arrow` at one cell, None where missing; {} without the table.

        Raises:
            UsageError: No such layer or row.
        """
        self._check_cell(layer, row, "output")
        return self._local.line(layer, row) if self._local_columns else {}

    def missing(self, name: str) -> np.ndarray:
        """Where a column has no value, bool (L, T)."""
        if not self.has_column(name):
            self._absent(name)
            return np.ones((self.num_layers, self.num_rows), np.bool_)
        key = name + "?"
        if (kept := self._kept(key)) is not None:
            return kept
        return self._keep(key, self._table_of(name).missing(name))

    def one(self, name: str, layer: int, row: int) -> Values:
        """One value of a column and whether it is missing, (1, 1) each; reads nothing else.

        Raises:
            UsageError: No such column.
        """
        if not self.has_column(name):
            return Values(self._absent(name)[:1, :1], np.ones((1, 1), np.bool_))
        return self._table_of(name).cell(name, layer, row)

    def forget(self) -> None:
        """Gives the memory of columns that were read back to the system.

        Nothing is lost but the time to map them again; arrays that were handed out stay good.
        """
        if "_table" in self.__dict__:
            self._table.forget()
        if "_local" in self.__dict__:
            self._local.forget()

    def at_row(self, name: str, row: int) -> np.ndarray:
        """A column at one row, (L,), as `column` gives it, without reading the rest of it.

        Raises:
            UsageError: No such column.
        """
        if not self.has_column(name):
            return self._absent(name)[:, row]
        return self._table_of(name).at_row(name, row)

    def _kept(self, key: str) -> np.ndarray | None:
        with self._lock:
            kept = self._cache.get(key)
            if kept is not None:
                self._cache.move_to_end(key)
            return kept

    def _keep(self, key: str, values: np.ndarray) -> np.ndarray:
        values.flags.writeable = False
        with self._lock:
            self._cache[key] = values
            if len(self._cache) > _KEPT_COLUMNS:
                self._cache.popitem(last=False)
        return values

    def _absent(self, name: str) -> np.ndarray:
        kind = known_columns().get(name)
        if kind is None:
            raise UsageError(f"unknown column {name!r}", do=did_you_mean(name, known_columns()))
        shape = (self.num_layers, self.num_rows)
        if kind == "f4":
            return np.full(shape, np.nan, np.float32)
        return np.zeros(shape, np.uint32 if kind == "u4" else np.bool_)

    def capture(self, side: Side) -> Capture:
        """The capture of a side, opened once.

        Raises:
            CaptureError: It was moved, removed or recorded again since.
        """
        if side not in self._captures:
            place = find_capture(self.directory, side, self.summary[side])
            self._captures[side] = open_capture(place)
        return self._captures[side]

    def _recorded_by(self, side: Side) -> Recorded:
        if side not in self._recorded:
            if (capture := self._captures.get(side)) is not None:
                self._recorded[side] = Recorded(capture.directory, capture.manifest)
            else:
                place = find_capture(self.directory, side, self.summary[side])
                self._recorded[side] = Recorded(place, read_manifest(place))
        return self._recorded[side]

    def cell(self, layer: int | None, row: int, site: str) -> CellPair:
        """Both sides' stored vectors at a cell, as stored; `layer` None for model sites.

        Raises:
            UsageError: No such layer, row or site.
            CaptureError: A capture was moved.
        """
        a, b = self._vectors(layer, row, site)
        return CellPair(a and a.stored, b and b.stored)

    def numbers(self, layer: int | None, row: int, site: str) -> CellNumbers:
        """Both sides' numbers at a cell, without loading a package for their types.

        Raises:
            UsageError: No such layer, row or site.
            CaptureError: A capture was moved.
        """
        a, b = self._vectors(layer, row, site)
        return CellNumbers(
            a and a.numbers,
            b and b.numbers,
            "" if a is None else a.dtype,
            "" if b is None else b.dtype,
        )

    def _vectors(self, layer: int | None, row: int, site: str) -> tuple[Vector | None, ...]:
        """Where each side's vector of a cell lies."""
        self._check_cell(layer, row, site)
        name = site if site in MODEL_SITES else layer_site(int(layer or 0), site)
        return tuple(
            self._recorded_by(side).vector(
                int(self._places[f"chunk_{side}"][row]),
                int(self._places[f"offset_{side}"][row]),
                name,
            )
            for side in _SIDES
        )

    @cached_property
    def _places(self) -> dict[str, np.ndarray]:
        """Chunk and offset of each row's arrays, int32 (T,) each; -1 where there are none."""
        names = [f"{part}_{side}" for part in ("chunk", "offset") for side in _SIDES]
        return {name: self.rows[name].fill_null(-1).to_numpy() for name in names}

    def selects(self, expert: int) -> np.ndarray:
        """Where either side selected an expert, by logical id, bool (L, T).

        Raises:
            CaptureError: A capture was moved.
        """
        return selected_by_either(self, expert)

    def _check_cell(self, layer: int | None, row: int, site: str) -> None:
        if site not in SITE_BY_NAME:
            raise UsageError(f"unknown site {site!r}", do=did_you_mean(site, SITE_BY_NAME))
        if not 0 <= row < self.num_rows:
            raise UsageError("no such row", expected=f"0..{self.num_rows - 1}", got=row)
        per_layer = SITE_BY_NAME[site].per_layer
        if per_layer and (layer is None or not 0 <= layer < self.num_layers):
            raise UsageError("no such layer", expected=f"0..{self.num_layers - 1}", got=layer)

    def budgets(self, profile: str | None = None) -> Budgets:
        """Rounding budgets of a profile; of the one the comparison was made with when None.

        Raises:
            UsageError: Unknown profile.
        """
        if profile is None:
            profile = str(self.summary["tolerance"]["profile"])
        if profile not in self._budgets:
            self._budgets[profile] = budgets(self._precision, profile)
        return self._budgets[profile]

    def excuses(self, profile: str | None = None) -> Excuses:
        """What lies downstream of explained flips."""
        found = self.budgets(profile)
        if found.profile not in self._excuses:
            self._excuses[found.profile] = excuses.excuses(self, found)
        return self._excuses[found.profile]

    def class_mask(self, klass: DivergenceClass, profile: str | None = None) -> np.ndarray:
        """Which cells belong to a class of divergence, read-only bool (L, T).

        `embed` counts to layer 0; `final_norm`, `logits` and log-probabilities to the last layer.

        Raises:
            UsageError: Unknown class or profile.
        """
        if klass not in DIVERGENCE_CLASSES:
            raise UsageError(f"unknown class {klass!r}", do=did_you_mean(klass, DIVERGENCE_CLASSES))
        found = self.budgets(profile)
        key = (klass, found.profile)
        if key not in self._masks:
            mask = classes.class_mask(self, klass, found, self._excuses_of(klass, profile))
            # A bit per cell is kept: unpacking costs less than a millisecond per million.
            self._masks[key] = np.packbits(mask)
        shape = (self.num_layers, self.num_rows)
        bits = np.unpackbits(self._masks[key], count=shape[0] * shape[1])
        bits.flags.writeable = False
        return bits.view(np.bool_).reshape(shape)

    def _excuses_of(self, klass: DivergenceClass, profile: str | None) -> Excuses | None:
        return self.excuses(profile) if klass in classes.EXCUSABLE else None

    def divergences(
        self, klass: DivergenceClass, order: Order = "token", profile: str | None = None
    ) -> Divergences:
        """All cells of a class: `token` order is row by row, `layer` order is layer by layer."""
        mask = self.class_mask(klass, profile)
        if order == "layer":
            layers, rows = np.nonzero(mask)
        else:
            rows, layers = np.nonzero(mask.T)
        return Divergences(layers.astype(np.int32), rows.astype(np.int32))

    def sites_at(
        self, klass: DivergenceClass, layer: int, row: int, profile: str | None = None
    ) -> list[str]:
        """Sites of a cell that belong to a class, in execution order; `logprobs` for that class."""
        excused = self._excuses_of(klass, profile)
        return classes.sites_of_cell(
            self, klass, self.budgets(profile), excused, layer=layer, row=row
        )


def _whole_number(body: dict[str, Any], name: str, where: Path, *, least: int) -> int:
    value = body.get(name)
    if type(value) is not int or not least <= value < 2**40:
        raise unreadable_comparison(where, f"a whole number as layers.{name}", repr(value)[:80])
    return value


def open_comparison(directory: str | os.PathLike[str]) -> Comparison:
    """Opens a comparison for reading.

    Raises:
        CaptureError: Not a comparison, damaged, or of a newer format in which something known is
            missing or has another shape.
    """
    path = Path(directory)
    where = path / SUMMARY_NAME
    try:
        if where.stat().st_size > MAX_SUMMARY_BYTES:
            raise unreadable_comparison(
                where, f"at most {MAX_SUMMARY_BYTES} bytes", str(where.stat().st_size)
            )
        summary = json.loads(where.read_text("utf-8"))
    except FileNotFoundError as error:
        raise CaptureError(
            "not a comparison",
            where=path,
            expected=f"a directory with {SUMMARY_NAME}",
            got="no such directory" if not path.exists() else f"no {SUMMARY_NAME} in it",
            do="give the directory that `kldive compare` wrote",
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise unreadable_comparison(where, "readable JSON", str(error)) from error
    if not isinstance(summary, dict) or summary.get("format") != FORMAT_NAME:
        raise unreadable_comparison(where, f'format "{FORMAT_NAME}"', "something else")
    version = summary.get("version")
    if not is_version(version):
        raise unreadable_comparison(where, "a whole number as version", repr(version)[:80])
    if version <= FORMAT_VERSION:
        return _opened(path, summary)
    try:
        if not isinstance(summary.get("first"), dict):
            raise unreadable_comparison(where, "an object as first", "something else")
        summary = as_far_as_known(summary)
        check_shape(summary, where)
        return _opened(path, summary, profile=summary["tolerance"]["profile"])
    except CaptureError as error:
        raise unreadable_newer(
            "this comparison", version, reads=FORMAT_VERSION, error=error
        ) from error


def _opened(path: Path, summary: dict[str, Any], *, profile: str = "") -> Comparison:
    comparison = Comparison(path, summary)
    _ = comparison.rows
    if profile:
        try:
            comparison.budgets(profile)
        except UsageError as error:
            where = path / SUMMARY_NAME
            raise unreadable_comparison(where, "a known tolerance profile", profile[:80]) from error
    return comparison
