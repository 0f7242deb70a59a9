"""What the notebook stepper costs: the kernel per key, a tile, the messages, the saved notebook.

Run as `python -m tests.benchmarks.widget`; with Chromium on PATH also the first paint and a redraw
of the front end (no kernel: tiles are answered at once). Every cell of the invented comparison
differs, which is the worst case for everything that is drawn or saved.

Bars: first paint 300 ms, redraw 16 ms, tile 60 ms with the way to the kernel, 5 ms of kernel CPU
per move of the cursor, 4 KB per message of traits, 200 KB in a saved notebook.
"""

from __future__ import annotations

import argparse
import base64
import json
import queue
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from tests.view.synthetic import make_source
from workbench.widgets import protocol
from workbench.widgets.divergence import Divergence

_HARNESS = Path(__file__).with_suffix(".html")


def milliseconds(work: Callable[[], object], times: int) -> np.ndarray:
    """CPU time of each of some calls, in ms."""
    found = []
    for _ in range(times):
        before = time.process_time()
        work()
        found.append(1000 * (time.process_time() - before))
    return np.asarray(found)


def line(name: str, value: str, bar: str) -> None:
    """One figure beside its bar."""
    print(f"{name:<42}{value:>22}   bar {bar}")


def spread(times: np.ndarray) -> str:
    """Median and 95th percentile."""
    p50, p95 = np.percentile(times, (50, 95))
    return f"p50 {p50:.2f} p95 {p95:.2f} ms"


def moves(widget: Divergence) -> np.ndarray:
    """CPU of a key and of the inspector's request that follows it."""
    actions = ["cursor.right", "cursor.down", "cursor.left", "cursor.up", "jump.next"]
    count = iter(range(10**6))

    def move() -> None:
        widget.act(actions[next(count) % len(actions)])
        layer, token = widget.cursor
        protocol.answer(widget.model, {"id": "b", "op": "cell", "layer": layer, "token": token})

    milliseconds(move, 20)
    return milliseconds(move, 200)


def tiles(widget: Divergence) -> np.ndarray:
    """CPU of tiles at several levels, once each grid is there."""
    rng = np.random.default_rng(0)

    def tile() -> None:
        level = int(rng.integers(0, 5))
        columns = widget.model.num_rows >> level
        start = int(rng.integers(0, max(1, columns - 512)))
        place = {"level": level, "l0": 0, "l1": 96, "t0": start, "t1": start + 512}
        request = {"id": "b", "op": "tile", "lens": "combined", **place}
        assert protocol.answer(widget.model, request).buffers

    milliseconds(tile, 20)
    return milliseconds(tile, 200)


def state_of(widget: Divergence) -> dict[str, Any]:
    """The widget's state as a notebook saves it: JSON, with bytes in base64."""
    state = {**widget.get_state()}
    state["_overview"] = base64.b64encode(state["_overview"]).decode()
    return state


def browser(widget: Divergence, program: str) -> dict[str, float]:
    """First paint and redraw of the front end in a headless browser, in ms."""
    page = Page(widget)
    threading.Thread(target=page.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        options = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}")
        address = f"http://127.0.0.1:{page.server_port}/"
        run = subprocess.Popen([program, *options, address], stderr=subprocess.DEVNULL)
        try:
            return page.figures.get(timeout=60)
        finally:
            run.terminate()
            run.wait(timeout=20)
            page.shutdown()


class Page(ThreadingHTTPServer):
    """Serves the harness with the widget's own files and its state; waits for the figures."""

    def __init__(self, widget: Divergence) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        state = json.dumps({**state_of(widget), "_esm": "", "_css": ""}, default=str)
        self.files = {
            "/": ("text/html", _HARNESS.read_bytes()),
            "/divergence.js": ("text/javascript", str(widget._esm).encode()),
            "/divergence.css": ("text/css", str(widget._css).encode()),
            "/state": ("application/json", state.encode()),
        }
        self.figures: queue.Queue[dict[str, float]] = queue.Queue()


class Handler(BaseHTTPRequestHandler):
    """One request to the page."""

    server: Page

    def do_GET(self) -> None:
        kind, body = self.server.files.get(self.path, ("text/plain", b""))
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.figures.put(json.loads(body))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def main() -> None:
    """Prints every figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=96)
    parser.add_argument("--rows", type=int, default=8192)
    sizes = parser.parse_args()
    events = tuple((i % sizes.layers, i * 37 % sizes.rows) for i in range(400))
    source = make_source(
        num_layers=sizes.layers, num_rows=sizes.rows, noise=0.01, flips=events, seed=1
    )
    print(f"{sizes.layers} layers x {sizes.rows} tokens, every cell differs")
    before = time.perf_counter()
    widget = Divergence(source)
    line("open the widget", f"{1000 * (time.perf_counter() - before):.0f} ms", "-")
    widget.lens = "combined"
    line("kernel CPU, key and inspector", spread(moves(widget)), "5 ms")
    line("kernel CPU, tile 96 x 512", spread(tiles(widget)), "60 ms with the way")
    largest = len(json.dumps(widget._screen).encode())
    line("traits of a move", f"{largest:,} bytes", "4,096")
    saved = len(json.dumps(state_of(widget), default=str).encode())
    static = len(json.dumps(widget._repr_mimebundle_()).encode())
    line("saved with the notebook: output", f"{static:,} bytes", "200,000")
    line("saved with the notebook: widget state", f"{saved:,} bytes", "200,000")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is not None:
        figures = browser(widget, program)
        line("first paint", f"{figures['first_paint']:.0f} ms", "300 ms")
        redraw = f"p50 {figures['redraw_p50']:.1f} p95 {figures['redraw_p95']:.1f} ms"
        line("redraw while panning", redraw, "16 ms")


if __name__ == "__main__":
    main()
