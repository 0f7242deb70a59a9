"""Swaps, routing ladder and proof as plain values: what the KL is without each module.

Reads the summary alone. Shares are of the live KL, the one with nothing swapped; a share below 0
means that the swap made the KL larger.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from workbench.comparison.columns import LOCAL_SITES
from workbench.view.source import Source

Place = tuple[int | None, str]
LEAST: Final = 0.01
"""Share of the live KL below which a swap is not worth a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapCell:
    """One module of the map.

    Attributes:
        removed: KL removed by its swap alone, nats per token.
        left: KL left when everything but it is swapped.
        differs: Whether it makes anything else of A's inputs than A did; swapping the others is
            not worth a run.
    """

    removed: float | None
    left: float | None
    differs: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapMap:
    """Modules swapped one by one.

    Attributes:
        live: KL with nothing swapped; `everything` with all swapped.
        rows: Rows it was measured on.
        cells: By layer (None for the whole model) and module, in execution order.
    """

    live: float
    everything: float
    rows: int
    cells: Mapping[Place, SwapCell]

    @property
    def modules(self) -> list[str]:
        """Modules of layers that differ in any of them, in execution order."""
        cells = self.cells.items()
        differ = {m for (layer, m), cell in cells if layer is not None and cell.differs}
        return [m for m in self._of_layers() if m in differ]

    @property
    def equal_modules(self) -> list[str]:
        """Modules of layers that are equal bit for bit in all of them."""
        differ = self.modules
        return [m for m in self._of_layers() if m not in differ]

    def _of_layers(self) -> list[str]:
        present = {module for layer, module in self.cells if layer is not None}
        return [module for module in LOCAL_SITES if module in present]

    @property
    def layers(self) -> list[int]:
        """Layers that have a module."""
        return sorted({layer for layer, _ in self.cells if layer is not None})

    def share(self, value: float | None) -> float | None:
        """A KL as a share of the live one; None where there is no live one."""
        return None if value is None or not self.live > 0 else value / self.live

    def ranked(self) -> list[tuple[Place, SwapCell]]:
        """Modules that matter, the one that leaves most when it alone is not swapped first.

        To matter is to remove or leave at least a hundredth of the live KL.
        """
        found = [(place, cell) for place, cell in self.cells.items() if self._matters(cell)]
        return sorted(found, key=lambda pair: -(pair[1].left or 0.0))

    def _matters(self, cell: SwapCell) -> bool:
        shares = (self.share(cell.removed), self.share(cell.left))
        return cell.differs and any(abs(share) >= LEAST for share in shares if share is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One step of the routing ladder; `kl` is None where `reason` says that it cannot be run."""

    name: str
    about: str
    kl: float | None
    left: float | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSwap:
    """B again with a part of A: its values as captured, or its arithmetic on B's own inputs."""

    name: str
    of_values: bool
    before: float | None
    after: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiments:
    """Everything that re-runs of the trainer showed.

    Attributes:
        state: `proved`, `suspected` or `none`; `text` says it in a sentence.
        map, rungs, swaps: Empty where they were not run.
        rows: Rows that ladder, proof and swaps were measured on.
    """

    state: str
    text: str
    map: SwapMap | None
    rungs: tuple[Rung, ...]
    swaps: tuple[NamedSwap, ...]
    rows: int


def experiments(source: Source) -> Experiments | None:
    """The experiments of a comparison, or None when none was run."""
    summary = source.summary
    proof, found = summary.get("proof"), summary.get("swap_map")
    rungs, swaps = summary.get("ladder") or (), summary.get("swaps") or ()
    if not (proof or found or rungs or swaps):
        return None
    return Experiments(
        state=str((proof or {}).get("state") or ""),
        text=str((proof or {}).get("text") or "").replace("_", " "),
        map=_map(found) if found and found.get("kl_before") is not None else None,
        rungs=tuple(_rung(rung) for rung in rungs),
        swaps=tuple(
            NamedSwap(
                name=str(swap["name"]),
                of_values=swap["kind"] == "values",
                before=swap["kl_before"],
                after=swap["kl_after"],
            )
            for swap in swaps
        ),
        rows=int((summary.get("experiments") or {}).get("rows") or 0),
    )


def _map(found: Mapping[str, Any]) -> SwapMap:
    return SwapMap(
        live=float(found["kl_before"]),
        everything=float(found["kl_everything"] or 0.0),
        rows=int(found["rows"]),
        cells={
            (cell["layer"], str(cell["module"])): SwapCell(
                removed=cell["kl_removed"],
                left=cell["kl_without"],
                differs=cell["differing_rows"] != 0,
            )
            for cell in found["cells"]
        },
    )


def _rung(found: Mapping[str, Any]) -> Rung:
    return Rung(
        name=str(found["rung"]),
        about=str(found["about"]),
        kl=found.get("kl"),
        left=found.get("left"),
        reason=str(found["reason"] or ""),
    )
