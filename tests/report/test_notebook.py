from __future__ import annotations

from pathlib import Path

import pytest
import rich.console

from tests.captures import make_pair
from workbench.comparison.run import compare
from workbench.report.text import show


def test_the_report_is_the_same_text_in_a_notebook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = make_pair(tmp_path)
    comparison = compare(pair.a, pair.b, out=tmp_path / "comparison")
    outside = show(comparison)
    monkeypatch.setattr(rich.console, "_is_jupyter", lambda: True)
    assert show(comparison) == outside
    assert "KL(A‖B)" in outside
