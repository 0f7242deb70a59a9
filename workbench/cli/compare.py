"""`kldive compare`: align two captures, measure, write a comparison directory."""

from __future__ import annotations

import json

import click

from workbench.cli.talk import stages


@click.command(
    "compare",
    epilog="Example: kldive compare run/rollout run/trainer -o run/comparison",
)
@click.argument("a", type=click.Path())
@click.argument("b", type=click.Path())
@click.option("-o", "--out", required=True, type=click.Path(), help="Directory to write.")
@click.option(
    "--tolerance",
    default="auto",
    show_default=True,
    help="Profile: auto, bitwise, fp32, bf16, fp16 or fp8.",
)
@click.option(
    "--common-prefix",
    is_flag=True,
    help="Where the tokens of a request part, compare the rows before that.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def command(a: str, b: str, out: str, tolerance: str, *, common_prefix: bool, as_json: bool) -> int:
    """Align captures A (rollout) and B (trainer) row by row and measure how they differ.

    Token ids must match at every row, otherwise nothing is compared, or with --common-prefix what
    comes before. Exit code 0: equal within tolerance, 1: diverged, 3: not comparable.
    """
    from workbench.cli.outcome import exit_code_of
    from workbench.comparison.run import compare
    from workbench.report.text import show

    with stages("compare") as say:
        comparison = compare(
            a, b, out=out, tolerance=tolerance, common_prefix=common_prefix, progress=say
        )
    click.echo(json.dumps(comparison.summary, indent=1) if as_json else show(comparison))
    return exit_code_of(comparison.summary)
