"""A comparison's sequences in batches, and a side's stored values for the rows of a batch.

Owns the way from rows on disk to tensors in the shape of a forward call. Values are read from
memory maps, site by site; nothing loads a whole capture. The invariant: a row that a side did not
compute (`cached`, `sampled`, lost) is never invented; its place is false in the mask.

Axis legend: B sequence of the batch, S column, N = B * S flat place, T row, X element of a vector.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import ml_dtypes
import numpy as np
import polars as pl
import torch

from workbench.comparison.result import Comparison, Side
from workbench.names import MODEL_SITES, layer_site
from workbench.store import Chunk

MAX_TOKENS: Final = 4096
"""Tokens per forward, padding included, unless one sequence alone is longer."""
MAX_LOGITS: Final = 1 << 28
"""Logits of one forward."""
_OPEN_MAPS: Final = 64

_FROM_BITS: Final[dict[str, tuple[type, torch.dtype]]] = {
    "bfloat16": (np.int16, torch.bfloat16),
    "float8_e4m3fn": (np.uint8, torch.float8_e4m3fn),
    "float8_e5m2": (np.uint8, torch.float8_e5m2),
}


class Held(NamedTuple):
    """A side's values for one batch, flat.

    Attributes:
        values_NX: In the type they are stored in, on the CPU; 0 where the mask is false.
        mask_N: Which places the side has, bool.
    """

    values_NX: torch.Tensor
    mask_N: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Whole sequences, padded on the right.

    Attributes:
        requests: Names in order.
        rows_BS: Row of the comparison at every place, int64, -1 in the padding.
        input_ids_BS: Token ids, int64, 0 in the padding.
    """

    requests: tuple[str, ...]
    rows_BS: np.ndarray
    input_ids_BS: torch.Tensor

    @property
    def rows_N(self) -> np.ndarray:
        """Row at every flat place, -1 in the padding."""
        return self.rows_BS.reshape(-1)

    @property
    def mask_BS(self) -> torch.Tensor:
        """1 for a token, 0 for padding, int64."""
        return torch.from_numpy((self.rows_BS >= 0).astype(np.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequences:
    """The requests of a comparison that can be replayed.

    Attributes:
        names: In the comparison's order.
        rows: Their rows in order of position, one array each.
        token_ids: Token id of every row of the comparison, int32 (T,).
        skipped: Request name to the reason why it cannot be replayed.
    """

    names: tuple[str, ...]
    rows: tuple[np.ndarray, ...]
    token_ids: np.ndarray
    skipped: dict[str, str] = field(default_factory=dict)

    def batches(
        self, *, max_tokens: int = MAX_TOKENS, only: frozenset[str] | None = None
    ) -> Iterator[Batch]:
        """Consecutive requests, as many as fit; `only` picks some by name."""
        group: list[int] = []
        for index, name in enumerate(self.names):
            if only is not None and name not in only:
                continue
            longest = max(len(self.rows[i]) for i in (*group, index))
            if group and longest * (len(group) + 1) > max_tokens:
                yield self._batch(group)
                group = []
            group.append(index)
        if group:
            yield self._batch(group)

    def _batch(self, group: list[int]) -> Batch:
        longest = max(len(self.rows[i]) for i in group)
        rows_BS = np.full((len(group), longest), -1, np.int64)
        for place, index in enumerate(group):
            rows_BS[place, : len(self.rows[index])] = self.rows[index]
        ids_BS = np.where(rows_BS >= 0, self.token_ids[rows_BS], 0).astype(np.int64)
        return Batch(
            requests=tuple(self.names[i] for i in group),
            rows_BS=rows_BS,
            input_ids_BS=torch.from_numpy(ids_BS),
        )


def token_budget(vocab_size: int, *, max_tokens: int = MAX_TOKENS) -> int:
    """Tokens per forward so that the logits of one forward stay within bounds."""
    return max(1, min(max_tokens, MAX_LOGITS // max(1, vocab_size)))


def find_sequences(comparison: Comparison) -> Sequences:
    """The requests of a comparison, in its order, that can be replayed from their token ids."""
    table = comparison.rows
    names: list[str] = []
    rows: list[np.ndarray] = []
    skipped: dict[str, str] = {}
    for (name,), part in table.select("row", "request", "position", "modality").group_by(
        "request", maintain_order=True
    ):
        ordered = part.sort("position")
        position_T = ordered["position"].to_numpy()
        if not np.array_equal(position_T, np.arange(len(position_T))):
            skipped[str(name)] = "positions are missing, so its tokens cannot be replayed"
        elif ordered.filter(pl.col("modality") != "text").height:
            skipped[str(name)] = "it holds rows that are not text, which ids alone do not describe"
        else:
            names.append(str(name))
            rows.append(ordered["row"].to_numpy().astype(np.int64))
    return Sequences(
        names=tuple(names),
        rows=tuple(rows),
        token_ids=table["token_id"].to_numpy(),
        skipped=skipped,
    )


class SideRows:
    """One side's stored values, by row of the comparison.

    `use(batch)` says which batch `values` is asked about. `gate_factor` multiplies gate weights, in
    float32, so that both sides' weights mean the same.
    """

    def __init__(
        self, comparison: Comparison, side: Side = "a", *, gate_factor: float = 1.0
    ) -> None:
        self.side: Side = side
        self.gate_factor = gate_factor
        self._capture = comparison.capture(side)
        self._by_index: dict[int, Chunk] = {chunk.index: chunk for chunk in self._capture.chunks}
        self._chunk_T = comparison.rows[f"chunk_{side}"].fill_null(-1).to_numpy()
        self._offset_T = comparison.rows[f"offset_{side}"].fill_null(-1).to_numpy()
        logprob = comparison.rows[f"logprob_{side}"].cast(pl.Float64)
        self._logprob_T = logprob.fill_null(float("nan")).to_numpy()
        self._maps: OrderedDict[tuple[int, str], tuple[np.ndarray, np.ndarray | None]] = (
            OrderedDict()
        )
        self._rows_N: np.ndarray = np.empty(0, np.int64)

    def use(self, batch: Batch) -> None:
        """Turns to a batch."""
        self._rows_N = batch.rows_N

    def has(self, layer: int | None, site: str) -> bool:
        """Whether the side recorded a site at all."""
        return _full_name(layer, site) in self._capture.manifest.sites

    def dtype_name(self, layer: int | None, site: str) -> str:
        """Stored element type of a site, "" when it was not recorded."""
        info = self._capture.manifest.sites.get(_full_name(layer, site))
        return "" if info is None else info.dtype

    def logprobs(self, rows: np.ndarray) -> np.ndarray:
        """Log-probabilities of rows (-1: none), float64 in the shape of `rows`, NaN where null."""
        found: np.ndarray = np.where(rows >= 0, self._logprob_T[rows], np.nan)
        return found

    def has_rows(self, rows: np.ndarray) -> np.ndarray:
        """Which rows the side computed; false for -1, the padding."""
        found: np.ndarray = (rows >= 0) & (self._offset_T[rows] >= 0)
        return found

    def values(self, layer: int | None, site: str) -> Held | None:
        """The side's values for the current batch, None when the site was not recorded.

        Gate weights come multiplied by `gate_factor`.
        """
        found = self.read(self._rows_N, layer, site)
        if found is None:
            return None
        values_NX, mask_N = found
        values = from_numpy(values_NX)
        if site == "topk_weights" and self.gate_factor != 1.0:
            values = values.float() * self.gate_factor
        mask = torch.from_numpy(mask_N)
        if site == "topk_ids":
            # An empty slot (an id below 0) cannot be asked of another path's experts.
            mask &= (values >= 0).all(-1)
        return Held(values, mask)

    def read(
        self, rows_N: np.ndarray, layer: int | None, site: str
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Stored values of rows (-1: none), shape (N, X), and which rows have them."""
        name = _full_name(layer, site)
        info = self._capture.manifest.sites.get(name)
        if info is None:
            return None
        chunk_N = np.where(rows_N >= 0, self._chunk_T[rows_N], -1)
        offset_N = np.where(rows_N >= 0, self._offset_T[rows_N], -1)
        width = int(np.prod(info.shape, dtype=np.int64))
        values_NX: np.ndarray | None = None
        mask_N = np.zeros(len(rows_N), np.bool_)
        for index in np.unique(chunk_N[offset_N >= 0]):
            held = self._map(int(index), name)
            if held is None:
                continue
            array_TX, cover = held
            places = np.flatnonzero((chunk_N == index) & (offset_N >= 0))
            offsets = offset_N[places]
            if cover is not None:
                at = np.minimum(np.searchsorted(cover, offsets), max(0, len(cover) - 1))
                there = cover[at] == offsets if len(cover) else np.zeros(len(at), np.bool_)
                places, offsets = places[there], at[there]
            if values_NX is None:
                values_NX = np.zeros((len(rows_N), width), array_TX.dtype)
            values_NX[places] = array_TX[offsets]
            mask_N[places] = True
        if values_NX is None:
            values_NX = np.zeros((len(rows_N), width), np.float32)
        return values_NX, mask_N

    def _map(self, index: int, name: str) -> tuple[np.ndarray, np.ndarray | None] | None:
        key = (index, name)
        found = self._maps.get(key)
        if found is not None:
            self._maps.move_to_end(key)
            return found
        chunk = self._by_index.get(index)
        if chunk is None or name not in chunk:
            return None
        array = chunk.array(name)
        found = self._maps[key] = (array.reshape(len(array), -1), chunk.covered(name))
        if len(self._maps) > _OPEN_MAPS:
            self._maps.popitem(last=False)
        return found


def from_numpy(values: np.ndarray) -> torch.Tensor:
    """The array's bits as a tensor; bfloat16 and float8 keep their type. Shares memory."""
    bits = _FROM_BITS.get(values.dtype.name)
    if bits is None:
        return torch.from_numpy(values)
    return torch.from_numpy(values.view(bits[0])).view(bits[1])


def as_float64(values: np.ndarray) -> np.ndarray:
    """Exact float64 copy of stored values."""
    if values.dtype == ml_dtypes.bfloat16:
        return (values.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return values.astype(np.float64)


def _full_name(layer: int | None, site: str) -> str:
    return site if site in MODEL_SITES else layer_site(int(layer or 0), site)
