"""Building `rows.parquet` from aligned rows and what was measured per row.

Axis legend: T row.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from workbench.comparison.columns import KIND_TO_POLARS, ROW_SCHEMA, SITE_METRICS
from workbench.comparison.measure import Measured
from workbench.comparison.probability import row_terms
from workbench.names import MODEL_SITES
from workbench.store import Capture


def row_table(aligned: pl.DataFrame, measured: Measured, a: Capture, b: Capture) -> pl.DataFrame:
    """The row table; NaN never appears, what is missing or not a number is null."""
    logprob_a_T = aligned["logprob_a"].cast(pl.Float64).to_numpy()
    logprob_b_T = aligned["logprob_b"].cast(pl.Float64).to_numpy()
    terms = row_terms(logprob_a_T, logprob_b_T)
    columns: dict[str, pl.Series] = {
        "row": pl.Series(np.arange(aligned.height, dtype=np.uint32)),
        "num_flip_layers": pl.Series(measured.num_flip_layers),
        "chunk_a": _file_chunk(aligned, "a", a),
        "chunk_b": _file_chunk(aligned, "b", b),
    }
    for name in ("dlogp", "ratio", "k1", "k2", "k3"):
        columns[name] = _nullable(getattr(terms, name))
    columns.update(_distributions(aligned, measured))
    series = []
    for name, dtype in ROW_SCHEMA.items():
        found = columns[name] if name in columns else aligned[name]
        series.append(found.cast(dtype).alias(name))
    return pl.DataFrame([*series, *_site_columns(measured)])


def _file_chunk(aligned: pl.DataFrame, side: str, capture: Capture) -> pl.Series:
    """Index of the chunk in the manifest, null where the row has no arrays.

    A place among the readable chunks would move if a damaged chunk were repaired.
    """
    index = np.array([chunk.index for chunk in capture.chunks], np.int32)
    place_T = aligned[f"chunk_{side}"].to_numpy()
    has = aligned[f"offset_{side}"].is_not_null()
    return pl.Series(index[place_T]).set(~has, None)


def _nullable(values_T: np.ndarray) -> pl.Series:
    return pl.Series(values_T.astype(np.float32)).fill_nan(None)


def _distributions(aligned: pl.DataFrame, measured: Measured) -> dict[str, pl.Series]:
    num_rows = aligned.height
    nothing = np.full(num_rows, np.nan)
    names = {"kl_exact": nothing, "kl_exact_reverse": nothing, "tv": nothing}
    found: dict[str, pl.Series] = {name: _nullable(values) for name, values in names.items()}
    found["argmax_equal"] = pl.Series([None] * num_rows, dtype=pl.Boolean)
    if measured.distributions is None:
        return found
    exact, there_T = measured.distributions
    found["kl_exact"] = _nullable(exact.kl)
    found["kl_exact_reverse"] = _nullable(exact.kl_reverse)
    found["tv"] = _nullable(exact.tv)
    found["argmax_equal"] = pl.Series(exact.argmax_equal).set(pl.Series(~there_T), None)
    for side, values in (("a", exact.entropy_a), ("b", exact.entropy_b)):
        recorded = aligned[f"entropy_{side}"]
        found[f"entropy_{side}"] = pl.select(
            pl.coalesce(recorded, _nullable(values)).alias("entropy")
        )["entropy"]
    return found


def _site_columns(measured: Measured) -> list[pl.Series]:
    series = []
    for site in MODEL_SITES:
        found = measured.model.get(site)
        if found is None:
            continue
        missing = pl.Series(~found.there)
        for name, kind in SITE_METRICS:
            values = pl.Series(f"{site}.{name}", getattr(found.metrics, name))
            values = values.cast(KIND_TO_POLARS[kind])
            if kind == "f4":
                values = values.fill_nan(None)
            series.append(values.set(missing, None))
    return series
