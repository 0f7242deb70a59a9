"""Metrics of one site over all rows of a comparison, and their columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.comparison.arrow import Values
from workbench.comparison.columns import SITE_METRICS
from workbench.comparison.exact import RowMetrics


@dataclass(frozen=True, slots=True)
class SiteRows:
    """Metrics of one site, shape (T,) each, and the rows that have them, bool (T,)."""

    metrics: RowMetrics
    there: np.ndarray


def site_values(site: str, found: SiteRows) -> dict[str, Values]:
    """The columns of a site, by name."""
    missing = None if found.there.all() else ~found.there
    return {
        f"{site}.{name}": Values(getattr(found.metrics, name), missing) for name, _ in SITE_METRICS
    }
