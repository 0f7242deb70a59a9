"""Following two captures that are still written: compared again whenever both have grown.

Each comparison is written beside the one that is looked at, which stays usable meanwhile.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Final

from tui.follow import POLL_SECONDS, Pulse, Show
from tui.job import Progress
from workbench.comparison.result import Comparison
from workbench.comparison.run import compare
from workbench.errors import AlignmentError
from workbench.store import Manifest, read_manifest
from workbench.store.manifest import MANIFEST_NAME
from workbench.view.model import ViewModel
from workbench.view.numbers import count

_REST: Final = 2
"""A comparison that took a second is not made again before two have passed."""


class TwoCaptures:
    """Follows captures A (rollout) and B (trainer).

    Args:
        a, b: Their directories, which may not exist yet.
        workplace: Where comparisons are written, one after the other.
        tolerance: Name of the profile.
        pulse: Tells whether a recording goes on.
    """

    def __init__(
        self,
        a: str | os.PathLike[str],
        b: str | os.PathLike[str],
        *,
        workplace: Path,
        tolerance: str = "auto",
        pulse: Pulse | None = None,
    ) -> None:
        self._sides = (Path(a), Path(b))
        self._workplace, self._tolerance = workplace, tolerance
        self._compared: tuple[int, int] = (0, 0)
        self._made: list[Path] = []
        self._took = 0.0
        self._pulse = pulse or Pulse()
        self._latest: Comparison | None = None
        self.complete = False
        self.lacking = "both captures to appear"

    def look(self, progress: Progress) -> Comparison | None:
        """A comparison when both captures have grown, ended or stalled; None when nothing is new.

        Raises:
            AlignmentError: The tokens differ, or both have ended and cannot be compared.
            CaptureError: A capture cannot be read.
        """
        manifests = self._manifests()
        if manifests is None:
            return None
        sizes = (len(manifests[0].chunks), len(manifests[1].chunks))
        ended = all(manifest.complete for manifest in manifests)
        grew = all(now > before for now, before in zip(sizes, self._compared, strict=True))
        if not grew and not (ended and not self.complete):
            latest = self._latest
            return latest if latest is not None and self._describe(latest, manifests) else None
        started = time.monotonic()
        comparison = self._compare(progress, ended=ended)
        self._took = time.monotonic() - started
        if comparison is not None:
            self._compared, self.complete, self._latest = sizes, ended, comparison
            if not ended:
                self._describe(comparison, manifests)
        return comparison

    def _describe(self, comparison: Comparison, manifests: tuple[Manifest, Manifest]) -> bool:
        """Says in the summary that this is not the last word; True when that is news."""
        sides, ages = [], []
        for name, manifest, directory in zip("AB", manifests, self._sides, strict=True):
            ended = ", ended" if manifest.complete else ""
            sides.append(f"{name} {count(manifest.num_rows)} rows{ended}")
            if not manifest.complete:
                ages.append((directory / MANIFEST_NAME).stat().st_mtime)
        # The one that lags is the one to wait for.
        status, going = self._pulse.going(min(ages, default=0.0))
        words = " · ".join([*sides, f"{count(comparison.num_rows)} compared", going])
        news: bool = words != comparison.summary["verdict"]
        comparison.summary.update(status=status, verdict=words, reason="")
        return news

    def _manifests(self) -> tuple[Manifest, Manifest] | None:
        """Both manifests, once there are chunks in both."""
        for name, directory in zip("AB", self._sides, strict=True):
            if not (directory / MANIFEST_NAME).exists():
                self.lacking = f"{name} to appear"
                return None
        a, b = map(read_manifest, self._sides)
        for name, manifest in (("A", a), ("B", b)):
            if not manifest.chunks:
                self.lacking = f"the first chunk of {name}"
                return None
        return a, b

    def _compare(self, progress: Progress, *, ended: bool) -> Comparison | None:
        out = self._workplace / f"comparison-{len(self._made)}"
        try:
            comparison = compare(
                *self._sides,
                out=out,
                tolerance=self._tolerance,
                tick=lambda _done: progress.check(),
            )
        except AlignmentError as error:
            if ended or error.mismatch is not None:
                raise
            # One side is behind: rows in common may still come.
            self.lacking = f"rows of both sides ({error.what})"
            return None
        self._made.append(out)
        # The latest two stay: one of them is on the screen.
        for old in self._made[:-2]:
            shutil.rmtree(old, ignore_errors=True)
        return comparison

    def wait(self, progress: Progress) -> Comparison:
        """Waits for the first comparison."""
        while (comparison := self.look(progress)) is None:
            progress(f"waiting for {self.lacking}", None)
            progress.wait(POLL_SECONDS)
        return comparison

    def follow(self, progress: Progress, show: Show) -> None:
        """Passes on every new comparison until both captures have ended."""
        while not self.complete:
            progress.wait(max(POLL_SECONDS, _REST * self._took))
            comparison = self.look(progress)
            if comparison is not None:
                show(ViewModel(comparison))
