"""`kldive demo`: record both paths of the bundled model, compare, attribute, open the workbench.

Each path runs as the command a person would type, in a process of its own: the workbench that opens
afterwards carries no engine, and every step can be repeated by hand.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

from workbench.cli.sample import Sample, bundled_sample
from workbench.cli.talk import stages
from workbench.errors import ExitCode, KldiveError, UsageError

PARTS: Final = ("rollout", "trainer", "comparison")


@click.command("demo", epilog="Example: kldive demo --headless --json -o demo")
@click.option(
    "-o", "--out", default="demo", show_default=True, type=click.Path(), help="Directory."
)
@click.option("--headless", is_flag=True, help="Print the report instead of opening the workbench.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the summary as JSON (with --headless)."
)
@click.option(
    "--dtype",
    type=click.Choice(["bfloat16", "float32"]),
    default="bfloat16",
    show_default=True,
    help="Element type of both paths; float32 shows that only rounding is left.",
)
@click.option("--recorded", is_flag=True, help="Use the recorded rollout even where vLLM is here.")
def command(out: str, dtype: str, *, headless: bool, as_json: bool, recorded: bool) -> int:
    """Record a real vLLM rollout and a real transformers forward of the same tokens, and compare.

    The modules of the trainer are then run on the rollout's own inputs, to say which is to blame.
    Leaves OUT/rollout, OUT/trainer and OUT/comparison. Exit code 0 whenever the story ran; the
    status is in the report.
    """
    from workbench.comparison.result import open_comparison

    sample, directory = bundled_sample(), Path(out)
    _make_room(directory)
    _record_rollout(sample, directory / "rollout", dtype, recorded=recorded)
    _record_trainer(sample, directory, dtype)
    _compare(directory)
    _attribute(sample, directory)
    comparison = open_comparison(directory / "comparison")
    if as_json:
        click.echo(json.dumps(comparison.summary, indent=1))
    elif headless or not (sys.stdin.isatty() and sys.stdout.isatty()):
        from workbench.report.text import show

        click.echo(show(comparison))
    else:
        from tui.run import run_tui

        return run_tui(directory / "comparison", at=None)
    return 0


def _make_room(directory: Path) -> None:
    if not directory.exists():
        return
    entries = {entry.name for entry in directory.iterdir()} if directory.is_dir() else {""}
    if not entries <= set(PARTS):
        raise UsageError(
            "will not run the demo over something else",
            where=directory,
            expected=f"a new directory, or one of an earlier demo ({', '.join(PARTS)})",
            got=", ".join(sorted(entries - set(PARTS))[:5]) or "a file",
            do="choose another directory with -o",
        )
    for name in entries:
        shutil.rmtree(directory / name)


def _record_rollout(sample: Sample, out: Path, dtype: str, *, recorded: bool) -> None:
    if not recorded and find_spec("vllm") is not None:
        options = ["--prompts", str(sample.prompts), "--temperature", "1.0", "--logits"]
        options += ["--max-tokens", "64", "--max-model-len", "256", "--dtype", dtype]
        _kldive("capture", "rollout", str(sample.model), *options, "-o", str(out))
        return
    why = "as asked" if recorded else "vLLM is not installed here"
    click.echo(f"demo: {why}: using the recorded rollout (bfloat16)", err=True)
    shutil.copytree(sample.recorded / "rollout", out)


def _record_trainer(sample: Sample, directory: Path, dtype: str) -> None:
    out = directory / "trainer"
    if _can_run_the_trainer():
        options = ["--like", str(directory / "rollout"), "--dtype", dtype, "--logits"]
        _kldive("capture", "trainer", str(sample.model), *options, "-o", str(out))
        return
    click.echo("demo: transformers is not installed here: using the recorded trainer", err=True)
    shutil.copytree(sample.recorded / "trainer", out)
    # Only the recorded pair holds the same tokens.
    shutil.rmtree(directory / "rollout")
    shutil.copytree(sample.recorded / "rollout", directory / "rollout")


def _can_run_the_trainer() -> bool:
    return find_spec("torch") is not None and find_spec("transformers") is not None


def _kldive(*args: str, may_end_with: Sequence[int] = (ExitCode.EQUAL,)) -> None:
    click.echo(f"$ kldive {shlex.join(args)}", err=True)
    ended = subprocess.run(
        [sys.executable, "-m", "workbench", *args], stdout=subprocess.DEVNULL, check=False
    )
    if ended.returncode not in may_end_with:
        raise StepFailedError(args, ended.returncode)


class StepFailedError(KldiveError):
    """A command that the demo ran ended with an error of its own."""

    def __init__(self, args: tuple[str, ...], returncode: int) -> None:
        super().__init__(
            "a step of the demo failed; its own message is above",
            where=f"kldive {shlex.join(args)}",
            got=f"exit code {returncode}",
            do="kldive doctor",
        )


def _compare(directory: Path) -> None:
    from workbench.comparison.run import compare

    a, b, out = (directory / name for name in PARTS)
    click.echo(f"$ kldive compare {a} {b} -o {out}", err=True)
    with stages("compare") as say:
        compare(a, b, out=out, progress=say)


def _attribute(sample: Sample, directory: Path) -> None:
    if not _can_run_the_trainer():
        return
    found = (ExitCode.EQUAL, ExitCode.DIVERGED)
    out = str(directory / "comparison")
    _kldive("attribute", out, "--model", str(sample.model), may_end_with=found)
