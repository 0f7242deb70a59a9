"""`kldive show`: the finding of a comparison on one screen."""

from __future__ import annotations

import json

import click


@click.command("show", epilog="Example: kldive show run/comparison")
@click.argument("directory", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def command(directory: str, *, as_json: bool) -> int:
    """Report a comparison for people: status, numbers, first divergences, both sides' top-k there.

    DIRECTORY is what `kldive compare` or `kldive demo` wrote.
    """
    from workbench.cli.outcome import exit_code_of
    from workbench.comparison.newer import with_notes
    from workbench.comparison.result import open_comparison
    from workbench.report.text import show

    comparison = open_comparison(directory)
    summary = with_notes(comparison.summary)
    click.echo(json.dumps(summary, indent=1) if as_json else show(comparison))
    return exit_code_of(comparison.summary)
