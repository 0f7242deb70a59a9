"""Why each router flip happened: the input that reached the router, or the gate that scored it.

For a flip, experts i that A alone chose and j that B alone chose. Between the sides the gap
z_i - z_j moved; the trainer's gate on A's input splits that move exactly into what the input did
and what the gate did:

    (zA_i - zA_j) - (zB_i - zB_j) = [gap of gate_B(x_A) - gap of gate_B(x_B)]   the input
                                  + [gap of A's scores  - gap of gate_B(x_A)]   the gate

A flip follows the input when B's own router, given A's input, chooses A's experts; it follows the
gate when it still chooses B's. Formula from comparing each module on equal inputs; the split is an
identity, so nothing is left over.

Axis legend: N flat place, F flip, E expert, K slot.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import torch
from torch import nn

from workbench.attribution.local import Seen
from workbench.attribution.rollout_rows import Batch, SideRows
from workbench.capture.layers import LayerParts
from workbench.capture.structure import ModelParts
from workbench.comparison.flips import RouterFacts, score_rounding
from workbench.comparison.result import Comparison
from workbench.store.dtypes import unit_roundoff

Kind = Literal["tie", "explained", "unexplained"]
Follows = Literal["input", "gate", "both", "unknown"]

MAX_LISTED: Final = 256
MARGIN_BINS: Final[tuple[float, ...]] = (0.0, 1e-4, 1e-3, 1e-2, 0.03, 0.1, 0.3, 1.0)
"""Lower ends of the bins of the smaller k/k+1 margin, in units of the scores; the last is open."""


class Flip(NamedTuple):
    """One flip.

    Attributes:
        layer, row: Where.
        only_a, only_b: Experts that one side alone chose.
        margin_a, margin_b: Gap between the k-th and (k+1)-th score on each side.
        input_moved: ‖mlp_in_A - mlp_in_B‖; NaN when unknown.
        by_input: Move of the gap of the two experts that the input causes.
        by_gate: Move that the gate causes.
        rounding: Move that rounding of the scores alone can make.
        follows: Whether the choice follows the input, the gate, both or neither alone.
        kind: `tie` when two scores are equal at the cut, `explained` when input and rounding cover
            the move, else `unexplained`.
    """

    layer: int
    row: int
    only_a: tuple[int, ...]
    only_b: tuple[int, ...]
    margin_a: float
    margin_b: float
    input_moved: float
    by_input: float
    by_gate: float
    rounding: float
    follows: Follows
    kind: Kind


@dataclass(slots=True)
class FlipTally:
    """Counts over all flips, and the first ones whole."""

    listed: list[Flip] = field(default_factory=list)
    counts: dict[tuple[int, str, str], int] = field(default_factory=dict)

    def add(self, flip: Flip) -> None:
        """Takes one flip."""
        key = (flip.layer, flip.kind, flip.follows)
        self.counts[key] = self.counts.get(key, 0) + 1
        self.listed.append(flip)
        if len(self.listed) > 2 * MAX_LISTED:
            self._trim()

    def _trim(self) -> None:
        """Keeps what is worst to explain: unexplained first, then the first rows."""
        self.listed.sort(key=lambda flip: (flip.kind != "unexplained", flip.row, flip.layer))
        del self.listed[MAX_LISTED:]

    def count(self, **wanted: object) -> int:
        """Flips with this layer, kind or follows."""
        names = ("layer", "kind", "follows")
        return sum(
            count
            for key, count in self.counts.items()
            if all(key[names.index(name)] == value for name, value in wanted.items())
        )

    def to_json(self, comparison: Comparison) -> dict[str, Any]:
        """As `comparison.json` holds it: counts, both curves, and the flips that say most."""
        self._trim()
        layers = sorted({layer for layer, _, _ in self.counts})
        return {
            "flips": self.count(),
            **{kind: self.count(kind=kind) for kind in ("tie", "explained", "unexplained")},
            "follows": {
                name: self.count(follows=name) for name in ("input", "gate", "both", "unknown")
            },
            "by_layer": [
                {
                    "layer": layer,
                    "flips": self.count(layer=layer),
                    **{
                        kind: self.count(layer=layer, kind=kind)
                        for kind in ("tie", "explained", "unexplained")
                    },
                    "follows_input": self.count(layer=layer, follows="input"),
                    "follows_gate": self.count(layer=layer, follows="gate"),
                }
                for layer in layers
            ],
            "by_margin": margin_curve(comparison),
            "listed": [_flip_json(flip) for flip in self.listed],
        }


def margin_curve(comparison: Comparison) -> list[dict[str, Any]]:
    """Share of flips by the smaller of both sides' k/k+1 margins, over all layers and rows."""
    if not comparison.has_column("topk.set_equal") or not comparison.has_column("topk.margin_a"):
        return []
    rows = np.zeros(len(MARGIN_BINS), np.int64)
    flips = np.zeros(len(MARGIN_BINS), np.int64)
    ends = np.array([*MARGIN_BINS, np.inf])
    for layer in range(comparison.num_layers):
        margin_T = np.fmin(
            comparison.column("topk.margin_a")[layer], comparison.column("topk.margin_b")[layer]
        )
        there_T = ~comparison.missing("topk.set_equal")[layer] & ~np.isnan(margin_T)
        bins_T = np.clip(np.searchsorted(ends, margin_T, side="right") - 1, 0, len(rows) - 1)
        other_T = there_T & ~comparison.column("topk.set_equal")[layer]
        rows += np.bincount(bins_T[there_T], minlength=len(rows))
        flips += np.bincount(bins_T[other_T], minlength=len(rows))
    return [
        {
            "from": MARGIN_BINS[i],
            "to": MARGIN_BINS[i + 1] if i + 1 < len(MARGIN_BINS) else None,
            "rows": int(rows[i]),
            "flips": int(flips[i]),
        }
        for i in range(len(MARGIN_BINS))
    ]


def _flip_json(flip: Flip) -> dict[str, Any]:
    body = flip._asdict()
    return {
        name: (None if isinstance(v, float) and not np.isfinite(v) else v)
        if not isinstance(v, tuple)
        else list(v)
        for name, v in body.items()
    }


class FlipWatcher:
    """Splits the move of every flip while the local map runs.

    Args:
        comparison: Says which rows flipped.
        parts: The trainer; its routers are asked again on A's input.
        side_a, side_b: Both sides' values.
    """

    def __init__(
        self, comparison: Comparison, parts: ModelParts, side_a: SideRows, side_b: SideRows
    ) -> None:
        self.tally = FlipTally()
        self._flipped = (
            comparison.column("topk.num_flips") if comparison.has_column("topk.num_flips") else None
        )
        self._sides = (side_a, side_b)
        self._facts = {
            layer.index: _facts(comparison, layer.index, parts.hidden_size)
            for layer in parts.layers
        }
        self._layers: dict[int, LayerParts] = {
            layer.index: layer for layer in parts.layers if layer.router is not None
        }
        self._batch: Batch | None = None
        self._calls: dict[int, tuple[Any, Any]] = {}
        self._scores: dict[int, torch.Tensor] = {}
        self.handles = [
            layer.router.register_forward_pre_hook(self._hook(index), with_kwargs=True)
            for index, layer in self._layers.items()
            if layer.router is not None
        ]

    def close(self) -> None:
        """Removes the hooks."""
        for handle in self.handles:
            handle.remove()

    def _hook(self, index: int) -> Any:
        def hook(_module: nn.Module, args: Any, kwargs: Any) -> None:
            self._calls[index] = (args, kwargs)

        return hook

    def begin(self, batch: Batch, *, sampled: bool) -> None:
        """Before a batch."""
        del sampled
        self._batch = batch
        self._calls.clear()
        self._scores.clear()

    def seen(self, seen: Seen) -> None:
        """The router's scores on A's input come by first, then its choice."""
        layer, name = seen.place
        if layer is None or self._flipped is None or self._batch is None:
            return
        if name == "router":
            self._scores[layer] = seen.own_NX
        elif name == "top_k" and layer in self._scores:
            for flip in self._flips(layer, seen):
                self.tally.add(flip)

    def _flips(self, layer: int, seen: Seen) -> Iterator[Flip]:
        assert self._batch is not None
        assert self._flipped is not None
        rows_N = self._batch.rows_N
        there_N = np.where(rows_N >= 0, self._flipped[layer][rows_N] > 0, False)
        places = np.flatnonzero(there_N & seen.mask_N.cpu().numpy())
        if not len(places):
            return
        sides = [_Decided.read(side, rows_N[places], layer) for side in self._sides]
        if None in sides:
            return
        a, b = (side for side in sides if side is not None)
        index = torch.from_numpy(places).to(seen.own_NX.device)
        on_a_FE = self._scores[layer][index].double().cpu().numpy()
        again = self._again(layer, a.ids_FK.shape[1])
        for place in range(len(places)):
            yield _explained(
                layer,
                int(rows_N[places[place]]),
                a.at(place),
                b.at(place),
                on_a_FE[place],
                None if again is None else set(again[places[place]].tolist()),
                self._facts[layer],
            )

    def _again(self, layer: int, top_k: int) -> np.ndarray | None:
        """What B's router chooses on A's input, scores its own: its code, outside the swap."""
        router = self._layers[layer].router
        call = self._calls.get(layer)
        if router is None or call is None:
            return None
        args, kwargs = call
        with torch.no_grad():
            output = type(router).forward(router, *args, **kwargs)
        items = output if isinstance(output, (tuple, list)) else (output,)
        for item in items:
            is_ids = isinstance(item, torch.Tensor) and not item.is_floating_point()
            if is_ids and item.shape[-1] == top_k:
                ids_NK: np.ndarray = item.reshape(-1, top_k).cpu().numpy()
                return ids_NK
        return None


class _Decided(NamedTuple):
    """Routing of some flips on one side."""

    ids_FK: np.ndarray
    scores_FE: np.ndarray
    input_FD: np.ndarray | None

    @classmethod
    def read(cls, side: SideRows, rows: np.ndarray, layer: int) -> _Decided | None:
        ids, scores = (side.read(rows, layer, s) for s in ("topk_ids", "router_logits"))
        given = side.read(rows, layer, "mlp_in")
        if ids is None or scores is None or not ids[1].all() or not scores[1].all():
            return None
        return cls(
            ids[0].astype(np.int64),
            scores[0].astype(np.float64),
            given[0].astype(np.float64) if given is not None and given[1].all() else None,
        )

    def at(self, place: int) -> _One:
        given = None if self.input_FD is None else self.input_FD[place]
        return _One(set(self.ids_FK[place].tolist()), self.scores_FE[place], given)


class _One(NamedTuple):
    chosen: set[int]
    scores_E: np.ndarray
    input_D: np.ndarray | None

    @property
    def margin(self) -> float:
        """Gap between the k-th and the (k+1)-th score."""
        ordered = np.sort(self.scores_E)[::-1]
        count = len(self.chosen)
        return float(ordered[count - 1] - ordered[count]) if count < len(ordered) else float("nan")


def _explained(
    layer: int,
    row: int,
    a: _One,
    b: _One,
    on_a_E: np.ndarray,
    again: set[int] | None,
    facts: RouterFacts,
) -> Flip:
    only_a, only_b = sorted(a.chosen - b.chosen), sorted(b.chosen - a.chosen)
    pairs = [(i, j) for i in only_a for j in only_b] or [(0, 0)]

    def gap(scores_E: np.ndarray, pair: tuple[int, int]) -> float:
        return float(scores_E[pair[0]] - scores_E[pair[1]])

    # The pair that had to move furthest carries the flip.
    pair = max(pairs, key=lambda p: gap(a.scores_E, p) - gap(b.scores_E, p))
    by_input = gap(on_a_E, pair) - gap(b.scores_E, pair)
    by_gate = gap(a.scores_E, pair) - gap(on_a_E, pair)
    largest = max(float(np.abs(s).max()) for s in (a.scores_E, b.scores_E))
    rounding = float(score_rounding(np.array([largest]), facts)[0])
    moved = (
        float(np.linalg.norm(a.input_D - b.input_D))
        if a.input_D is not None and b.input_D is not None
        else float("nan")
    )
    return Flip(
        layer=layer,
        row=row,
        only_a=tuple(only_a),
        only_b=tuple(only_b),
        margin_a=a.margin,
        margin_b=b.margin,
        input_moved=moved,
        by_input=by_input,
        by_gate=by_gate,
        rounding=rounding,
        follows=_follows(again, a.chosen, b.chosen),
        kind=_kind(
            tie=0.0 in (a.margin, b.margin),
            by_gate=by_gate,
            on_a=gap(on_a_E, pair),
            rounding=rounding,
            input_decides=again == a.chosen,
        ),
    )


def _follows(again: set[int] | None, a: set[int], b: set[int]) -> Follows:
    if again is None:
        return "unknown"
    return "input" if again == a else "gate" if again == b else "both"


def _kind(*, tie: bool, by_gate: float, on_a: float, rounding: float, input_decides: bool) -> Kind:
    """The input may have moved as far as it did; what is left must be rounding.

    Args:
        tie: Whether two scores are equal at the cut of a side.
        by_gate: Move of the gap between the two experts that the gate made.
        on_a: Their gap by B's gate on A's input; below 0 it speaks against A's choice.
        rounding: Move that rounding of the scores can make.
        input_decides: Whether B's router on A's input chooses as A did.
    """
    if tie:
        return "tie"
    fits = abs(by_gate) <= rounding and (input_decides or on_a >= -rounding)
    return "explained" if fits else "unexplained"


def _facts(comparison: Comparison, layer: int, hidden_size: int) -> RouterFacts:
    manifests = [comparison.capture(side).manifest for side in ("a", "b")]
    name = f"layers.{layer}.router_logits"
    units = [unit_roundoff(m.sites[name].dtype) for m in manifests if name in m.sites]
    return RouterFacts(
        pair_norm=None,
        hidden_size=hidden_size,
        roundoff=max(units, default=0.0),
        scoring="softmax",
        by_logits=True,
    )
