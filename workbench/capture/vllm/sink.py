"""Holds the tensors of the engine step that is being recorded. Owns copying and row trimming.

The invariant: what leaves has exactly the step's kept rows, and the same sites in every step; a
hook that stayed silent (compiled or graph mode) is an error, never a gap.

Axis legend: T row the engine fed (padding may follow), N row that is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from workbench.capture.arrays import to_numpy
from workbench.errors import RecordingError
from workbench.names import split_site


class StepSink:
    """Takes tensors from taps between `open` and `close`.

    Args:
        wants: Whether a site, by short name, is to be recorded.

    Attributes:
        derived: Sites that were computed from other sites.
    """

    def __init__(self, wants: Callable[[str], bool]) -> None:
        self.derived: set[str] = set()
        self.sites: frozenset[str] | None = None
        self._wants = wants
        self._tensors: dict[str, torch.Tensor | None] = {}
        self._num_rows = 0
        self._is_open = False
        self._fault: Exception | None = None

    @property
    def is_open(self) -> bool:
        """Whether a real step that has rows to keep is running."""
        return self._is_open

    def open(self, num_rows: int) -> None:
        """Starts a step that feeds `num_rows` rows, padding not counted."""
        self._tensors.clear()
        self._num_rows = num_rows
        self._fault = None
        self._is_open = True

    def run(self, call: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        """Runs what a hook wants to do, while a step is open.

        A fault is kept for `close`: raised here, it would end the engine's own forward pass.
        """
        if not self._is_open:
            return
        try:
            call(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - whatever it is, the engine must go on
            self._fault = self._fault or error

    def holds(self, site: str) -> bool:
        """Whether the site was seen in this step."""
        return site in self._tensors

    def record(self, site: str, tensor: torch.Tensor, *, derived: bool = False) -> None:
        """Copies a site's rows.

        Raises:
            RecordingError: The site was seen before in this step, or has too few rows.
        """
        if site in self._tensors:
            raise RecordingError(
                "a module ran twice in one engine step",
                where=site,
                do="record without micro-batches (dual batch overlap) and speculative decoding",
            )
        if not self._wants(split_site(site)[1]):
            self._tensors[site] = None
            return
        if tensor.dim() == 3 and tensor.shape[0] == 1:
            tensor = tensor[0]
        if tensor.dim() != 2 or tensor.shape[0] < self._num_rows:
            raise RecordingError(
                "a site does not have the rows that the engine scheduled",
                where=site,
                expected=f"{self._num_rows} rows",
                got=f"a tensor of shape {list(tensor.shape)}",
                do="record without sequence parallelism",
            )
        self._tensors[site] = tensor[: self._num_rows].detach().clone()
        if derived:
            self.derived.add(site)

    def close(self, keep_N: np.ndarray) -> dict[str, np.ndarray]:
        """Ends the step and gives the kept rows of every wanted site.

        Raises:
            RecordingError: Nothing was seen, or other sites than in the steps before.
            Exception: The first fault of a hook.
        """
        self._is_open = False
        if self._fault is not None:
            raise self._fault
        self._check_sites(frozenset(self._tensors))
        index = None if len(keep_N) == self._num_rows else torch.from_numpy(keep_N)
        arrays = {}
        for site, tensor in self._tensors.items():
            if tensor is not None:
                rows = tensor if index is None else tensor[index.to(tensor.device)]
                arrays[site] = to_numpy(rows)
        self._tensors.clear()
        return arrays

    def discard(self) -> None:
        """Ends the step without keeping anything."""
        self._is_open = False
        self._tensors.clear()

    def _check_sites(self, seen: frozenset[str]) -> None:
        if not any(site.startswith("layers.") for site in seen):
            raise RecordingError(
                "the model ran and no hook fired: it runs compiled or from captured graphs",
                expected="eager execution",
                do="record with enforce_eager=True (--enforce-eager)",
            )
        if self.sites is None:
            self.sites = seen
        if seen != self.sites:
            odd = sorted(seen ^ self.sites)
            raise RecordingError(
                "hooks fired for other sites than in the steps before",
                where=", ".join(odd[:4]),
                expected=f"{len(self.sites)} sites in every step",
                got=f"{len(seen)} sites",
                do="record with enforce_eager=True, without graphs",
            )
