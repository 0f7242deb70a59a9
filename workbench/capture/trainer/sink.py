"""Holds the tensors of the forward call that is being recorded; copies them, drops padding.

The invariant: what leaves has exactly the call's real rows in batch order; a tensor without the
call's rows is refused with the reason, never cut to fit.

Axis legend: T real row of the call, X row of the padded call.
"""

from __future__ import annotations

import numpy as np
import torch

from workbench.capture.arrays import to_numpy
from workbench.names import SITE_BY_NAME, split_site


class CallSink:
    """Takes tensors from taps between `open` and `close`, the first of every site.

    Attributes:
        derived: Sites that were computed from other tensors.
        refused: Sites whose tensors do not have the call's rows, with the reason.
    """

    def __init__(self, hidden_size: int) -> None:
        self.derived: set[str] = set()
        self.refused: dict[str, str] = {}
        self._hidden_size = hidden_size
        self._arrays: dict[str, np.ndarray] = {}
        self._num_padded_rows = 0
        self._rows_T: torch.Tensor | None = None
        self._is_open = False

    @property
    def is_open(self) -> bool:
        """Whether a forward that is to be recorded is running.

        Outside of one, hooks stay silent: gradient checkpointing runs layers again in the backward
        pass, and anyone may call a part of the model alone.
        """
        return self._is_open

    def open(self, num_padded_rows: int, rows_T: np.ndarray) -> None:
        """Starts a call of `num_padded_rows` rows, of which `rows_T` are real."""
        self._arrays = {}
        self._num_padded_rows = num_padded_rows
        self._rows_T = torch.from_numpy(rows_T) if len(rows_T) < num_padded_rows else None
        self._is_open = True

    def holds(self, site: str) -> bool:
        """Whether the site was seen in this call."""
        return site in self._arrays or site in self.refused

    def record(self, site: str, tensor: torch.Tensor, *, derived: bool = False) -> None:
        """Copies a site's real rows to the host; the first of a site in a call counts."""
        if self.holds(site):
            return
        problem = self._problem(site, tensor)
        if problem:
            self.refused[site] = problem
            return
        flat_XD = tensor.detach().reshape(self._num_padded_rows, tensor.shape[-1])
        if self._rows_T is None:
            rows_TD = flat_XD.clone() if flat_XD.device.type == "cpu" else flat_XD
        else:
            rows_TD = flat_XD[self._rows_T.to(flat_XD.device)]
        self._arrays[site] = to_numpy(rows_TD)
        if derived:
            self.derived.add(site)

    def close(self) -> dict[str, np.ndarray]:
        """Ends the call and gives its arrays by site."""
        self._is_open = False
        arrays, self._arrays = self._arrays, {}
        return arrays

    def _problem(self, site: str, tensor: torch.Tensor) -> str | None:
        width = tensor.shape[-1] if tensor.dim() else 0
        is_hidden = SITE_BY_NAME[split_site(site)[1]].axis == "hidden"
        if is_hidden and width != self._hidden_size:
            return f"its vectors are {width} wide, the residual stream {self._hidden_size}"
        if tensor.numel() != self._num_padded_rows * width or width == 0:
            return f"shape {list(tensor.shape)} for {self._num_padded_rows} rows"
        return None
