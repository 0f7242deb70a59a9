"""`kldive tui`: the terminal workbench; the plain report where there is no terminal."""

from __future__ import annotations

import sys

import click

from workbench.address import parse_address


@click.command("tui", epilog="Example: kldive tui run/comparison --at 'L2 t14'")
@click.argument("directory", type=click.Path())
@click.option("--at", help="Cell to open at, such as 'L12 t4096'; default: the first divergence.")
def command(directory: str, at: str | None) -> int:
    """Step through a comparison layer by layer and token by token."""
    address = None if at is None else parse_address(at)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        from workbench.comparison.result import open_comparison
        from workbench.report.text import show

        comparison = open_comparison(directory)
        click.echo("kldive tui: not a terminal, so here is the report instead", err=True)
        click.echo(show(comparison))
        return 0
    from tui.run import run_tui

    return run_tui(directory, at=address)
