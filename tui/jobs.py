"""The jobs that can be opened: a comparison, two captures compared now, captures that still grow.

Everything heavy is imported inside the work, in its thread, after the first frame.
"""

from __future__ import annotations

import gc
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tui import subject
from tui.job import Job, Made, Offer, Progress
from workbench.address import Address
from workbench.errors import AlignmentError
from workbench.view.link import Link

if TYPE_CHECKING:
    from tui.background import Follow
    from workbench.view.model import ViewModel
    from workbench.view.source import Source


def open_job(
    directory: str | os.PathLike[str], at: Address | None = None, *, link: Link | None = None
) -> Job:
    """Opening a comparison.

    Args:
        directory: Where it lies.
        at: Where to put the cursor; the first divergence when None.
        link: What to show of it.
    """

    def work(progress: Progress) -> Made:
        progress("loading the readers", 0.05)
        from workbench.comparison.result import open_comparison

        progress("reading rows", 0.35)
        comparison = open_comparison(directory)
        from workbench.view.salvage import salvaged

        return _workbench(salvaged(comparison), at, progress, since=0.5, link=link)

    return Job(subject=subject.of_comparison(directory), work=work)


def compare_job(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    *,
    out: Path,
    tolerance: str = "auto",
    common_prefix: bool = False,
    at: Address | None = None,
    link: Link | None = None,
) -> Job:
    """Comparing two captures, then opening the comparison.

    Where their tokens part, the job fails, and offers to compare what comes before.

    Args:
        a: Capture A (rollout).
        b: Capture B (trainer).
        out: Where the comparison is written.
        tolerance: Name of the profile.
        common_prefix: Where the tokens of a request part, compare the rows before that.
        at: Where to put the cursor; the first divergence when None.
        link: What to show of it, and where a comparison that does not stay is opened again.
    """

    def work(progress: Progress) -> Made:
        progress("loading the readers", 0.02)
        from workbench.comparison.run import compare

        base, span = 0.1, 0.75
        progress("opening both captures", base)

        def say(name: str) -> None:
            progress(name, progress.step.done)

        def tick(done: float) -> None:
            progress(progress.step.name, base + span * done)

        comparison = compare(
            a,
            b,
            out=out,
            tolerance=tolerance,
            common_prefix=common_prefix,
            progress=say,
            tick=tick,
        )
        return _workbench(comparison, at, progress, since=base + span, link=link)

    def otherwise(error: Exception) -> Offer | None:
        if not isinstance(error, AlignmentError) or not error.num_before:
            return None
        rows = "row" if error.num_before == 1 else "rows"
        before = compare_job(
            a, b, out=out, tolerance=tolerance, common_prefix=True, at=at, link=link
        )
        return Offer(f"compares the {error.num_before:,} {rows} before that", before)

    about = subject.of_captures("comparing two captures", a, b)
    return Job(subject=about, work=work, otherwise=otherwise)


def live_job(directory: str | os.PathLike[str], at: Address | None = None) -> Job:
    """Following a capture that may still be written, from its first chunk on.

    Args:
        directory: May not exist yet.
        at: Where to put the cursor; the last row, which follows the recording, when None.
    """

    def work(progress: Progress) -> Made:
        progress("loading the readers", 0.0)
        from tui.follow import OneCapture
        from workbench.view.growing import GrowingCapture
        from workbench.view.model import ViewModel

        capture = OneCapture(GrowingCapture(directory))
        model = ViewModel(capture.wait(progress), at=at)
        if at is None:
            model.act("token.last")
        return _made(model, capture.follow)

    return Job(subject=subject.of_captures("following a recording", directory), work=work)


def live_pair_job(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    *,
    workplace: Path,
    tolerance: str = "auto",
    at: Address | None = None,
) -> Job:
    """Comparing two captures that may still be written, again whenever both have grown.

    Args:
        a: Capture A (rollout); may not exist yet.
        b: Capture B (trainer).
        workplace: Where comparisons are written.
        tolerance: Name of the profile.
        at: Where to put the cursor; the first divergence when None.
    """

    def work(progress: Progress) -> Made:
        progress("loading the readers", 0.0)
        from tui.follow_pair import TwoCaptures
        from workbench.view.model import ViewModel

        captures = TwoCaptures(a, b, workplace=workplace, tolerance=tolerance)
        comparison = captures.wait(progress)
        return _made(ViewModel(comparison, at=at), captures.follow)

    return Job(subject=subject.of_captures("following two recordings", a, b), work=work)


def _workbench(
    source: Source,
    at: Address | None,
    progress: Progress,
    *,
    since: float,
    link: Link | None = None,
) -> Made:
    """Builds the view-model of a source, and what makes its screen."""
    progress("finding the first divergence", since)
    from workbench.view.model import ViewModel

    model = ViewModel(source, at=at)
    if link is not None:
        _show(link, model)
    progress("drawing", 0.9)
    # What the first picture needs is made here, so that the screen has it at once.
    model.codes()
    model.count_in_layer(0, 0, 0)
    made = _made(model)
    # What was built stays as long as the workbench: no key should wait while it is searched for
    # garbage.
    gc.freeze()
    progress("drawing", 1.0)
    return made


def _show(link: Link, model: ViewModel) -> None:
    """Shows what a link says, as if the workbench had been opened so."""
    if not link.directory:
        model.origin = Link(a=link.a, b=link.b)
    model.open_link(link)
    model.state = replace(model.state, past=(), message="")


def _made(model: ViewModel, follow: Follow | None = None) -> Made:
    from tui.app import Workbench
    from workbench.view.keymap import load_keymap

    keymap = load_keymap()
    return Made(model, lambda: Workbench(model, keymap, follow=follow))
