"""Talk on stderr: a line per stage with the time it took, and a spinner where a person watches."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable


@contextmanager
def stages(title: str) -> Iterator[Callable[[str], None]]:
    """Gives `say(stage)`: each call ends the stage before and begins a new one.

    On a terminal the running stage spins and a finished one leaves a line with its seconds;
    elsewhere every stage is one plain line when it begins.
    """
    started = time.perf_counter()
    if not sys.stderr.isatty():
        yield lambda stage: click.echo(
            f"{title}: {stage}  [{time.perf_counter() - started:.1f} s]", err=True
        )
        return
    # Imported here: commands that finish at once should not pay for it.
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    current: list[tuple[str, float]] = []

    def finish_stage() -> None:
        if current:
            stage, begun = current.pop()
            seconds = time.perf_counter() - begun
            console.print(f"  [green]✓[/] {title}: {stage} [dim]{seconds:.1f} s[/]")

    with console.status(f"{title} …") as status:

        def say(stage: str) -> None:
            finish_stage()
            current.append((stage, time.perf_counter()))
            status.update(f"{title}: {stage} …")

        yield say
        finish_stage()
