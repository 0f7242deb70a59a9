"""`kldive tui`: the terminal workbench; the plain report where there is no terminal."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from workbench.address import Address, parse_address
from workbench.view.link import Link, is_link, parse_link


@click.command(
    "tui",
    epilog="Example: kldive tui run/comparison --at 'L2 t14', or kldive tui run/a run/b",
)
@click.argument("directories", nargs=-1, required=True, type=click.Path(), metavar="DIR|LINK [B]")
@click.option("--at", help="Cell to open at, such as 'L12 t4096'; default: the first divergence.")
@click.option(
    "-o", "--out", type=click.Path(path_type=Path), help="Keep the comparison of two captures here."
)
@click.option(
    "--tolerance",
    help="Profile to compare two captures with: auto, bitwise, fp32, bf16, fp16 or fp8.",
)
@click.option(
    "--common-prefix",
    is_flag=True,
    help="Where the tokens of two captures part, compare the rows before that.",
)
@click.option("--live", is_flag=True, help="Follow a capture, or two, that may still be recorded.")
def command(
    directories: tuple[str, ...],
    at: str | None,
    out: Path | None,
    tolerance: str | None,
    *,
    common_prefix: bool,
    live: bool,
) -> int:
    """Step through a comparison layer by layer and token by token.

    DIR is what `kldive compare` wrote, or one capture to look at by itself. Two directories are
    captures A (rollout) and B (trainer): they are compared first, into a temporary directory unless
    -o says where. With --live, captures may still be recorded, or not even exist yet: one is
    followed, two are compared again whenever both have grown.
    LINK is what the key Y copies: kldive://DIR?at=L12.t4096.topk_ids&lens=router.
    """
    address = None if at is None else parse_address(at)
    if any(map(is_link, directories)):
        return _link(directories, address, out, live=live)
    _check(directories, out, tolerance, live=live)
    if common_prefix and (live or len(directories) == 1):
        raise click.UsageError("--common-prefix needs two captures that have ended")
    if live:
        return _live(directories, tolerance or "auto", address)
    if len(directories) == 1:
        return _comparison(directories[0], address)
    return _captures(
        *directories,
        out=out,
        tolerance=tolerance or "auto",
        common_prefix=common_prefix,
        at=address,
    )


def _check(
    directories: tuple[str, ...], out: Path | None, tolerance: str | None, *, live: bool
) -> None:
    if live and out is not None:
        raise click.UsageError("--live keeps no comparison; compare when both captures have ended")
    if len(directories) > 2:
        raise click.UsageError(
            f"give one comparison or two captures, and not {len(directories)} directories"
        )
    if len(directories) == 1 and (out is not None or tolerance is not None):
        name = "--out" if out is not None else "--tolerance"
        raise click.UsageError(f"{name} needs two captures to compare")


def _link(directories: tuple[str, ...], at: Address | None, out: Path | None, *, live: bool) -> int:
    if len(directories) > 1 or live or out is not None:
        raise click.UsageError("a link says all that there is to open: give it alone")
    link = parse_link(directories[0])
    if link.directory or link.a is None or link.b is None:
        return _comparison(link.directory, at, link)
    tolerance = link.tolerance or "auto"
    return _captures(link.a, link.b, out=None, tolerance=tolerance, at=at, link=link)


def _has_terminal() -> bool:
    # Textual draws on stderr.
    return all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def _comparison(directory: str, at: Address | None, link: Link | None = None) -> int:
    if _has_terminal():
        from tui.run import run_tui
        from tui.subject import is_capture

        if is_capture(directory):
            return _live((directory,), "auto", at)

        return run_tui(directory, at=at, link=link)
    from workbench.comparison.result import open_comparison
    from workbench.report.text import show

    comparison = open_comparison(directory)
    click.echo("kldive tui: not a terminal, so here is the report instead", err=True)
    click.echo(show(comparison))
    return 0


def _captures(
    a: str,
    b: str,
    *,
    out: Path | None,
    tolerance: str,
    at: Address | None,
    common_prefix: bool = False,
    link: Link | None = None,
) -> int:
    again = shlex.join(["kldive", "tui", a, b, *(["--common-prefix"] if common_prefix else [])])
    keep = f"the comparison was temporary; keep one with: {again} -o DIR"
    with _place_for(out) as target:
        if not _has_terminal():
            came = again if out is None else ""
            _report(a, b, target, tolerance, common_prefix=common_prefix, again=came)
            return 0
        from tui.jobs import compare_job
        from tui.run import run_job

        again = again if out is None else shlex.join(["kldive", "tui", str(out)])
        if link is None and out is None:
            link = Link(a=a, b=b)
        job = compare_job(
            a,
            b,
            out=target,
            tolerance=tolerance,
            common_prefix=common_prefix,
            at=at,
            link=link,
        )
        return run_job(job, come_back=again, note=keep if out is None else "")


def _live(directories: tuple[str, ...], tolerance: str, at: Address | None) -> int:
    if not _has_terminal():
        raise click.UsageError("--live needs a terminal; `kldive show` reports a comparison")
    from tui.jobs import live_job, live_pair_job
    from tui.run import run_job

    again = shlex.join(["kldive", "tui", "--live", *directories])
    if len(directories) == 1:
        return run_job(live_job(directories[0], at), come_back=again)
    with tempfile.TemporaryDirectory(prefix="kldive-", ignore_cleanup_errors=True) as name:
        a, b = directories
        job = live_pair_job(a, b, workplace=Path(name), tolerance=tolerance, at=at)
        keep = shlex.join(["kldive", "compare", a, b])
        return run_job(job, come_back=again, note=f"keep a comparison with: {keep} -o DIR")


@contextmanager
def _place_for(out: Path | None) -> Iterator[Path]:
    """Where a comparison is written: `out`, or a directory that is removed in the end."""
    if out is not None:
        yield out
        return
    with tempfile.TemporaryDirectory(prefix="kldive-", ignore_cleanup_errors=True) as name:
        yield Path(name) / "comparison"


def _report(a: str, b: str, out: Path, tolerance: str, *, common_prefix: bool, again: str) -> None:
    """Prints the report; `again` is the command that makes a comparison that does not stay."""
    from workbench.cli.talk import stages
    from workbench.comparison.run import compare
    from workbench.report.text import show

    click.echo("kldive tui: not a terminal, so here is the report instead", err=True)
    with stages("compare") as say:
        comparison = compare(
            a, b, out=out, tolerance=tolerance, common_prefix=common_prefix, progress=say
        )
    text = show(comparison)
    if again:
        # The directory is gone when the report is read.
        text = text.replace(f"kldive tui {out}", again)
    click.echo(text)
