"""`bisect modules`: the smallest set of modules whose swap brings the KL under a threshold.

Owns the search over a bench, its log and its result. The invariant: an answer in the log is never
asked for again, so an interrupted search goes on where it stopped, with another threshold too.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from workbench.attribution.bench import Bench, Swap
from workbench.attribution.local import ModulePlace
from workbench.attribution.minimise import smallest_enough
from workbench.attribution.swappable import LM_HEAD, name_of, site_of
from workbench.errors import CaptureError

LOG_NAME: Final = "bisect-modules.jsonl"
FORMAT_NAME: Final = "kldive-bisect-modules"

State = Literal["found", "below", "not_removable"]
"""`below`: the KL is under the threshold as it is. `not_removable`: no swap brings it under."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisection:
    """What a search found.

    Attributes:
        state: How it ended.
        modules: The set, in execution order; empty unless found.
        threshold: KL to come under, nats per token.
        kl_before: With nothing swapped.
        kl_after: With the set swapped; None unless found.
        kl_everything: With every module swapped; None when it was not asked.
        candidates: Modules that could matter: those whose arithmetic is not A's on A's inputs.
        forward_passes: Passes over the tokens this search took, answers from the log left out.
        asked: Sets whose KL the search needed, from the log or not.
        log: File with every step.
    """

    state: State
    modules: tuple[ModulePlace, ...]
    threshold: float
    estimator: str
    kl_before: float
    kl_after: float | None
    kl_everything: float | None
    candidates: int
    forward_passes: int
    asked: int
    log: Path

    def to_json(self) -> dict[str, Any]:
        """As `comparison.json` holds it."""
        return {
            "state": self.state,
            "modules": [{"layer": layer, "module": name} for layer, name in self.modules],
            "threshold": self.threshold,
            "estimator": self.estimator,
            "kl_before": self.kl_before,
            "kl_after": self.kl_after,
            "kl_everything": self.kl_everything,
            "candidates": self.candidates,
            "forward_passes": self.forward_passes,
            "asked": self.asked,
            "information_limit": math.log2(self.candidates) if self.candidates > 1 else 0.0,
            "log": self.log.name,
        }


def bisect_modules(
    bench: Bench, *, threshold: float, log: Path, fresh: bool = False, say: Say | None = None
) -> Bisection:
    """Searches for the smallest set of modules whose swap brings KL(A || B) under `threshold`.

    Args:
        bench: The trainer on the bench.
        threshold: Nats per token.
        log: JSON lines, one per step; continued when it belongs to this bench.
        fresh: Start the log anew.
        say: Told every step as it is done.

    Raises:
        CaptureError: The log cannot be read or written, or belongs to something else.
    """
    tell = say or _silent
    differing = bench.local_differences()
    items = [
        module
        for module in bench.modules
        if differing.get(site_of(module), 0) > 0
        or (module == LM_HEAD and site_of(module) not in differing)
    ]
    answers = _Answers(bench, threshold, _Log(log, _head(bench), fresh=fresh), tell)
    before = answers.kl(frozenset())
    everything: float | None = None
    found: list[ModulePlace] = []
    state: State = "below"
    if not before <= threshold:
        everything = answers.kl(frozenset(items)) if items else before
        state = "found" if everything <= threshold else "not_removable"
        if state == "found":
            found = smallest_enough(items, lambda kept: answers.kl(kept) <= threshold)
    result = Bisection(
        state=state,
        modules=tuple(found),
        threshold=threshold,
        estimator=answers.estimator,
        kl_before=before,
        kl_after=answers.kl(frozenset(found)) if found else None,
        kl_everything=everything,
        candidates=len(items),
        forward_passes=answers.passes,
        asked=len(answers.asked),
        log=log,
    )
    answers.log.append({"result": result.to_json()})
    return result


def _silent(_step: str) -> None:
    pass


def _head(bench: Bench) -> dict[str, Any]:
    """What an answer depends on."""
    sides = [bench.comparison.summary[side]["manifest_crc"] for side in ("a", "b")]
    names = ",".join(name_of(module) for module in bench.modules)
    return {
        "format": FORMAT_NAME,
        "version": 1,
        "captures": sides,
        "modules_crc": zlib.crc32(names.encode()),
        "rows": bench.num_rows,
    }


@dataclass(slots=True)
class _Answers:
    """KL by set of modules, each measured once."""

    bench: Bench
    threshold: float
    log: _Log
    say: Say
    passes: int = 0
    estimator: str = ""
    asked: set[frozenset[ModulePlace]] = field(default_factory=set)

    def kl(self, modules: frozenset[ModulePlace]) -> float:
        key = _key(modules)
        known = self.log.answers.get(key)
        if known is None:
            outcome = self.bench.run([Swap(name="bisect", modules=modules)])[0]
            self.passes += 1
            known = (outcome.kl, outcome.estimator)
            self.log.answers[key] = known
            self.log.append({"modules": list(key), "kl": known[0], "estimator": known[1]})
        value, self.estimator = known
        if modules not in self.asked:
            self.asked.add(modules)
            mark = "under" if value <= self.threshold else "over"
            self.say(
                f"step {len(self.asked)}: {_text(modules)} swapped: KL {value:.3g}, {mark} "
                f"{self.threshold:.3g}"
            )
        return value


def _key(modules: Iterable[ModulePlace]) -> tuple[str, ...]:
    return tuple(sorted(name_of(module) for module in modules))


def _text(modules: frozenset[ModulePlace]) -> str:
    names = _key(modules)
    if len(names) <= 3:
        return ", ".join(names) or "nothing"
    return f"{len(names)} modules ({names[0]} ... {names[-1]})"


class _Log:
    """The log of a search: a head, then one line per answer; reads what an earlier search left."""

    def __init__(self, path: Path, head: dict[str, Any], *, fresh: bool) -> None:
        self.path = path
        self.answers: dict[tuple[str, ...], tuple[float, str]] = {}
        if fresh or not path.exists():
            self._write(json.dumps(head) + "\n", "w")
            return
        for line in self._lines(head):
            names, kl = line.get("modules"), line.get("kl")
            if isinstance(names, list) and isinstance(kl, float):
                key = tuple(str(name) for name in names)
                self.answers[key] = (kl, str(line.get("estimator", "")))

    def append(self, line: dict[str, Any]) -> None:
        """Adds a line, on disk before the next step begins."""
        self._write(json.dumps(line) + "\n", "a")

    def _lines(self, head: dict[str, Any]) -> list[dict[str, Any]]:
        try:
            texts = self.path.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise self._unreadable(str(error)) from error
        lines: list[dict[str, Any]] = []
        for place, text in enumerate(texts):
            try:
                line = json.loads(text)
            except (ValueError, RecursionError) as error:
                if place == len(texts) - 1 and place > 0:
                    # A killed search may leave half a line; its answer is asked for again.
                    self._write("".join(f"{sound}\n" for sound in texts[:-1]), "w")
                    break
                raise self._unreadable(str(error)) from error
            if isinstance(line, dict):
                lines.append(line)
        if not lines or lines[0] != head:
            raise self._unreadable("a log of other captures, another model or other rows")
        return lines[1:]

    def _unreadable(self, got: str) -> CaptureError:
        return CaptureError(
            "cannot continue this bisection",
            where=self.path,
            expected="the log of a bisection of this comparison",
            got=got[:200],
            do="add --fresh to start anew",
        )

    def _write(self, text: str, mode: Literal["w", "a"]) -> None:
        try:
            with self.path.open(mode, encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise CaptureError(
                "cannot write the log of a bisection",
                where=self.path,
                got=error.strerror or str(error),
                do="make the directory writable",
            ) from error
