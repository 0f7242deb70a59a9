"""What experiments add to the report: sentences and bars, from the summary alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from rich.console import Console

from workbench.report.experiments import bisection_text, experiments
from workbench.view.bars import BAR_WIDTH, bar


def page(summary: dict[str, Any]) -> str:
    console = Console(width=100, record=True, file=None, force_terminal=False)
    with console.capture() as capture:
        for part in experiments(SimpleNamespace(summary=summary)):  # type: ignore[arg-type]
            console.print(part)
    return capture.get()


def rung(name: str, kl: float | None, left: float | None, reason: str = "") -> dict[str, Any]:
    numbers = {} if kl is None else {"kl": kl, "k3": kl, "max_abs_dlogp": 0.1, "left": left}
    return {"rung": name, "about": "", "reason": reason, **numbers}


def test_a_comparison_without_experiments_adds_nothing() -> None:
    assert experiments(SimpleNamespace(summary={})) == []  # type: ignore[arg-type]


def test_bars_keep_their_share_to_an_eighth_of_a_column() -> None:
    assert bar(1.0) == "█" * BAR_WIDTH
    assert bar(0.0) == bar(None) == ""
    assert bar(1 / 16, 2) == "▏"
    assert bar(3.0, 4) == "████▸"


def test_the_ladder_shows_every_rung_and_why_one_is_missing() -> None:
    rungs = [
        rung("live", 4e-4, 1.0),
        rung("same set", 2e-4, 0.5),
        rung("same combine order", None, None, "in this type the order is far below rounding"),
    ]
    lines = page({"ladder": rungs}).splitlines()
    live, same_set, order = (
        next(line for line in lines if line.startswith(name))
        for name in ("live", "same set", "same combine order")
    )
    assert live.count("█") == BAR_WIDTH
    assert same_set.count("█") == BAR_WIDTH // 2
    assert "50%" in same_set
    assert "–" in order


def test_what_a_bisection_found_is_one_sentence() -> None:
    found = {
        "state": "found",
        "modules": [{"layer": 3, "module": "routed_experts"}, {"layer": None, "module": "lm_head"}],
        "threshold": 1e-4,
        "kl_before": 2e-2,
        "kl_after": 3e-5,
        "kl_everything": 0.0,
        "forward_passes": 9,
        "candidates": 40,
    }
    text = bisection_text(found)
    assert "L3 routed experts, lm head" in text
    assert "9 forward passes, 40 candidates" in text
    assert "nothing swapped" in bisection_text({**found, "state": "below"})
    assert "still leaves" in bisection_text({**found, "state": "not_removable"})


def test_the_proof_says_what_is_missing() -> None:
    proof = {"state": "suspected", "text": "L1 attention is suspected: something else takes part"}
    assert "suspected  L1 attention is suspected" in page({"proof": proof})
