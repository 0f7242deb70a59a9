"""The benchmark of the workbench itself, at a size that takes a second."""

from __future__ import annotations

import argparse
import math
import os
import sys

import pytest

from tests.benchmarks.firstframe import time_opening
from tests.benchmarks.keydriver import Frame, Session, drive
from tests.benchmarks.tui import make_comparison, percentile, summarise
from workbench.comparison.result import Comparison, open_comparison


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """The invented comparison at 4 layers x 200 rows x 16 experts."""
    args = argparse.Namespace(layers=4, rows=200, experts=16)
    return open_comparison(make_comparison(tmp_path_factory.mktemp("big"), args))


def test_the_invented_pair_holds_what_the_workbench_has_to_show(small: Comparison) -> None:
    counts = small.summary["counts"]
    cells = small.num_layers * small.num_rows
    assert counts["bit"] == cells
    assert 0 < counts["unexplained_flip"] < counts["flip"] < cells // 8
    assert small.column("mlp_out.nonfinite_a").sum() == 12
    assert small.class_mask("local_error").any()
    assert small.cell(3, 199, "router_logits").a is not None


async def test_keys_are_timed_with_the_bytes_of_their_frames(small: Comparison) -> None:
    async def script(session: Session) -> list[Frame]:
        # The last token is far from the first error, so the window moves; escape draws nothing.
        return [await session.press(key) for key in ("home", "l", "escape")]

    home, right, escape = await drive(small.directory, (120, 40), script)
    assert home.num_bytes > right.num_bytes > 0
    assert home.longest > 0
    assert home.seconds is not None
    assert (escape.seconds, escape.num_bytes) == (None, 0)


def test_an_opening_is_timed_to_its_first_character_and_to_a_text() -> None:
    code = "import time; print('\\x1b[2J', flush=True); time.sleep(0.1); print('o', flush=True);"
    code += "time.sleep(0.2); print('ver view', flush=True); time.sleep(1)"
    found = time_opening(
        [sys.executable, "-c", code],
        size=(80, 24),
        until="overview",
        environment=dict(os.environ),
    )
    assert found.first >= 0.1
    assert found.complete - found.first >= 0.15


def test_percentiles_are_values_that_were_measured() -> None:
    assert percentile(range(1, 101), 0.95) == 95
    assert percentile([7.0], 0.95) == 7.0
    assert math.isnan(percentile([], 0.5))


def test_keys_that_draw_nothing_count_for_nothing() -> None:
    frames = [
        Frame(0.010, 500, 0.002, 0.003),
        Frame(None, 0, 0.030, 0.040),
        Frame(0.020, 1500, 0.004, 0.006),
    ]
    found = summarise(frames)
    assert found == {
        "count": 2,
        "p50": 10.0,
        "p95": 20.0,
        "held_p50": 4.0,
        "held_max": 30.0,
        "busy_p50": 6.0,
        "kb_max": 1.5,
    }
