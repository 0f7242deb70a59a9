"""How fast `compare` is against reading the same two captures once, and whether its memory grows.

Run as `python -m tests.benchmarks.compare`. Writes two synthetic captures (every row differs by a
few units in the last place, B in other order and other chunks), then times, in fresh processes:

    read      every byte of both captures, once, into a small buffer
    decode    every array of both captures, once, mapped and turned into float32
    compare   the whole comparison

Prints seconds, ratios, and the peak memory of `compare` at two capture sizes. The bar: compare
takes at most twice as long as reading, and its peak does not grow with the capture but for the row
table.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from workbench.comparison.run import compare
from workbench.names import layer_site
from workbench.store import CaptureWriter, Manifest, ModelFacts, open_capture
from workbench.store.dtypes import to_float32
from workbench.store.tokens import Columns

HIDDEN_SITES = ("input", "attn_in", "attn_out", "mlp_in", "routed_out", "mlp_out", "output")
REQUEST_LENGTH = 256


def write(directory: Path, args: argparse.Namespace, *, rows: int, side: str) -> None:
    """Writes one side, chunk by chunk."""
    manifest = Manifest(
        path="rollout" if side == "a" else "trainer",
        dtype=args.dtype,
        model=ModelFacts(
            num_layers=args.layers,
            num_experts=args.experts,
            top_k=args.top_k,
            hidden_size=args.hidden,
            vocab_size=1000,
        ),
        router_pair_norm=dict.fromkeys(range(args.layers), 1.0),
    )
    writer = CaptureWriter(directory, manifest)
    order = np.arange(rows)
    if side == "b":
        requests = np.random.default_rng(1).permutation(rows // REQUEST_LENGTH)
        order = (requests[:, None] * REQUEST_LENGTH + np.arange(REQUEST_LENGTH)).ravel()
    step = args.chunk if side == "a" else args.chunk * 3 // 4
    for start in range(0, rows, step):
        part = order[start : start + step]
        tokens: Columns = {
            "request": [f"r{row // REQUEST_LENGTH}" for row in part],
            "position": part % REQUEST_LENGTH,
            "token_id": part % 997,
            "logprob": -1.0 - (part % 7) + (0.001 if side == "b" else 0.0),
        }
        writer.append(tokens, chunk_arrays(part, args, side))
    writer.finish()


def chunk_arrays(part: np.ndarray, args: argparse.Namespace, side: str) -> dict[str, np.ndarray]:
    """Arrays that depend on the row alone, so that both sides agree to a few last places."""
    base = np.random.default_rng(2).standard_normal(args.hidden + 4096).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(base, args.hidden)
    values = windows[part % 4096] * (1 + 1e-3 * (part % 13))[:, None].astype(np.float32)
    if side == "b":
        values = values * (1 + 4e-3 * np.sin(np.arange(args.hidden), dtype=np.float32))
    dtype = ml_dtypes.bfloat16 if args.dtype == "bfloat16" else np.float32
    stored = values.astype(dtype)
    scores = values[:, : args.experts].astype(dtype)
    ids = np.argsort(-scores.astype(np.float32), axis=1, kind="stable")[:, : args.top_k]
    weights = np.full(ids.shape, 1 / args.top_k, np.float32)
    arrays: dict[str, np.ndarray] = {}
    for layer in range(args.layers):
        arrays.update({layer_site(layer, site): stored for site in HIDDEN_SITES})
        arrays[layer_site(layer, "router_logits")] = scores
        arrays[layer_site(layer, "topk_ids")] = ids.astype(np.int32)
        arrays[layer_site(layer, "topk_weights")] = weights
    return arrays


def read(pair: tuple[Path, Path]) -> None:
    """Every byte, once."""
    buffer = bytearray(1 << 20)
    for directory in pair:
        for path in sorted(directory.glob("chunk-*.safetensors")):
            with path.open("rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass


def decode(pair: tuple[Path, Path]) -> None:
    """Every array, once, as float32, block by block."""
    for directory in pair:
        capture = open_capture(directory)
        for site in capture.sites:
            for _, array in capture.iterate(site):
                step = max(1, (1 << 16) // max(1, array[0].size))
                for start in range(0, len(array), step):
                    to_float32(array[start : start + step]).max(initial=0)


def run_compare(pair: tuple[Path, Path]) -> None:
    """The comparison itself."""
    compare(*pair, out=pair[0].parent / "comparison")


def timed(task: Callable[[tuple[Path, Path]], None], pair: tuple[Path, Path]) -> dict[str, float]:
    """Seconds and peak memory (MB) of a task in a process of its own, the better of two runs."""
    context = multiprocessing.get_context("spawn")
    best: dict[str, float] = {}
    for _ in range(2):
        queue: Any = context.Queue()
        process = context.Process(target=_measure, args=(task, pair, queue))
        process.start()
        found = queue.get()
        process.join()
        if not best or found["seconds"] < best["seconds"]:
            best = found
    return best


def _measure(
    task: Callable[[tuple[Path, Path]], None], pair: tuple[Path, Path], queue: Any
) -> None:
    started, cpu_started = time.perf_counter(), time.process_time()
    task(pair)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu_started
    own, mapped = _resident()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    queue.put({"seconds": seconds, "cpu": cpu, "peak_mb": peak, "own_mb": own, "mapped_mb": mapped})


def _resident() -> tuple[float, float]:
    """Resident memory of the process itself and of mapped files, MB; zeros off Linux."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0.0, 0.0
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
    return tuple(float(fields[n].split()[0]) / 1024 for n in ("RssAnon", "RssFile"))  # type: ignore[return-value]


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--experts", type=int, default=128)
    parser.add_argument("--top-k", type=int, default=8)
    parser.add_argument("--chunk", type=int, default=1024)
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument(
        "--directory", type=Path, help="Where to write; a temporary one by default."
    )
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="kldive-", dir=args.directory))
    try:
        results = [_at_size(root, args, rows) for rows in (args.rows // 2, args.rows)]
    finally:
        shutil.rmtree(root)
    if args.json:
        json.dump(results, sys.stdout, indent=1)
        return
    for found in results:
        seconds = {name: found[name]["seconds"] for name in ("read", "decode", "compare")}
        print(f"{found['rows']} rows, {found['gigabytes']:.2f} GB in both captures")
        for name, value in seconds.items():
            rate = found["gigabytes"] / value
            ratio, cpu = value / seconds["read"], found[name]["cpu"]
            print(
                f"  {name:<8} {value:6.2f} s {rate:6.2f} GB/s {ratio:5.2f} x read  cpu {cpu:.2f} s"
            )
        print(f"  compare / decode {seconds['compare'] / seconds['decode']:.2f}")
        memory = found["compare"]
        print(f"  peak {memory['peak_mb']:.0f} MB, of it own {memory['own_mb']:.0f} MB at the end")


def _at_size(root: Path, args: argparse.Namespace, rows: int) -> dict[str, Any]:
    pair = (root / f"{rows}-a", root / f"{rows}-b")
    for directory, side in zip(pair, "ab", strict=True):
        write(directory, args, rows=rows, side=side)
    size = sum(path.stat().st_size for d in pair for path in d.glob("chunk-*"))
    found: dict[str, Any] = {"rows": rows, "gigabytes": size / 1e9}
    for name, task in (("read", read), ("decode", decode), ("compare", run_compare)):
        found[name] = timed(task, pair)
    shutil.rmtree(root / "comparison")
    return found


if __name__ == "__main__":
    main()
