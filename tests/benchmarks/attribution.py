"""How well faults are placed: every module kind, first, middle and last layer, three sizes.

    python -m tests.benchmarks.attribution [SUBJECT ...] [--dtype bfloat16] [--clean-only]

Side A is the model with one fault, recorded as a rollout; side B the same model without it. Every
fault larger than its module's rounding budget must be charged to its exact layer and module, and a
smaller one to that or to nothing. Clean pairs, which differ in how they compute but not in what,
must report nothing. Exits with 1 when one case fails.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch

from tests.attribution.matrix import (
    FAMILIES,
    Result,
    Subject,
    capture,
    faults_of,
    run_case,
    subject,
)
from tests.attribution.pairs import clean_pairs

SUBJECTS = (*FAMILIES, "bundled")


def main(arguments: list[str] | None = None) -> int:
    """Runs the matrix and prints its table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("subjects", nargs="*", default=list(SUBJECTS), metavar="SUBJECT")
    options.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    options.add_argument("--clean-only", action="store_true")
    chosen = options.parse_args(arguments)
    dtype = torch.float32 if chosen.dtype == "float32" else torch.bfloat16
    num_failed = 0
    with tempfile.TemporaryDirectory() as directory:
        for name in chosen.subjects:
            scratch = Path(directory) / name.replace(" ", "-")
            scratch.mkdir()
            num_failed += _clean(name, dtype, scratch)
            if not chosen.clean_only:
                num_failed += _matrix(subject(name, dtype), scratch)
    print(f"{num_failed} cases failed")
    return 1 if num_failed else 0


def _matrix(tried: Subject, scratch: Path) -> int:
    trainer = capture(tried, scratch / "trainer")
    results: list[Result] = []
    started = time.perf_counter()
    for fault in faults_of(tried, trainer):
        result = run_case(tried, fault, trainer, scratch)
        results.append(result)
        print(
            f"{tried.name:24} {tried.dtype:9} {result.fault!s:40} {result.word:10} "
            f"KL {result.kl or 0:8.2g}  {result.proof}",
            flush=True,
        )
    words = Counter(result.word.partition(":")[0] for result in results)
    proofs = Counter(result.proof for result in results if result.word == "exact")
    print(
        f"{tried.name}, {tried.dtype}: {len(results)} cases in "
        f"{time.perf_counter() - started:.0f} s: {dict(words)}; proofs {dict(proofs)}\n",
        flush=True,
    )
    return words["MISSED"] + words["WRONG"]


def _clean(name: str, dtype: torch.dtype, scratch: Path) -> int:
    num_failed = 0
    for pair in clean_pairs(name, dtype, scratch):
        word = f"REPORTED {pair.found}" if pair.found else "nothing"
        num_failed += bool(pair.found)
        print(f"{name:24} {str(dtype)[6:]:9} {pair.name:40} {word:10} KL {pair.kl or 0:8.2g}")
    return num_failed


if __name__ == "__main__":
    sys.exit(main())
