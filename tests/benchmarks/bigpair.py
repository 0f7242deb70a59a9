"""Two captures as large as asked for, invented and written chunk by chunk.

What `compare` makes of them has noise of a last place everywhere, a share of router flips that
this noise explains, a few that it cannot, and a few NaN. Nothing is held in memory but one chunk.

Axis legend: L layer, T row, E expert, K slot, D hidden, N row of the pool.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import ml_dtypes
import numpy as np

from workbench.names import Path as PathName
from workbench.names import layer_site
from workbench.store import CaptureWriter, Manifest, ModelFacts
from workbench.store.tokens import Columns

HIDDEN_SITES: Final = ("input", "attn_in", "attn_out", "mlp_in", "routed_out", "mlp_out", "output")
REQUEST_LENGTH: Final = 1024
CHUNK_ROWS: Final = 1024
VOCABULARY: Final = 151_936
_POOL_ROWS: Final = 4096
_PAIR_NORM: Final = 20.0
_CLOSE: Final = 0.05
"""Scores this near are moved past each other by the noise of the router's input."""
_WORDS: Final = (
    " the",
    " model",
    "ing",
    " of",
    "\n",
    " 42",
    " +",
    " expert",
    "<|im_end|>",
    " 路由",
)

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large the captures are, and what happens in them.

    Attributes:
        layers, rows, experts, top_k, hidden: L, T, E, K, D.
        flips: Share of cells where the last selected expert differs.
        strange: Cells whose flip no noise explains, and as many with a NaN in A's `mlp_out`.
    """

    layers: int = 96
    rows: int = 32_768
    experts: int = 128
    top_k: int = 8
    hidden: int = 8
    flips: float = 0.015
    strange: int = 12


def write_pair(root: Path, size: Size) -> tuple[Path, Path]:
    """Writes captures `root`/a and `root`/b, and gives their directories."""
    pool = _Pool(size)
    a = CaptureWriter(root / "a", _manifest("rollout", size))
    b = CaptureWriter(root / "b", _manifest("trainer", size))
    for start in range(0, size.rows, CHUNK_ROWS):
        rows = np.arange(start, min(start + CHUNK_ROWS, size.rows))
        arrays_a, arrays_b = pool.chunk(rows)
        a.append(_tokens(rows, noise=0.0), arrays_a)
        b.append(_tokens(rows, noise=4e-3), arrays_b)
    a.finish()
    b.finish()
    return a.directory, b.directory


def _manifest(path: PathName, size: Size) -> Manifest:
    return Manifest(
        path=path,
        engine="invented",
        dtype="bfloat16",
        model=ModelFacts(
            id="invented-moe",
            num_layers=size.layers,
            num_experts=size.experts,
            top_k=size.top_k,
            hidden_size=size.hidden,
            vocab_size=VOCABULARY,
            layer_kinds=("moe",) * size.layers,
        ),
        router_pair_norm=dict.fromkeys(range(size.layers), _PAIR_NORM),
    )


def _tokens(rows: np.ndarray, *, noise: float) -> Columns:
    rng = np.random.default_rng(int(rows[0]))
    logprobs_T = -rng.gamma(1.0, 0.6, len(rows)) + rng.normal(0, 1, len(rows)) * noise
    position_T = rows % REQUEST_LENGTH
    scored = (position_T > 0).tolist()
    return {
        "request": [f"request-{row // REQUEST_LENGTH:03d}" for row in rows],
        "position": position_T,
        "token_id": rows * 7919 % VOCABULARY,
        "text": [_WORDS[row * 7 % len(_WORDS)] for row in rows],
        "phase": ["prompt" if p < REQUEST_LENGTH // 4 else "generated" for p in position_T],
        "logprob": [x if s else None for x, s in zip(logprobs_T.tolist(), scored, strict=True)],
    }


class _Pool:
    """Rows of bfloat16 numbers as bits; a cell takes the one that is drawn for it."""

    def __init__(self, size: Size) -> None:
        self.size = size
        rng = np.random.default_rng(7)
        scores_NE = rng.normal(0, 1.5, (_POOL_ROWS, size.experts)).astype(ml_dtypes.bfloat16)
        exact_NE = scores_NE.astype(np.float32)
        order_NE = np.argsort(-exact_NE, axis=1, kind="stable").astype(np.int32)
        ordered_NE = np.take_along_axis(exact_NE, order_NE, axis=1)
        self.scores_NE = scores_NE.view(np.uint16)
        self.order_NE = order_NE
        self.is_close_N = ordered_NE[:, size.top_k - 1] - ordered_NE[:, size.top_k] < _CLOSE
        self.flip_rate = size.flips / max(self.is_close_N.mean(), size.flips)
        hidden_ND = rng.normal(0, 1, (_POOL_ROWS, size.hidden)).astype(ml_dtypes.bfloat16)
        self.hidden_ND = hidden_ND.view(np.uint16)
        self.noise_ND = rng.integers(0, 2, (_POOL_ROWS, size.hidden), dtype=np.uint16)
        gates_NK = rng.dirichlet(np.ones(size.top_k), _POOL_ROWS).astype(np.float32)
        self.gates_NK = -np.sort(-gates_NK, axis=1)
        cells = rng.choice(size.layers * size.rows, 2 * size.strange, replace=False)
        self.swapped, self.nans = (
            {(int(cell) // size.rows, int(cell) % size.rows) for cell in half}
            for half in (cells[: size.strange], cells[size.strange :])
        )

    def chunk(self, rows: np.ndarray) -> tuple[Arrays, Arrays]:
        """Arrays of both sides for some consecutive rows."""
        a: Arrays = {}
        b: Arrays = {}
        for layer in range(self.size.layers):
            rng = np.random.default_rng([layer, int(rows[0])])
            for site in HIDDEN_SITES:
                name = layer_site(layer, site)
                bits_TD = self.hidden_ND[rng.integers(0, _POOL_ROWS, len(rows))]
                noise_TD = self.noise_ND[rng.integers(0, _POOL_ROWS, len(rows))]
                a[name] = bits_TD.view(ml_dtypes.bfloat16)
                b[name] = (bits_TD ^ noise_TD).view(ml_dtypes.bfloat16)
            self._route(rng, layer, rows, a, b)
            for row in self._inside(self.nans, layer, rows):
                a[layer_site(layer, "mlp_out")][row - rows[0], 0] = np.nan
        return a, b

    def _route(
        self, rng: np.random.Generator, layer: int, rows: np.ndarray, a: Arrays, b: Arrays
    ) -> None:
        """Scores, experts and gate weights; a flip exchanges two scores on side B."""
        top_k, at_T = self.size.top_k, rng.integers(0, _POOL_ROWS, len(rows))
        order_TE, scores_TE = self.order_NE[at_T], self.scores_NE[at_T]
        ids_b_TK, scores_b_TE = order_TE[:, :top_k].copy(), scores_TE.copy()
        flips_T = self.is_close_N[at_T] & (rng.random(len(rows)) < self.flip_rate)
        places = [(int(place), top_k) for place in np.flatnonzero(flips_T)]
        strange = self._inside(self.swapped, layer, rows)
        places += [(row - int(rows[0]), self.size.experts - 1) for row in strange]
        for place, slot in places:
            last, outsider = order_TE[place, top_k - 1], order_TE[place, slot]
            ids_b_TK[place, -1] = outsider
            scores_b_TE[place, [last, outsider]] = scores_b_TE[place, [outsider, last]]
        gates_TK = self.gates_NK[at_T]
        for side, ids_TK, bits_TE in (
            (a, order_TE[:, :top_k], scores_TE),
            (b, ids_b_TK, scores_b_TE),
        ):
            side[layer_site(layer, "router_logits")] = bits_TE.view(ml_dtypes.bfloat16)
            side[layer_site(layer, "topk_ids")] = ids_TK
            side[layer_site(layer, "topk_weights")] = gates_TK

    def _inside(self, cells: set[tuple[int, int]], layer: int, rows: np.ndarray) -> list[int]:
        return [row for at, row in sorted(cells) if at == layer and rows[0] <= row <= rows[-1]]
