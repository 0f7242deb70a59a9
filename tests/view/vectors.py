"""Whole vectors for a comparison made of plain arrays: B random, A off by a few roundings."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tests.view.synthetic import HIDDEN, ArraySource
from workbench.comparison.result import CellPair
from workbench.names import SITE_BY_NAME


def with_vectors(source: ArraySource, size: int = HIDDEN * 8) -> ArraySource:
    """Gives every hidden site of a comparison vectors in bfloat16; the router's stay as they are.

    Where a site is equal bit for bit by its metrics, so are its vectors.
    """
    routed = source.cell

    def cell(layer: int | None, row: int, site: str) -> CellPair:
        if SITE_BY_NAME[site].axis != "hidden" or source.rows["state_a"][row] != "computed":
            return routed(layer, row, site)
        place = [*SITE_BY_NAME].index(site)
        rng = np.random.default_rng((0 if layer is None else layer + 1, row, place))
        b_D = rng.normal(0, 1, size)
        line = {} if layer is None else source.metrics(layer, row)
        error = float(line.get(f"{site}.rel_l2") or 0.0)
        a_D = b_D if line.get(f"{site}.bit_equal") else b_D * (1 + rng.normal(0, error, size))
        return CellPair(a_D.astype(ml_dtypes.bfloat16), b_D.astype(ml_dtypes.bfloat16))

    source.cell = cell  # type: ignore[method-assign]
    return source
