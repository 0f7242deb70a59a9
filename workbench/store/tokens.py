"""The token table of a chunk: one line per row, as Parquet. Owns the column names and types.

A row is (request, position). `offset` is the row's place in the chunk's arrays, null where nothing
was computed (state `cached` or `sampled`). `logprob` belongs to the row's own token; it is null
where the path did not score it, never zero. No torch.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from workbench.errors import CaptureError, UsageError, did_you_mean

TOKEN_SCHEMA: Final[dict[str, pl.DataType]] = {
    "request": pl.String(),
    "position": pl.Int32(),
    "token_id": pl.Int32(),
    "text": pl.String(),
    "phase": pl.String(),
    "state": pl.String(),
    "modality": pl.String(),
    "step": pl.Int32(),
    "batch_size": pl.Int32(),
    "offset": pl.Int32(),
    "logprob": pl.Float32(),
    "rank": pl.Int32(),
    "entropy": pl.Float32(),
}
REQUIRED: Final = ("request", "position", "token_id")
_DEFAULTS: Final[dict[str, str]] = {
    "text": "",
    "phase": "prompt",
    "state": "computed",
    "modality": "text",
}
_ALLOWED: Final[dict[str, tuple[str, ...]]] = {
    "phase": ("prompt", "generated"),
    "state": ("computed", "cached", "sampled"),
}

Columns = Mapping[str, Sequence[Any] | np.ndarray]


def token_table(columns: Columns) -> pl.DataFrame:
    """A token table with every column in its type; columns left out get their default or null.

    Raises:
        UsageError: A required column is missing, a name is unknown, lengths or values do not fit.
    """
    for name in columns:
        if name not in TOKEN_SCHEMA:
            raise UsageError(f"unknown token column {name!r}", do=did_you_mean(name, TOKEN_SCHEMA))
    missing = [name for name in REQUIRED if name not in columns]
    if missing:
        raise UsageError("a token table lacks a column", expected=", ".join(missing))
    num_rows = len(columns["request"])
    series = []
    for name, dtype in TOKEN_SCHEMA.items():
        values = columns.get(name)
        if values is None:
            values = [_DEFAULTS.get(name)] * num_rows
        if len(values) != num_rows:
            raise UsageError(
                f"token column {name!r} has another length", expected=num_rows, got=len(values)
            )
        series.append(pl.Series(name, values, dtype=dtype, strict=False))
    table = pl.DataFrame(series)
    problem = token_table_problem(table)
    if problem:
        raise UsageError("the token table is not sound", got=problem)
    return table


def token_table_problem(table: pl.DataFrame) -> str | None:
    """What is wrong with a token table in one phrase, or None."""
    for name in REQUIRED:
        if table[name].null_count():
            return f"null in {name}"
    if table.filter(pl.col("position") < 0).height:
        return "a negative position"
    for name, allowed in _ALLOWED.items():
        strange = table.filter(~pl.col(name).is_in(allowed) | pl.col(name).is_null())
        if strange.height:
            return f"{name} {strange[name][0]!r}, not one of {', '.join(allowed)}"
    offsets = table["offset"].drop_nulls().to_numpy()
    if not np.array_equal(np.sort(offsets), np.arange(len(offsets))):
        return f"offsets that are not 0..{len(offsets) - 1}, each once"
    uncomputed = table.filter((pl.col("state") != "computed") & pl.col("offset").is_not_null())
    if uncomputed.height:
        return f"arrays for a row of state {uncomputed['state'][0]}"
    return None


def encode_tokens(table: pl.DataFrame) -> bytes:
    """The bytes of the Parquet file of a token table."""
    buffer = io.BytesIO()
    table.write_parquet(buffer, compression="zstd")
    return buffer.getvalue()


def read_tokens(path: Path) -> pl.DataFrame:
    """A checked token table.

    Raises:
        CaptureError: The file is missing, not Parquet, lacks columns, or its values are not sound.
    """
    try:
        table = pl.read_parquet(path, use_pyarrow=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise _broken(path, "a Parquet file", str(error).splitlines()[0]) from error
    for name, dtype in TOKEN_SCHEMA.items():
        found = table.schema.get(name)
        if found is None:
            raise _broken(path, f"a column {name}", f"columns {', '.join(table.columns)[:120]}")
        if found != dtype:
            raise _broken(path, f"{name} as {dtype}", str(found))
    table = table.select(list(TOKEN_SCHEMA))
    problem = token_table_problem(table)
    if problem:
        raise _broken(path, "a sound token table", problem)
    return table


def _broken(path: Path, expected: str, got: str) -> CaptureError:
    return CaptureError(
        "cannot read a token table",
        where=path,
        expected=expected,
        got=got,
        do="record this capture again, or remove the chunk from the manifest to use the rest",
    )
