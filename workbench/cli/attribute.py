"""`kldive attribute`: which module is wrong, which side is, and why experts flipped."""

from __future__ import annotations

import json

import click

from workbench.cli.talk import stages


@click.command(
    "attribute",
    epilog="Example: kldive attribute run/comparison --model sample_data/countdown-moe",
)
@click.argument("directory", type=click.Path())
@click.option(
    "--model",
    required=True,
    type=click.Path(),
    help="The trainer's model, loaded as side B ran it.",
)
@click.option("--no-swaps", is_flag=True, help="Leave the swap experiments and the proof out.")
@click.option(
    "--engine",
    is_flag=True,
    help="Also put the trainer's MoE module into the live rollout engine, and score again.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def command(directory: str, model: str, *, no_swaps: bool, engine: bool, as_json: bool) -> int:
    """Run every module of the trainer on the rollout's captured inputs, and say which one is wrong.

    DIRECTORY is what `kldive compare` wrote; the findings are added to it. A float64 copy of the
    model is the arbiter between the sides. Exit code 0: no module is beyond its rounding budget,
    1: at least one is.
    """
    from workbench.attribution.run import attribute
    from workbench.comparison.result import open_comparison
    from workbench.errors import ExitCode
    from workbench.report.text import show

    with stages("attribute") as say:
        comparison = attribute(directory, model, swaps=not no_swaps, progress=say)
        if engine:
            from workbench.attribution.engine import swap_reference_moe

            swap_reference_moe(comparison, model, progress=say)
            comparison = open_comparison(directory)
    click.echo(json.dumps(comparison.summary, indent=1) if as_json else show(comparison))
    found = comparison.summary["first"]["local_error"]
    return ExitCode.EQUAL if found is None else ExitCode.DIVERGED
