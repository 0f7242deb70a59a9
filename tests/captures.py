"""Pairs of tiny captures, written through `CaptureWriter`, with knobs for what may differ.

The numbers come from a real forward pass of a toy MoE in numpy: embedding, norm, causal mixing,
norm, router, experts, head. The two paths round at different places, as two engines do. A knob
changes one thing on one side.

Axis legend: T row, D hidden, E expert, K slot, V vocabulary, L layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import ml_dtypes
import numpy as np

from workbench.names import Path as PathName
from workbench.names import layer_site
from workbench.store import CaptureWriter, Manifest, ModelFacts, ParameterSum

DTYPES = {
    "float32": np.dtype(np.float32),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float16": np.dtype(np.float16),
}
ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789+-=>\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Toy:
    """Sizes of the toy model and of what it is fed."""

    num_layers: int = 3
    hidden: int = 64
    num_experts: int = 8
    top_k: int = 2
    vocab: int = len(ALPHABET)
    lengths: tuple[int, ...] = (12, 9, 15)
    prompt: int = 4
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """How one side is run and written.

    Attributes:
        path: `rollout` or `trainer`.
        dtype: Element type of the path.
        rounding: `often` rounds after every operation, `late` once per site, as engines differ.
        scale_experts: Layer and factor for the routed experts' output.
        tokens: Replaced tokens: (request index, position) to token id.
        order: Requests in this order; None keeps them.
        interleaved: Rows of all requests by position, as continuous batching computes them.
        chunk_rows: Rows per chunk.
        cached: (request index, positions below) served from a prefix cache.
        sampled_last: Whether the last row of a request was sampled and never fed.
        values: Full site name, row in request order, element, value to put there.
        ids: Layer, row in request order, slot, expert to put there.
        omit: Short site names left out.
        pad_vocab: Columns of zeros behind the real vocabulary's logits.
        scored: Whether rows have log-probabilities.
        logits: Rows whose logits are kept: all, none, or those that score generated tokens.
        changes: Manifest fields to replace.
    """

    path: PathName
    dtype: str = "float32"
    rounding: Literal["often", "late"] = "late"
    scale_experts: tuple[int, float] | None = None
    tokens: Mapping[tuple[int, int], int] = field(default_factory=dict)
    order: tuple[int, ...] | None = None
    interleaved: bool = False
    chunk_rows: int = 1000
    cached: tuple[int, int] | None = None
    sampled_last: bool = False
    values: Sequence[tuple[str, int, int, float]] = ()
    ids: Sequence[tuple[int, int, int, int]] = ()
    omit: tuple[str, ...] = ()
    pad_vocab: int = 0
    scored: bool = True
    logits: Literal["all", "none", "generated"] = "all"
    changes: Mapping[str, Any] = field(default_factory=dict)


ROLLOUT = Side(path="rollout")
TRAINER = Side(path="trainer")


class Pair(NamedTuple):
    """Directories of both captures."""

    a: Path
    b: Path


def make_pair(
    directory: Path, *, toy: Toy | None = None, a: Side = ROLLOUT, b: Side = TRAINER
) -> Pair:
    """Writes two captures of the same tokens into `directory`/a and `directory`/b."""
    toy = toy or Toy()
    return Pair(
        make_capture(directory / "a", toy=toy, side=a),
        make_capture(directory / "b", toy=toy, side=b),
    )


def make_capture(directory: Path, *, toy: Toy | None = None, side: Side = ROLLOUT) -> Path:
    """Writes one capture."""
    toy = toy or Toy()
    run = _Run(toy, side)
    writer = CaptureWriter(directory, _manifest(toy, side, run))
    order = run.file_order()
    for start in range(0, len(order), side.chunk_rows):
        _append(writer, run, order[start : start + side.chunk_rows])
    writer.finish()
    return directory


def _manifest(toy: Toy, side: Side, run: _Run) -> Manifest:
    manifest = Manifest(
        path=side.path,
        engine="toy",
        versions={"toy": "1.0"},
        dtype=side.dtype,
        model=ModelFacts(
            id="toy",
            architecture="Toy",
            config_hash="0123456789abcdef",
            num_layers=toy.num_layers,
            num_experts=toy.num_experts,
            top_k=toy.top_k,
            hidden_size=toy.hidden,
            vocab_size=toy.vocab,
            layer_kinds=("moe",) * toy.num_layers,
        ),
        contracts={"scoring": "softmax", "renormalise": True, "selection_bias": False},
        weights={
            f"layers.{i}.experts.down": ParameterSum(sum=1000 + i, numel=64, dtype=side.dtype)
            for i in range(toy.num_layers)
        },
        router_pair_norm={i: run.pair_norm(i) for i in range(toy.num_layers)},
    )
    return replace(manifest, **side.changes)


def _append(writer: CaptureWriter, run: _Run, rows: np.ndarray) -> None:
    state = [run.state[i] for i in rows]
    columns = {
        "request": [f"r{run.request[i]}" for i in rows],
        "position": run.position[rows],
        "token_id": run.ids[rows],
        "text": [ALPHABET[run.ids[i] % len(ALPHABET)] for i in rows],
        "phase": ["generated" if run.position[i] >= run.toy.prompt else "prompt" for i in rows],
        "state": state,
        "step": np.arange(len(rows)),
        "batch_size": np.ones(len(rows), np.int32),
        "logprob": [None if np.isnan(run.logprob[i]) else float(run.logprob[i]) for i in rows],
    }
    stored = rows[np.array([s == "computed" for s in state], np.bool_)]
    arrays = {name: values[stored] for name, values in run.arrays.items()}
    covers: dict[str, np.ndarray] = {}
    if run.side.logits == "none":
        del arrays["logits"]
    elif run.side.logits == "generated":
        keep = np.flatnonzero(run.position[stored] >= run.toy.prompt - 1).astype(np.int32)
        covers["logits"], arrays["logits"] = keep, arrays["logits"][keep]
    writer.append(columns, arrays, covers)


class _Run:
    """One side's forward pass; arrays over all rows in request order."""

    def __init__(self, toy: Toy, side: Side) -> None:
        self.toy, self.side = toy, side
        self.dtype = DTYPES[side.dtype]
        tokens = np.random.default_rng(toy.seed)
        self.request = np.repeat(np.arange(len(toy.lengths)), toy.lengths)
        self.position = np.concatenate([np.arange(n) for n in toy.lengths]).astype(np.int32)
        self.ids = tokens.integers(0, toy.vocab, len(self.request)).astype(np.int32)
        for (request, position), token in side.tokens.items():
            self.ids[(self.request == request) & (self.position == position)] = token
        self.state = self._states()
        self.arrays: dict[str, np.ndarray] = {}
        self.logprob = np.full(len(self.ids), np.nan, np.float32)
        self._weights = np.random.default_rng(toy.seed + 1)
        self._routers = [self._matrix(toy.hidden, toy.num_experts) for _ in range(toy.num_layers)]
        self._forward()
        self._tamper()

    def pair_norm(self, layer: int) -> float:
        router_ED = self._routers[layer].T
        return float(max(np.linalg.norm(x - y) for x in router_ED for y in router_ED))

    def file_order(self) -> np.ndarray:
        order = self.side.order or tuple(range(len(self.toy.lengths)))
        rank = np.argsort(order)[self.request]
        keys = (rank, self.position) if self.side.interleaved else (self.position, rank)
        order_T: np.ndarray = np.lexsort(keys)
        return order_T

    def _states(self) -> list[str]:
        states = ["computed"] * len(self.request)
        for i, (request, position) in enumerate(zip(self.request, self.position, strict=True)):
            if self.side.cached and request == self.side.cached[0]:
                states[i] = "cached" if position < self.side.cached[1] else states[i]
            if self.side.sampled_last and position == self.toy.lengths[request] - 1:
                states[i] = "sampled"
        return states

    def _matrix(self, rows: int, columns: int) -> np.ndarray:
        values = self._weights.standard_normal((rows, columns)) / np.sqrt(rows)
        # The same weights in every type: what bfloat16 can hold.
        exact: np.ndarray = values.astype(ml_dtypes.bfloat16).astype(np.float64)
        return exact

    def _round(self, values: np.ndarray) -> np.ndarray:
        rounded: np.ndarray = values.astype(self.dtype).astype(np.float64)
        return rounded

    def _between(self, values: np.ndarray) -> np.ndarray:
        return self._round(values) if self.side.rounding == "often" else values

    def _put(self, name: str, values: np.ndarray) -> np.ndarray:
        stored = values.astype(self.dtype)
        if name.rpartition(".")[2] not in self.side.omit:
            self.arrays[name] = stored
        widened: np.ndarray = stored.astype(np.float64)
        return widened

    def _norm(self, values_TD: np.ndarray) -> np.ndarray:
        root = np.sqrt((values_TD**2).mean(axis=1, keepdims=True))
        return self._between(values_TD / root) * 0.75

    def _forward(self) -> None:
        toy = self.toy
        table = self._matrix(toy.vocab, toy.hidden) * np.sqrt(toy.vocab)
        stream = self._put("embed", table[self.ids])
        for layer in range(toy.num_layers):
            stream = self._layer(layer, stream)
        final = self._put("final_norm", self._norm(stream))
        logits = self._put("logits", final @ self._matrix(toy.hidden, toy.vocab) * 2)
        self._score(logits)

    def _layer(self, layer: int, stream: np.ndarray) -> np.ndarray:
        toy = self.toy
        value, out = self._matrix(toy.hidden, toy.hidden), self._matrix(toy.hidden, toy.hidden)
        up = self._matrix(toy.num_experts * toy.hidden, toy.hidden) * np.sqrt(toy.num_experts)
        down = self._matrix(toy.num_experts * toy.hidden, toy.hidden) * np.sqrt(toy.num_experts)
        stream = self._put(layer_site(layer, "input"), stream)
        attn_in = self._put(layer_site(layer, "attn_in"), self._norm(stream))
        mixed = self._between(self._causal_mean(self._between(attn_in @ value)))
        attn_out = self._put(layer_site(layer, "attn_out"), mixed @ out)
        middle = self._round(stream + attn_out)
        mlp_in = self._put(layer_site(layer, "mlp_in"), self._norm(middle))
        scores = self._put(layer_site(layer, "router_logits"), mlp_in @ self._routers[layer] * 2)
        ids, weights = self._route(layer, scores)
        shape = (toy.num_experts, toy.hidden, toy.hidden)
        routed = self._experts(mlp_in, ids, weights, up.reshape(shape), down.reshape(shape))
        if self.side.scale_experts and self.side.scale_experts[0] == layer:
            routed = routed * self.side.scale_experts[1]
        routed = self._put(layer_site(layer, "routed_out"), routed)
        mlp_out = self._put(layer_site(layer, "mlp_out"), routed)
        return self._put(layer_site(layer, "output"), middle + mlp_out)

    def _causal_mean(self, values_TD: np.ndarray) -> np.ndarray:
        mixed = np.empty_like(values_TD)
        for request in range(len(self.toy.lengths)):
            rows = np.flatnonzero(self.request == request)
            count = np.arange(1, len(rows) + 1)[:, None]
            mixed[rows] = np.cumsum(values_TD[rows], axis=0) / count
        return mixed

    def _route(self, layer: int, scores_TE: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ids_TK = np.argsort(-scores_TE, axis=1, kind="stable")[:, : self.toy.top_k]
        for at, row, slot, expert in self.side.ids:
            if at == layer:
                ids_TK[row, slot] = expert
        chosen = np.exp(np.take_along_axis(scores_TE, ids_TK, axis=1))
        weights_TK = self._put(
            layer_site(layer, "topk_weights"), chosen / chosen.sum(axis=1, keepdims=True)
        )
        if "topk_ids" not in self.side.omit:
            self.arrays[layer_site(layer, "topk_ids")] = ids_TK.astype(np.int32)
        return ids_TK, weights_TK

    def _experts(
        self,
        values_TD: np.ndarray,
        ids_TK: np.ndarray,
        weights_TK: np.ndarray,
        up: np.ndarray,
        down: np.ndarray,
    ) -> np.ndarray:
        routed = np.zeros_like(values_TD)
        for slot in range(ids_TK.shape[1]):
            hidden = np.einsum("td,tde->te", values_TD, up[ids_TK[:, slot]])
            hidden = self._between(np.tanh(self._between(hidden)))
            part = self._between(np.einsum("td,tde->te", hidden, down[ids_TK[:, slot]]))
            routed = self._between(routed + self._between(part * weights_TK[:, slot : slot + 1]))
        return routed

    def _score(self, logits_TV: np.ndarray) -> None:
        if not self.side.scored:
            return
        shifted = logits_TV - logits_TV.max(axis=1, keepdims=True)
        log_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        for row in range(1, len(self.ids)):
            if self.request[row] == self.request[row - 1]:
                self.logprob[row] = log_p[row - 1, self.ids[row]]

    def _tamper(self) -> None:
        if self.side.pad_vocab and "logits" in self.arrays:
            logits_TV = self.arrays["logits"]
            padding = np.zeros((len(logits_TV), self.side.pad_vocab), self.dtype)
            self.arrays["logits"] = np.concatenate([logits_TV, padding], axis=1)
        for name, row, element, value in self.side.values:
            self.arrays[name] = self.arrays[name].copy()
            self.arrays[name][row, element] = value
