"""The workbench over comparisons made by the real comparing code from captures on disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.captures import ROLLOUT, TRAINER, make_pair
from tests.tui.test_app import screen_text
from tui.app import KldiveApp
from workbench.address import parse_address
from workbench.comparison.run import compare

BF16 = {"dtype": "bfloat16"}


def compared(directory: Path, a: dict[str, Any], b: dict[str, Any]) -> Any:
    pair = make_pair(directory, a=replace(ROLLOUT, **a), b=replace(TRAINER, **b))
    return compare(pair.a, pair.b, out=directory / "comparison")


@pytest.mark.parametrize(
    ("a", "b", "findings"),
    [
        ({}, {}, ["equal · identical", "identical: 0 of 108 cells differ"]),
        ({**BF16, "rounding": "often"}, BF16, ["equal · rounding", "within rounding: "]),
        ({"ids": [(1, 5, 1, 7)]}, {}, ["L1 t5 ", "experts A {"]),
        (
            {"values": [("layers.1.mlp_out", 7, 3, float("nan"))]},
            {},
            ["L1 t7 ", "NaN or Inf in A (1)"],
        ),
    ],
)
async def test_opens_a_comparison_at_its_finding(
    tmp_path: Path, a: dict[str, Any], b: dict[str, Any], findings: list[str]
) -> None:
    app = KldiveApp(compared(tmp_path, a, b))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        text = screen_text(app)
        for finding in findings:
            assert finding in text
        for keys in ("2", "3", "4", "5", "1", "n", "N", "f", "f", "G", "end", "y"):
            await pilot.press(keys)
        await pilot.pause()
        assert "A rollout" in screen_text(app)


async def test_a_row_that_was_only_sampled_is_shown_as_absent(tmp_path: Path) -> None:
    comparison = compared(tmp_path, {"sampled_last": True}, {})
    row = comparison.rows["state_a"].to_list().index("sampled")
    app = KldiveApp(comparison, at=parse_address(f"L1 t{row}"))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        assert "sampled last, never fed back" in screen_text(app)


async def test_a_removed_capture_leaves_a_usable_screen(tmp_path: Path) -> None:
    comparison = compared(tmp_path, {}, {})
    (tmp_path / "a").rename(tmp_path / "elsewhere")
    app = KldiveApp(comparison)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("l", "j")
        await pilot.pause()
        assert "the capture of side A is not where it" in screen_text(app)
