"""How fast the terminal workbench answers, and what it holds in memory, beside the budgets.

Run as `python -m tests.benchmarks.tui`. Writes two invented captures of 96 layers x 32,768 rows x
128 experts, compares them, adds local errors (about two minutes, 4 GB; `--keep DIR` keeps them for
the next run), then measures, each in a process of its own:

    opening   `kldive tui` in a pseudo terminal: process start to the first frame, and to the
              overview; warm, and with the files and Python's packages dropped from the page cache
    keys      the real app at 120x40 and 200x60: key to the last byte of its frame, per kind of key
    memory    resident memory after every lens, class and order was looked at
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.benchmarks.firstframe import Opening, forget, time_opening
from tests.benchmarks.keydriver import Frame, Session, drive
from tests.benchmarks.resident import Resident, resident

SIZES: Final = ((120, 40), (200, 60))


class Budget(NamedTuple):
    """Milliseconds at the median and at the 95th percentile, and where it is a failure."""

    p50: float
    p95: float
    hard: float


KEYS: Final[dict[str, tuple[Budget, tuple[str, ...]]]] = {
    "cursor": (Budget(20, 50, 120), ("l", "l", "j", "j", "l", "k", "h", "j", "l", "k") * 6),
    "page": (Budget(35, 80, 150), ("L", "L", "L", "H", "L", "H", "end", "H", "home", "L") * 3),
    "zoom": (Budget(35, 80, 150), ("Z", "Z", "z", "z", "z", "0", "z", "z", "Z", "0") * 2),
    "jump": (Budget(25, 60, 150), ("n", "n", "n", "N", "n", "f", "n", "N", "f", "n") * 3),
    "lens": (Budget(50, 100, 250), ("1", "2", "3", "4", "5", "6", "6", "6", "1", "4") * 2),
    "site": (Budget(20, 50, 120), (".", ".", ",", ".", ",") * 3),
}
"""Kind of key to its budget and the keys to press."""

FINDING: Final = Budget(50, 120, 300)
SOUGHT: Final = ("42", "expert", "路由", "7919", " + ", "request")
"""Texts and a token id to find; only the key that starts the search is timed."""

OPENING: Final = Budget(500, 800, 1500)
OVERVIEW: Final = Budget(800, 1200, 3000)
FRAME_KB: Final = (60, 140)
MEMORY_MB: Final = (250, 400)


def make_comparison(root: Path, args: argparse.Namespace) -> Path:
    """A comparison under `root`, made when it is not there."""
    from tests.benchmarks.biglocal import add_local_errors
    from tests.benchmarks.bigpair import Size, write_pair
    from workbench.comparison.run import compare

    target = root / f"{args.layers}x{args.rows}x{args.experts}"
    if not (target / "comparison" / "local.arrow").exists():
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        size = Size(layers=args.layers, rows=args.rows, experts=args.experts)
        a, b = write_pair(target, size)
        add_local_errors(compare(a, b, out=target / "comparison"))
    return target / "comparison"


def percentile(values: Iterable[float], share: float) -> float:
    """The smallest value that at least `share` of them do not exceed; NaN of none.

    >>> percentile([3.0, 1.0, 2.0, 4.0], 0.5), percentile([3.0, 1.0, 2.0, 4.0], 0.95)
    (2.0, 4.0)
    """
    ordered = sorted(values)
    if not ordered:
        return float("nan")
    return ordered[max(0, -(-int(share * len(ordered) * 1000) // 1000) - 1)]


async def press_keys(session: Session) -> dict[str, list[Frame]]:
    """Every kind of key in turn, and one full frame."""
    found = {kind: [await session.press(key) for key in keys] for kind, (_, keys) in KEYS.items()}
    found["find"] = [await _find(session, text) for text in SOUGHT]
    session.written.restart()
    session.app.screen.refresh()
    await session.quiet()
    found["full frame"] = [Frame(None, session.written.num_bytes, 0.0, 0.0)]
    return found


async def _find(session: Session, text: str) -> Frame:
    for key in ("/", *text):
        await session.press(key)
    frame = await session.press("enter")
    await session.press("escape")
    return frame


async def look_everywhere(session: Session) -> dict[str, Resident]:
    """Resident memory after opening, after every lens, and after every class in both orders."""
    found = {"opened": resident()}
    for key in ("1", "2", "3", "4", "5", "6", "6", "6"):
        await session.press(key)
    found["six lenses"] = resident()
    for key in ("c", "escape", *("f",) * 6, "o", "c", "escape", *("f",) * 6, "end", "0", "home"):
        await session.press(key)
    found["everything"] = resident()
    return found


def in_a_process(script: Callable[[Session], Any], directory: Path, size: tuple[int, int]) -> Any:
    """What a script finds in a process of its own."""
    context = multiprocessing.get_context("spawn")
    queue: Any = context.Queue()
    process = context.Process(target=_run, args=(script, directory, size, queue))
    process.start()
    found = queue.get()
    process.join()
    return found


def _run(
    script: Callable[[Session], Any], directory: Path, size: tuple[int, int], queue: Any
) -> None:
    queue.put(asyncio.run(drive(directory, size, script)))


def open_in_terminal(directory: Path, rows: int, *, cold: bool) -> Opening:
    """The command as a person runs it."""
    if cold:
        forget(path for path in directory.iterdir() if path.is_file())
        forget(path for path in Path(sysconfig.get_path("purelib")).rglob("*") if path.is_file())
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    return time_opening(
        [sys.executable, "-m", "workbench", "tui", str(directory)],
        size=SIZES[-1],
        until=f"all{rows:,}",
        environment=environment,
    )


def measure(directory: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Everything, as plain values."""
    warm = [open_in_terminal(directory, args.rows, cold=False) for _ in range(args.repeat + 1)][1:]
    keys = {
        f"{columns}x{lines}": in_a_process(press_keys, directory, (columns, lines))
        for columns, lines in SIZES
    }
    return {
        "opening": {
            "warm": {name: min(getattr(o, name) for o in warm) for name in Opening._fields},
            "cold": open_in_terminal(directory, args.rows, cold=True)._asdict(),
        },
        "keys": {
            size: {kind: summarise(frames) for kind, frames in kinds.items()}
            for size, kinds in keys.items()
        },
        "memory": {
            when: found._asdict()
            for when, found in in_a_process(look_everywhere, directory, SIZES[-1]).items()
        },
    }


def summarise(frames: list[Frame]) -> dict[str, float]:
    """Milliseconds and kilobytes of one kind of key; `count` of those that drew something."""
    seconds = [frame.seconds for frame in frames if frame.seconds is not None]
    return {
        "count": len(seconds),
        "p50": 1000 * percentile(seconds, 0.5),
        "p95": 1000 * percentile(seconds, 0.95),
        "held_p50": 1000 * percentile((frame.longest for frame in frames), 0.5),
        "held_max": 1000 * max(frame.longest for frame in frames),
        "busy_p50": 1000 * percentile((frame.busy for frame in frames), 0.5),
        "kb_max": max(frame.num_bytes for frame in frames) / 1000,
    }


def show(found: dict[str, Any]) -> Iterable[str]:
    """The figures beside the budgets, line by line."""
    for state, times in found["opening"].items():
        first, complete = 1000 * times["first"], 1000 * times["complete"]
        yield f"opening, {state}: first frame {first:.0f} ms, overview {complete:.0f} ms"
    yield f"  budget: first frame {_of(OPENING)} ms, overview {_of(OVERVIEW)} ms"
    for size, kinds in found["keys"].items():
        yield (
            f"keys at {size:<7} p50    p95   budget p50 / p95 / hard"
            "     processor ms: per key, longest callback p50, worst"
        )
        for kind, budget in {**{k: b for k, (b, _) in KEYS.items()}, "find": FINDING}.items():
            at = kinds[kind]
            yield (
                f"  {kind:<8} {at['p50']:8.1f} {at['p95']:6.1f}   {_of(budget):<24}"
                f" {at['busy_p50']:10.1f} {at['held_p50']:8.1f} {at['held_max']:8.1f}"
            )
        whole = kinds["full frame"]["kb_max"]
        yield f"  full frame {whole:.0f} kB (budget {FRAME_KB[0]} / {FRAME_KB[1]})"
    for when, memory in found["memory"].items():
        total = memory["own"] + memory["mapped"]
        yield (
            f"memory, {when}: {total:.0f} MB resident: own {memory['own']:.0f},"
            f" mapped files {memory['mapped']:.0f}; peak {memory['peak']:.0f}"
        )
    yield f"  budget {MEMORY_MB[0]}, hard {MEMORY_MB[1]}"


def _of(budget: Budget) -> str:
    return " / ".join(f"{value:.0f}" for value in budget)


def main(arguments: list[str] | None = None) -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=96)
    parser.add_argument("--rows", type=int, default=32_768)
    parser.add_argument("--experts", type=int, default=128)
    parser.add_argument("--repeat", type=int, default=3, help="Warm openings; the best counts.")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="Where to make or find it.")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(arguments)
    root = args.keep or Path(tempfile.mkdtemp(prefix="kldive-"))
    try:
        found = measure(make_comparison(root, args), args)
    finally:
        if args.keep is None:
            shutil.rmtree(root)
    print(json.dumps(found, indent=1) if args.json else "\n".join(show(found)))


if __name__ == "__main__":
    main()
