"""Entry point: finds the command, runs it, turns every error into one message and an exit code."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Final

import click

from workbench.errors import ExitCode, KldiveError, did_you_mean

COMMANDS: Final[dict[str, str]] = {
    "demo": "The whole story on the bundled model",
    "capture": "Record what a path computes: rollout or trainer",
    "compare": "Align two captures and measure how they differ",
    "attribute": "Say which module is wrong, which side is, and why",
    "bisect": "Find the smallest set of modules that explains a divergence",
    "show": "One-screen report of a comparison",
    "tui": "Step through a comparison in the terminal",
    "doctor": "Check versions, hooks and devices that capture depends on",
}
"""Commands in the order a newcomer meets them, with their one-line help.

Each lives in `cli/<name>.py`.
"""


class LazyGroup(click.Group):
    """A group that imports a command's module only when that command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"workbench.cli.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"No such command {args[0]!r}; {did_you_mean(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with: kldive demo",
)
@click.version_option(package_name="kldive", prog_name="kldive")
def kldive() -> None:
    """Find where rollout and trainer part, and prove why.

    Exit codes: 0 equal within tolerance, 1 diverged, 2 usage, 3 unreadable or misaligned input,
    4 missing optional dependency, 130 interrupted.
    """


def main(args: list[str] | None = None) -> int:
    """Runs one command line and returns its exit code; never shows a traceback for bad input."""
    try:
        result = kldive.main(args=args, prog_name="kldive", standalone_mode=False)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        error.show(sys.stderr)
        return ExitCode.USAGE
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return ExitCode.INTERRUPTED
    except KldiveError as error:
        click.echo(f"kldive: {error}", err=True)
        return error.exit_code
    except BrokenPipeError:
        # The reader of our output went away, as `head` does: not an error of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.EQUAL
    return result if isinstance(result, int) else ExitCode.EQUAL
