"""`kldive bisect modules`: the smallest set of modules that explains a divergence."""

from __future__ import annotations

import json

import click


@click.group(
    "bisect",
    epilog="Example: kldive bisect modules run/comparison --model sample_data/countdown-moe",
)
def command() -> None:
    """Find the smallest set of parts that explains a divergence."""


@command.command(
    "modules",
    epilog="Example: kldive bisect modules run/comparison --model sample_data/countdown-moe",
)
@click.argument("directory", type=click.Path())
@click.option(
    "--model",
    required=True,
    type=click.Path(),
    help="The trainer's model, loaded as side B ran it.",
)
@click.option(
    "--threshold",
    type=click.FloatRange(min=0),
    help="KL to come under, nats per token; the comparison's own gate when left out.",
)
@click.option(
    "--rows",
    type=click.IntRange(1),
    default=8192,
    show_default=True,
    help="Rows to measure on, about; whole requests spread over the comparison.",
)
@click.option("--fresh", is_flag=True, help="Leave out what an earlier search found.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def modules(
    directory: str, model: str, *, threshold: float | None, rows: int, fresh: bool, as_json: bool
) -> int:
    """Find the smallest set of modules whose swap brings the KL under a threshold.

    A swapped module computes as A's did; DIRECTORY is what `kldive compare` wrote. Every step is
    printed, and kept in DIRECTORY/bisect-modules.jsonl: an interrupted search goes on where it
    stopped. Exit code 0: the KL is under the threshold as it is, 1: it is not.
    """
    from workbench.attribution.experiments import bisect
    from workbench.comparison.result import open_comparison
    from workbench.errors import ExitCode
    from workbench.report.experiments import bisection_text

    found = bisect(
        open_comparison(directory),
        model,
        threshold=threshold,
        rows=rows,
        fresh=fresh,
        progress=lambda step: click.echo(f"bisect: {step}", err=True),
    ).to_json()
    click.echo(json.dumps(found, indent=1) if as_json else bisection_text(found))
    return ExitCode.EQUAL if found["state"] == "below" else ExitCode.DIVERGED
