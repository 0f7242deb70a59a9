"""Every state of the workbench: what it says, and how it looks, frozen as SVG.

Update with `pytest tests/tui/test_states.py --snapshot-update`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import textual
from textual.app import App
from textual.pilot import Pilot

from tests.captures import ROLLOUT, TRAINER, Side, make_capture, make_pair
from tests.tui.test_app import screen_text
from tests.view.synthetic import ArraySource, make_source
from tui.app import KldiveApp, Workbench
from tui.follow import OneCapture, Pulse
from tui.host import Host
from tui.job import Job, Made, Progress
from tui.jobs import compare_job, open_job
from tui.opening import OpeningScreen
from tui.subject import of_comparison
from tui.trouble import TroubleScreen
from workbench.comparison.run import compare
from workbench.errors import CaptureError
from workbench.view.growing import GrowingCapture
from workbench.view.model import ViewModel

SIZE = (120, 40)
Compare = Callable[..., bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A state and what proves it.

    Attributes:
        make: The application in that state, or on its way there.
        says: What has to be on the screen.
        press: Keys that lead there.
        settled: What tells that it has arrived.
    """

    make: Callable[[], App[None]]
    says: list[str]
    press: list[str] = field(default_factory=list)
    settled: Callable[[App[None]], bool] = lambda _app: True


def comparison(a: Side = ROLLOUT, b: Side = TRAINER) -> Path:
    """A comparison of two toy captures in the current directory."""
    pair = make_pair(Path("run"), a=a, b=b)
    compare(pair.a, pair.b, out="run/comparison")
    return Path("run/comparison")


def opened(job: Job) -> App[None]:
    """A job on its way."""
    return Host(OpeningScreen(job, TroubleScreen))


def on_screen(kind: type) -> Callable[[App[None]], bool]:
    """Whether a kind of screen is on top."""
    return lambda app: isinstance(app.screen, kind)


def opening() -> App[None]:
    def work(progress: Progress) -> Made:
        progress("reading rows", 0.35)
        progress.wait(60)
        raise AssertionError("nobody stopped the work")

    return opened(Job(subject=of_comparison(comparison()), work=work))


def dense() -> App[None]:
    source = make_source(num_rows=60, noise=1e-5)
    source.summary["a"]["model"]["layer_kinds"] = ["dense"] * 4
    source.summary["coverage"] = {}
    source._columns = {k: v for k, v in source._columns.items() if not k.startswith("topk")}
    return KldiveApp(source)


def lost_layer() -> App[None]:
    source = make_source(num_rows=60, flips=((2, 14),), noise=1e-5)
    source._absent["mlp_out.rel_l2"][1] = True
    source._columns["mlp_out.rel_l2"][1] = np.nan
    source._columns["mlp_out.bit_equal"][1] = False
    return KldiveApp(source)


class Unreadable(ArraySource):
    """A comparison whose `output` cannot be read any more."""

    def column(self, name: str) -> np.ndarray:
        if name.startswith("output"):
            raise CaptureError(
                "cannot read the layer table",
                where="run/comparison/layers.arrow",
                expected="1,843,200 bytes",
                got="921,600 bytes",
                do="compare the two captures again",
            )
        return super().column(name)


def worker_failed() -> App[None]:
    app = KldiveApp(make_source(num_rows=60, flips=((2, 14),), noise=1e-5))
    source: Any = app.model.source
    source.__class__ = Unreadable
    return app


def newer() -> App[None]:
    directory = comparison()
    summary = directory / "comparison.json"
    text = summary.read_text("utf-8")
    summary.write_text(text.replace('"version": 1', '"version": 2', 1), "utf-8")
    return opened(open_job(directory))


def newer_unreadable() -> App[None]:
    directory = comparison()
    summary = directory / "comparison.json"
    found = {**json.loads(summary.read_text("utf-8")), "version": 2}
    del found["kl"]
    summary.write_text(json.dumps(found), "utf-8")
    return opened(open_job(directory))


def truncated() -> App[None]:
    table = comparison(b=replace(TRAINER, scale_experts=(1, 1.02))) / "layers.arrow"
    table.write_bytes(table.read_bytes()[:1000])
    return opened(open_job(table.parent))


def damaged() -> App[None]:
    pair = make_pair(Path("run"), a=replace(ROLLOUT, chunk_rows=10))
    (pair.a / "chunk-000001.safetensors").write_bytes(b"cut off")
    return KldiveApp(compare(pair.a, pair.b, out="run/comparison"))


def misaligned() -> App[None]:
    pair = make_pair(
        Path("run"),
        a=replace(ROLLOUT, tokens={(2, 6): 10, (2, 7): 12}),
        b=replace(TRAINER, tokens={(2, 6): 11, (2, 7): 13}),
    )
    return opened(compare_job(pair.a, pair.b, out=Path("run/comparison")))


def recording(age: float, *, complete: bool = False) -> App[None]:
    directory = make_capture(Path("run/a"), side=replace(ROLLOUT, interleaved=True, chunk_rows=8))
    if not complete:
        manifest = directory / "manifest.json"
        text = manifest.read_text("utf-8").replace('"complete": true', '"complete": false')
        manifest.write_text(text, "utf-8")
    capture = GrowingCapture(directory)
    source = OneCapture(capture, Pulse(lambda: capture.changed + age)).look()
    assert source is not None
    model = ViewModel(source)
    model.act("token.last")
    return Host(Workbench(model))


STATES: dict[str, State] = {
    "opening": State(
        make=opening,
        says=["opening run/comparison", "35%", "reading rows", "A rollout", "toy", "Esc cancel"],
        settled=lambda app: "reading rows" in screen_text(app),
    ),
    "identical": State(
        make=lambda: KldiveApp(make_source(num_rows=60)),
        says=["identical: 0 of 240 cells differ under bf16; max 0 ULP"],
    ),
    "within_noise": State(
        make=lambda: KldiveApp(make_source(num_rows=60, noise=1e-5)),
        says=["none above the rounding budget; ", " of 240 cells below it; press t for bitwise"],
    ),
    "no_moe_layers": State(
        make=dense,
        says=["router set: no MoE layers: this model has no router to compare"],
        press=["1"],
    ),
    "site_not_captured": State(
        make=lambda: KldiveApp(compare_without("mlp_out")),
        says=["combined output: mlp_out was not recorded on B (trainer): the block is fused"],
        press=["3"],
    ),
    "misaligned": State(
        make=misaligned,
        says=[
            "not aligned",
            "the captures hold other tokens: 2 of 36 rows differ",
            "first at position 6",
            "Only the first 6 tokens of this request would compare",
            "replay A's token ids on side B",
        ],
        settled=on_screen(TroubleScreen),
    ),
    "lost_layer": State(
        make=lost_layer, says=[" 57 cells missing ", "combined output"], press=["3"]
    ),
    "damaged_chunk": State(
        make=damaged,
        says=["not comparable: incomplete: A has 1 of 4 chunks damaged", " 26 of 36 rows "],
    ),
    "truncated_table": State(
        make=truncated,
        says=[
            "not comparable: layers.arrow cannot be read (expected ",
            " bytes, got 1000 bytes); the rest is shown",
        ],
        settled=on_screen(Workbench),
    ),
    "newer_version": State(
        make=newer,
        says=[" format 2, newer than 1 ", "bit difference"],
        settled=on_screen(Workbench),
    ),
    "newer_version_unreadable": State(
        make=newer_unreadable,
        says=[
            "cannot be opened",
            "this comparison is of the newer format version 2; this kldive reads up to version 1",
            "a field kl",
            "update kldive",
        ],
        settled=on_screen(TroubleScreen),
    ),
    "worker_failed": State(
        make=worker_failed,
        says=[" reading ahead failed; ! says why ", "first flip: L2 t14"],
        settled=lambda app: "failed; !" in screen_text(app),
    ),
    "worker_failed_details": State(
        make=worker_failed,
        says=[
            "failed: Lens: residual",
            "layers.arrow",
            "1,843,200 bytes",
            "compare the two captures",
        ],
        press=["4", "exclamation_mark"],
    ),
    "too_small": State(
        make=lambda: KldiveApp(make_source(num_rows=60)),
        says=["kldive needs 60 x 18 or more; ", "prints the report"],
    ),
    "live": State(
        make=lambda: recording(age=2),
        says=[
            "live · 36 rows · chunk 5 · still recording",
            "margin of the choice",
            "not opened",
            "A alone: nothing",
        ],
    ),
    "live_stalled": State(
        make=lambda: recording(age=31),
        says=["stalled · 36 rows · chunk 5 · no new chunk for 30 s; incomplete"],
    ),
    "live_complete": State(
        make=lambda: recording(age=9999, complete=True), says=["complete · 36 rows · 5 chunks"]
    ),
}


def compare_without(site: str) -> Any:
    missing = {f"layers.{layer}.{site}": "the block is fused" for layer in range(3)}
    side = replace(TRAINER, omit=(site,), changes={"missing": missing})
    pair = make_pair(Path("run"), a=replace(ROLLOUT, scale_experts=(1, 1.02)), b=side)
    return compare(pair.a, pair.b, out="run/comparison")


def size_of(name: str) -> tuple[int, int]:
    return (50, 15) if name == "too_small" else SIZE


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    # Paths are on the screen.
    monkeypatch.chdir(tmp_path)


async def settle(pilot: Pilot[None], state: State) -> None:
    """Presses the keys and waits until the state is there, and nothing is read ahead."""
    await pilot.pause()
    for key in state.press:
        await pilot.press(key)
    app = pilot.app
    async with asyncio.timeout(30):
        while not state.settled(app) or is_reading(app):
            await pilot.pause(0.01)
    await pilot.pause()


def is_reading(app: App[None]) -> bool:
    """Whether the main screen still reads ahead: its percentage is on the screen."""
    screens = [screen for screen in app.screen_stack if isinstance(screen, Workbench)]
    return any(screen.background.note for screen in screens)


@pytest.mark.parametrize("name", STATES)
async def test_a_state_says_what_it_is(name: str) -> None:
    state = STATES[name]
    app = state.make()
    async with app.run_test(size=size_of(name)) as pilot:
        await settle(pilot, state)
        text = screen_text(app)
        for words in state.says:
            assert words in text
        assert "Traceback" not in text


@pytest.mark.skipif(
    textual.__version__ != "8.2.8",
    reason=f"drawn with textual 8.2.8, and this is {textual.__version__}",
)
@pytest.mark.parametrize("name", STATES)
def test_a_state_looks_as_it_did(snap_compare: Compare, name: str) -> None:
    state = STATES[name]

    async def run_before(pilot: Pilot[None]) -> None:
        await settle(pilot, state)

    app = state.make()
    assert snap_compare(app, run_before=run_before, terminal_size=size_of(name))
