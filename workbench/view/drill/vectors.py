"""Both sides' whole vectors at one cell: where they differ, by how much, and by how many ULPs.

Differences are A minus B. ULPs are of the coarser type of both sides. A component that is NaN or
Inf on either side has no size: it comes first, and takes no share of the squared error. Gate
weights are matched by expert id. A side without a vector leaves nothing to compare.

Axes: D component, N component of those shown.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from workbench.comparison.ulp import ulp_distance
from workbench.errors import CaptureError
from workbench.names import SITE_BY_NAME
from workbench.store.dtypes import coarser, numpy_dtype, unit_roundoff
from workbench.view.source import Source
from workbench.view.walk import Stop

Types = tuple[str, str]
"""Names of both sides' stored types."""
MOST_COMPONENTS: Final = 256
"""Components that are listed; the rest are counted."""
_FACTOR_SHARE: Final = 0.9
"""One factor is worth a hint when it leaves less than a tenth of the squared error."""
_TOP_BIN: Final = 10
_BINS: Final = ("0", "1", "2", *(f"{2**k + 1}–{2 ** (k + 1)}" for k in range(1, _TOP_BIN)), "more")


class Component(NamedTuple):
    """One place of the vectors.

    Attributes:
        place: Component, or expert id for gate weights.
        a, b: Values of both sides.
        ulps: Distance in units of the last place of the coarser type; None for NaN, Inf and ids.
        share: Of the squared error; None where it has no size.
    """

    place: int
    a: float
    b: float
    ulps: int | None
    share: float | None


class Bin(NamedTuple):
    """How many components lie so many ULPs apart."""

    label: str
    num: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorFacts:
    """Two vectors, compared.

    Attributes:
        problem: Why there is nothing to compare, or empty; the rest is then empty too.
        integer: Whether they hold ids: no distance, no error.
        by_expert: Whether components are experts.
        dtype_a, dtype_b, coarser: Element types, and the one that ULPs are counted in.
        size: Components compared; `left_out` more stand on one side alone.
        bit_equal: Whether every stored bit agrees, or across types every value.
        differing: Components that differ.
        norm_a, norm_b, rel_l2, cosine, max_abs: Over components that are finite on both sides.
        nonfinite_a, nonfinite_b: NaN and Inf.
        scale: c that fits A = c B best; None where B is zero.
        scale_share: Share of the squared error that this factor explains.
        components: Those that differ most, largest first.
        histogram: Components by ULP distance, without empty bins at the end.
    """

    problem: str = ""
    integer: bool = False
    by_expert: bool = False
    dtype_a: str = ""
    dtype_b: str = ""
    coarser: str = ""
    size: int = 0
    left_out: int = 0
    bit_equal: bool = False
    differing: int = 0
    norm_a: float = 0.0
    norm_b: float = 0.0
    rel_l2: float = 0.0
    cosine: float = 1.0
    max_abs: float = 0.0
    nonfinite_a: int = 0
    nonfinite_b: int = 0
    scale: float | None = None
    scale_share: float = 0.0
    components: tuple[Component, ...] = ()
    histogram: tuple[Bin, ...] = ()

    @property
    def scale_hint(self) -> float | None:
        """The factor, where one factor explains most of the error."""
        return self.scale if self.scale_share >= _FACTOR_SHARE else None


def vector_facts(source: Source, stop: Stop) -> VectorFacts:
    """Reads and compares the vectors of a cell."""
    if stop.site not in SITE_BY_NAME:
        return VectorFacts(problem="a log-probability is one number, not a vector")
    try:
        pair = source.numbers(stop.model_layer, stop.row, stop.site)
        if pair.a is None or pair.b is None:
            return VectorFacts(problem=_who_lacks(pair.a, pair.b))
        types = (pair.dtype_a, pair.dtype_b)
        if stop.site == "topk_weights":
            ids = source.numbers(stop.model_layer, stop.row, "topk_ids")
            if ids.a is not None and ids.b is not None:
                return gate_facts(ids.a, pair.a, ids.b, pair.b, types)
    except CaptureError as error:
        return VectorFacts(problem=f"{error.what}; {error.do}" if error.do else error.what)
    return compare_vectors(pair.a, pair.b, types)


def _who_lacks(a_D: np.ndarray | None, b_D: np.ndarray | None) -> str:
    if a_D is None and b_D is None:
        return "neither side recorded a vector here"
    return f"side {'A' if a_D is None else 'B'} recorded no vector here: nothing to compare with"


def gate_facts(
    ids_a_K: np.ndarray,
    gates_a_K: np.ndarray,
    ids_b_K: np.ndarray,
    gates_b_K: np.ndarray,
    types: Types | None = None,
) -> VectorFacts:
    """Gate weights by expert id; 0 where a side did not select the expert."""
    sides = []
    for ids_K, gates_K in ((ids_a_K, gates_a_K), (ids_b_K, gates_b_K)):
        sides.append({int(e): g for e, g in zip(ids_K, gates_K, strict=True) if e >= 0})
    experts = sorted({*sides[0], *sides[1]})
    a_N, b_N = (
        np.array([side.get(expert, gates.dtype.type(0)) for expert in experts], gates.dtype)
        for side, gates in zip(sides, (gates_a_K, gates_b_K), strict=True)
    )
    return compare_vectors(a_N, b_N, types, np.array(experts, np.int64))


def compare_vectors(
    a_D: np.ndarray,
    b_D: np.ndarray,
    types: Types | None = None,
    experts_D: np.ndarray | None = None,
) -> VectorFacts:
    """Compares two vectors; of different lengths, what both have.

    Args:
        a_D: Of side A, any float or integer type.
        b_D: Of side B.
        types: Names of the types they were stored in, where they were widened since.
        experts_D: Expert ids where components are experts.
    """
    types = types or (a_D.dtype.name, b_D.dtype.name)
    size = min(len(a_D), len(b_D))
    left_out = max(len(a_D), len(b_D)) - size
    a_D, b_D = np.ascontiguousarray(a_D[:size]), np.ascontiguousarray(b_D[:size])
    index_D = np.arange(size) if experts_D is None else experts_D
    if not all(unit_roundoff(name) for name in types):
        return _ids(a_D, b_D, index_D, left_out)
    with np.errstate(all="ignore"):
        found = _floats(a_D, b_D, types, index_D)
    return replace(
        found,
        left_out=left_out,
        bit_equal=found.bit_equal and not left_out,
        by_expert=experts_D is not None,
    )


def _ids(a_D: np.ndarray, b_D: np.ndarray, index_D: np.ndarray, left_out: int) -> VectorFacts:
    components = [
        Component(int(index), float(a), float(b), None, None)
        for index, a, b in zip(index_D, a_D, b_D, strict=True)
    ]
    differing = int((a_D != b_D).sum())
    return VectorFacts(
        integer=True,
        dtype_a=a_D.dtype.name,
        dtype_b=b_D.dtype.name,
        size=len(a_D),
        left_out=left_out,
        bit_equal=not differing and not left_out,
        differing=differing,
        components=tuple(components[:MOST_COMPONENTS]),
    )


def _floats(a_D: np.ndarray, b_D: np.ndarray, types: Types, index_D: np.ndarray) -> VectorFacts:
    kind = coarser(*types)
    ulps_D = ulp_distance(_in_type(a_D, types[0], kind), _in_type(b_D, types[1], kind))
    ulps_D = ulps_D.astype(np.uint64)
    x_D, y_D = a_D.astype(np.float64), b_D.astype(np.float64)
    finite_D = np.isfinite(x_D) & np.isfinite(y_D)
    same_D = (x_D == y_D) | (np.isnan(x_D) & np.isnan(y_D))
    d_D = np.where(finite_D, x_D - y_D, np.where(same_D, 0.0, np.inf))
    x_D, y_D = np.where(finite_D, x_D, 0.0), np.where(finite_D, y_D, 0.0)
    differs_D = (d_D != 0) | (finite_D & (ulps_D > 0))
    squared = float(((x_D - y_D) ** 2).sum())
    norm_a, norm_b = float(np.linalg.norm(x_D)), float(np.linalg.norm(y_D))
    scale = float(x_D @ y_D) / norm_b**2 if norm_b > 0 else None
    fitted = squared if scale is None else float(((x_D - scale * y_D) ** 2).sum())
    broken = bool(np.isinf(d_D).any())
    return VectorFacts(
        dtype_a=types[0],
        dtype_b=types[1],
        coarser=kind,
        size=len(a_D),
        bit_equal=_bit_equal(a_D, b_D),
        differing=int(differs_D.sum()),
        norm_a=norm_a,
        norm_b=norm_b,
        rel_l2=math.inf if broken else _ratio(math.sqrt(squared), norm_b),
        cosine=_cosine(float(x_D @ y_D), norm_a, norm_b),
        max_abs=float(np.abs(d_D).max(initial=0.0)),
        nonfinite_a=int((~np.isfinite(a_D.astype(np.float64))).sum()),
        nonfinite_b=int((~np.isfinite(b_D.astype(np.float64))).sum()),
        scale=scale,
        scale_share=0.0 if squared == 0 or broken else 1 - fitted / squared,
        components=tuple(
            Component(
                int(index_D[i]),
                float(a_D[i]),
                float(b_D[i]),
                int(ulps_D[i]) if finite_D[i] else None,
                float(d_D[i] ** 2 / squared) if finite_D[i] and squared > 0 else None,
            )
            for i in _largest(d_D, differs_D)
        ),
        histogram=_histogram(ulps_D[finite_D], int((~finite_D).sum())),
    )


def _bit_equal(a_D: np.ndarray, b_D: np.ndarray) -> bool:
    if a_D.dtype != b_D.dtype:
        return bool(np.array_equal(a_D.astype(np.float64), b_D.astype(np.float64), equal_nan=True))
    return a_D.tobytes() == b_D.tobytes()


def _in_type(values_D: np.ndarray, stored: str, kind: str) -> np.ndarray:
    """Values in the type that ULPs are counted in; of bfloat16 its bits, which is all it takes."""
    if stored == kind == "bfloat16" and values_D.dtype == np.float32:
        # Widened exactly: the lower half is empty, and its package need not be loaded.
        return (values_D.view(np.uint32) >> 16).astype(np.uint16)
    return np.array(values_D, numpy_dtype(kind))


def _ratio(value: float, whole: float) -> float:
    if whole > 0:
        return value / whole
    return 0.0 if value == 0 else math.inf


def _cosine(product: float, norm_a: float, norm_b: float) -> float:
    """1 for two zero vectors, 0 where one of them is zero."""
    if norm_a == 0 or norm_b == 0:
        return 1.0 if norm_a == norm_b else 0.0
    return max(-1.0, min(1.0, product / norm_a / norm_b))


def _largest(d_D: np.ndarray, differs_D: np.ndarray) -> np.ndarray:
    """Components that differ, by size, at most `MOST_COMPONENTS`; equal sizes in their order."""
    order_N = np.flatnonzero(differs_D)
    order_N = order_N[np.argsort(-np.abs(d_D[order_N]), kind="stable")]
    return order_N[:MOST_COMPONENTS]


def _histogram(ulps_N: np.ndarray, nonfinite: int) -> tuple[Bin, ...]:
    """Counts by distance: 0, 1, 2, 3–4, 5–8 and so on, then NaN and Inf where there are any."""
    edges = np.array([0, 1, 2, *(2**k for k in range(2, _TOP_BIN + 1))], np.uint64)
    place_N = np.searchsorted(edges, ulps_N, side="left")
    counts = np.bincount(place_N, minlength=len(_BINS))
    filled = np.flatnonzero(counts)
    last = int(filled[-1]) if len(filled) else 0
    bins = [Bin(label, int(n)) for label, n in zip(_BINS, counts, strict=True)][: last + 1]
    return (*bins, Bin("NaN/Inf", nonfinite)) if nonfinite else tuple(bins)
