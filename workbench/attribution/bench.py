"""The trainer on the bench: re-run a comparison's tokens with something swapped, measure against A.

Owns the loop over batches and the numbers that every experiment reports. The invariant: memory
does not grow with the number of sequences; sums are kept, not rows, and the values that a batch
needs are kept across experiments only as far as they fit `CACHE_BYTES`.

Axis legend: B sequence, S column, N flat place, T row of the comparison, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch

from workbench.attribution.intercept import Spot, intercept, unreachable
from workbench.attribution.local import ModulePlace
from workbench.attribution.rollout_rows import Batch, Sequences, SideRows, find_sequences
from workbench.attribution.substitute import (
    Place,
    Plan,
    merge,
    merge_choices,
    replay,
    rollout_source,
)
from workbench.attribution.swappable import LM_HEAD, find_modules, sites_of
from workbench.attribution.transplant import LocalValues, Transplant, local_values, take_gates
from workbench.capture.structure import ModelParts
from workbench.comparison.probability import row_terms
from workbench.comparison.result import Comparison
from workbench.errors import UsageError

CACHE_BYTES: Final = 512 * 1024 * 1024
MAX_LOCAL_BYTES: Final = 1024 * 1024 * 1024
_BLOCK_VALUES: Final = 1 << 22

Setup = Callable[[ModelParts], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """What one experiment takes from A.

    Attributes:
        name: Short name.
        about: One line for people.
        values: Captured values of A; they carry everything upstream of them.
        modules: Modules whose arithmetic is A's, on B's own inputs.
        setups: Changes of B's arithmetic that hold while it runs.
    """

    name: str
    about: str = ""
    values: Plan = field(default_factory=Plan)
    modules: frozenset[ModulePlace] = frozenset()
    setups: tuple[Setup, ...] = ()


@dataclass(slots=True)
class Totals:
    """Sums over some rows.

    Attributes:
        num_exact: Rows with the exact KL.
        num_sampled: Rows with both log-probabilities.
        num_nonfinite: Rows where A is finite and B is not; they are in no mean.
    """

    num_exact: int = 0
    kl_sum: float = 0.0
    num_sampled: int = 0
    k3_sum: float = 0.0
    max_abs_dlogp: float = 0.0
    num_nonfinite: int = 0

    def to_json(self) -> dict[str, Any]:
        """Means; None where there is no row."""
        return {
            "kl": self.kl_sum / self.num_exact if self.num_exact else None,
            "k3": self.k3_sum / self.num_sampled if self.num_sampled else None,
            "max_abs_dlogp": self.max_abs_dlogp if self.num_sampled else None,
            "rows_exact": self.num_exact,
            "rows_sampled": self.num_sampled,
            "rows_nonfinite": self.num_nonfinite,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one experiment measured.

    Attributes:
        groups: Totals by group of rows: `all`, `phase=...`, `modality=...`. k3 of `all` is over
            tokens sampled from A where there are any.
    """

    groups: Mapping[str, Totals]

    @property
    def kl(self) -> float:
        """KL(A || B) per token: exact where A has logits, else k3.

        Infinite when B has a row that is not finite where A's is; NaN without any row.
        """
        total = self.groups["all"]
        if total.num_nonfinite:
            return math.inf
        if total.num_exact:
            return total.kl_sum / total.num_exact
        return total.k3_sum / total.num_sampled if total.num_sampled else math.nan

    @property
    def estimator(self) -> str:
        """`exact` or `k3`."""
        return "exact" if self.groups["all"].num_exact else "k3"

    def to_json(self) -> dict[str, Any]:
        """The numbers of all rows, and by phase and modality."""
        groups = {name: totals.to_json() for name, totals in self.groups.items()}
        by = {
            kind: {n.split("=", 1)[1]: g for n, g in groups.items() if n.startswith(f"{kind}=")}
            for kind in ("phase", "modality")
        }
        return {
            "estimator": self.estimator,
            **groups["all"],
            **{f"by_{k}": v for k, v in by.items()},
        }


class Bench:
    """A comparison and its trainer, ready for experiments.

    Attributes:
        modules: Every module that can be swapped, in execution order.
        num_sequences, num_rows: How much takes part.
        num_passes: Forward passes over the tokens that measured something.
        num_local_passes: Forward passes that computed what B makes of A's inputs.
        left_out: Request name to the reason why it takes no part.
    """

    def __init__(
        self,
        comparison: Comparison,
        parts: ModelParts,
        *,
        max_tokens: int | None = None,
        max_rows: int | None = None,
        include: str | None = None,
    ) -> None:
        self.comparison, self.parts = comparison, parts
        self.source = rollout_source(comparison)
        self._hidden = unreachable(parts)
        self.modules = find_modules(parts, self.is_there)
        self.num_passes = self.num_local_passes = 0
        found = find_sequences(comparison)
        whole = _whole(found, self.source)
        lengths = {n: len(r) for n, r in zip(found.names, found.rows, strict=True)}
        names = _spread({name: lengths[name] for name in whole}, max_rows, include)
        self.left_out = {
            **found.skipped,
            **{
                n: "A did not compute all its rows (prefix cache)"
                for n in found.names
                if n not in set(whole)
            },
        }
        if not names:
            raise UsageError(
                "there is no sequence to experiment on",
                where=comparison.directory,
                expected="at least one request of which side A computed every row",
                got="; ".join(f"{n}: {r}" for n, r in list(self.left_out.items())[:3]) or "none",
                do="record the rollout with prefix caching off",
            )
        self._max_tokens = max_tokens or self._token_limit()
        self._sequences, self._names = found, frozenset(names)
        self.num_sequences, self.num_rows = len(names), sum(lengths[name] for name in names)
        self._groups = _RowGroups(comparison)
        self._cache: dict[tuple[str, ...], LocalValues] = {}
        self._cached_bytes = 0

    def is_there(self, layer: int | None, site: str) -> bool:
        """Whether A recorded a site and B's forward shows it."""
        reachable = layer is None or (layer, site) not in self._hidden
        return reachable and self.source.has(layer, site)

    def _token_limit(self) -> int:
        """So many tokens that what a batch keeps stays within bounds."""
        width = sum(
            int(np.prod(info.shape)) * 4
            for info in self.comparison.capture("a").manifest.sites.values()
        )
        vocab = int(getattr(self.parts.config, "vocab_size", 1))
        return max(64, min(4096, MAX_LOCAL_BYTES // max(1, width + 16 * vocab)))

    def run(self, swaps: Sequence[Swap], say: Callable[[str], None] | None = None) -> list[Outcome]:
        """Every experiment over all tokens; one pass each."""
        totals: list[dict[str, Totals]] = [{} for _ in swaps]
        for batch in self._each_batch():
            local = self._local(batch) if any(swap.modules for swap in swaps) else None
            for swap, sums in zip(swaps, totals, strict=True):
                if say is not None:
                    say(f"swapping {swap.name}")
                logits_BSV = self._forward(batch, swap, local)
                shift = self._head_shift(batch, swap, local)
                self._groups.add(sums, batch, self.source, logits_BSV, shift)
        self.num_passes += len(swaps)
        return [Outcome(groups=sums) for sums in totals]

    def local_differences(self) -> dict[Place, int]:
        """Rows at which B's module, given A's inputs, does not make what A made; by place."""
        found: dict[Place, int] = {}
        for batch in self._each_batch():
            for place, count in self._local(batch).differing.items():
                found[place] = found.get(place, 0) + count
        return found

    def _each_batch(self) -> Iterator[Batch]:
        """The batches of this bench; the source stands at each in turn."""
        for batch in self._sequences.batches(max_tokens=self._max_tokens, only=self._names):
            self.source.use(batch)
            yield batch

    def _local(self, batch: Batch) -> LocalValues:
        found = self._cache.get(batch.requests)
        if found is None:
            found = local_values(self.parts, batch, self.source)
            self.num_local_passes += 1
            if self._cached_bytes + found.num_bytes <= CACHE_BYTES:
                self._cache[batch.requests] = found
                self._cached_bytes += found.num_bytes
        return found

    def _forward(self, batch: Batch, swap: Swap, local: LocalValues | None) -> torch.Tensor:
        visitor = _Both(swap, local, self.source)
        with ExitStack() as stack:
            for setup in swap.setups:
                stack.enter_context(setup(self.parts))
            stack.enter_context(intercept(self.parts, visitor))
            return replay(self.parts, batch)

    def _head_shift(self, batch: Batch, swap: Swap, local: LocalValues | None) -> np.ndarray | None:
        """Without A's logits the head is swapped by its log-probabilities: their local error."""
        if local is None or local.logits is None or LM_HEAD not in swap.modules:
            return None
        shift_N: np.ndarray = self._groups.logprob_a(batch) - _own_logprobs(local.logits, batch)
        return shift_N


class _Both:
    """Takes a swap's values from A, and moves what its modules make."""

    def __init__(self, swap: Swap, local: LocalValues | None, source: SideRows) -> None:
        self._plan, self._source = swap.values, source
        places = sites_of(swap.modules)
        self._transplant = None if local is None else Transplant(places, local, source)

    def visit(self, spot: Spot) -> torch.Tensor | None:
        if (spot.layer, spot.site) not in self._plan.places:
            return None if self._transplant is None else self._transplant.visit(spot)
        held = self._source.values(spot.layer, spot.site)
        if held is None:
            return None
        if spot.site == "topk_ids":
            return merge_choices(spot.tensor, held, slot_order=self._plan.slot_order)
        if spot.site == "topk_weights":
            return take_gates(spot, self._source, held)
        return merge(spot.tensor, held)


class _RowGroups:
    """Adds what a forward gave to the sums of every group that a row belongs to."""

    def __init__(self, comparison: Comparison) -> None:
        table = comparison.rows
        self._logprob_a_T = table["logprob_a"].cast(float).fill_null(math.nan).to_numpy()
        phase = table["phase"].cast(str).to_numpy()
        modality = table["modality"].cast(str).to_numpy()
        self._masks: dict[str, np.ndarray] = {}
        for name, values in (("phase", phase), ("modality", modality)):
            for value in sorted(set(values)):
                self._masks[f"{name}={value}"] = values == value
        known = np.isfinite(self._logprob_a_T)
        sampled = (phase == "generated") & known
        # Estimators of KL(A || B) hold on tokens sampled from A; elsewhere they only describe.
        self._sampled_T = sampled if sampled.any() else known

    def logprob_a(self, batch: Batch) -> np.ndarray:
        """A's log-probabilities by flat place, NaN where there is none."""
        rows_N = batch.rows_N
        found: np.ndarray = np.where(rows_N >= 0, self._logprob_a_T[rows_N], math.nan)
        return found

    def add(
        self,
        sums: dict[str, Totals],
        batch: Batch,
        source: SideRows,
        logits_BSV: torch.Tensor,
        shift_N: np.ndarray | None,
    ) -> None:
        logprob_N = _own_logprobs(logits_BSV, batch)
        if shift_N is not None:
            logprob_N = logprob_N + np.nan_to_num(shift_N)
        logprob_a_N = self.logprob_a(batch)
        terms = row_terms(logprob_a_N, logprob_N)
        scored_N = np.isfinite(logprob_a_N) & _has_previous(batch)
        kl_N = _exact_kl(logits_BSV, batch, source)
        rows_N = batch.rows_N
        inside_N = rows_N >= 0
        masks = {name: inside_N & mask_T[rows_N] for name, mask_T in self._masks.items()}
        masks["all"] = inside_N
        for name, mask_N in masks.items():
            total = sums.setdefault(name, Totals())
            exact_N = mask_N & np.isfinite(kl_N)
            total.num_exact += int(exact_N.sum())
            total.kl_sum += float(kl_N[exact_N].sum())
            known_N = mask_N & np.isfinite(terms.dlogp)
            broken_N = np.isinf(kl_N) | (scored_N & ~np.isfinite(terms.dlogp))
            total.num_nonfinite += int((mask_N & broken_N).sum())
            if known_N.any():
                largest = float(np.abs(terms.dlogp[known_N]).max())
                total.max_abs_dlogp = max(total.max_abs_dlogp, largest)
            if name == "all":
                known_N &= self._sampled_T[rows_N]
            total.num_sampled += int(known_N.sum())
            total.k3_sum += float(terms.k3[known_N].sum())


def _own_logprobs(logits_BSV: torch.Tensor, batch: Batch) -> np.ndarray:
    """Log-probability of every token given those before it, float64 (N,), NaN at position 0."""
    num_sequences, num_columns = batch.rows_BS.shape
    found_BS = np.full((num_sequences, num_columns), math.nan)
    ids_BS = batch.input_ids_BS.to(logits_BSV.device)
    for row in range(num_sequences):
        # In float32, as every capture's log-probabilities are.
        scored_SV = torch.log_softmax(logits_BSV[row, :-1].float(), dim=-1)
        found_BS[row, 1:] = scored_SV.gather(-1, ids_BS[row, 1:, None])[:, 0].cpu().numpy()
    found_BS[batch.rows_BS < 0] = math.nan
    return found_BS.reshape(-1)


def _has_previous(batch: Batch) -> np.ndarray:
    """Places that another token stands before, bool (N,)."""
    found_BS = np.zeros(batch.rows_BS.shape, np.bool_)
    found_BS[:, 1:] = batch.rows_BS[:, 1:] >= 0
    return found_BS.reshape(-1)


def _exact_kl(logits_BSV: torch.Tensor, batch: Batch, source: SideRows) -> np.ndarray:
    """KL(A || B) of the distribution that each row's token came from, (N,).

    NaN where A's is unknown, Inf where B excludes what A allows or is not finite.
    """
    kl_BS = np.full(batch.rows_BS.shape, math.nan)
    held = source.values(None, "logits")
    if held is None:
        return kl_BS.reshape(-1)
    num_columns = batch.rows_BS.shape[1]
    width = min(held.values_NX.shape[1], logits_BSV.shape[-1])
    own_NV = logits_BSV.reshape(-1, logits_BSV.shape[-1])
    has_next = np.zeros(batch.rows_BS.shape, np.bool_)
    has_next[:, :-1] = batch.rows_BS[:, 1:] >= 0
    places = np.flatnonzero(has_next.reshape(-1) & held.mask_N.numpy())
    found = np.full(kl_BS.size, math.nan)
    for part in np.array_split(places, max(1, len(places) * width // _BLOCK_VALUES)):
        index = torch.from_numpy(part)
        a_NV = torch.log_softmax(held.values_NX[index, :width].double(), dim=-1)
        b_NV = torch.log_softmax(own_NV[index.to(own_NV.device), :width].double().cpu(), dim=-1)
        p_NV = a_NV.exp()
        terms_NV = torch.where(p_NV == 0, torch.zeros_like(p_NV), p_NV * (a_NV - b_NV))
        total_N = terms_NV.sum(-1).clamp_min(0.0).nan_to_num(nan=math.inf)
        total_N[a_NV.isnan().any(-1)] = math.nan
        found[part] = total_N.numpy()
    kl_BS[:, 1:] = found.reshape(-1, num_columns)[:, :-1]
    return kl_BS.reshape(-1)


def _spread(lengths: Mapping[str, int], max_rows: int | None, include: str | None) -> list[str]:
    """Requests spread evenly over all of them, about `max_rows` rows, `include` among them."""
    names = list(lengths)
    total = sum(lengths.values())
    if max_rows is None or total <= max_rows or not names:
        return names
    count = max(1, int(len(names) * max_rows / total))
    picked = [names[int(place)] for place in np.linspace(0, len(names) - 1, count)]
    return picked if include not in lengths or include in picked else [*picked, str(include)]


def _whole(sequences: Sequences, source: SideRows) -> list[str]:
    """Requests of which A computed every row that a later one attends to."""
    return [
        name
        for name, rows in zip(sequences.names, sequences.rows, strict=True)
        if len(rows) < 2 or bool(source.has_rows(rows[:-1]).all())
    ]
