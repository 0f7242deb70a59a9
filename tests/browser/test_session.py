"""A notebook from its opening to its reading without a kernel."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.lab import Lab
from tests.browser.stepper import Stepper

pytestmark = [pytest.mark.browser, pytest.mark.slow]

VIEW = "import workbench as wb\nshown = wb.view({path!r})\nshown"
LINKED = """
from workbench.widgets import Divergence, link
left, right = Divergence({path!r}), Divergence({path!r})
link(left, right, by="token")
left
"""
CHART = """
import workbench as wb
from workbench.widgets import charts
charts.layer_profile(wb.open_comparison({path!r}))
"""


def test_all_cells_run_from_the_menu(lab: Lab, recorded: Path) -> None:
    lab.write("menu.ipynb", [VIEW.format(path=str(recorded)), "print(shown.divergence.cursor)"])
    lab.open("menu.ipynb")
    lab.page.get_by_role("menuitem", name="Run", exact=True).click()
    lab.page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    shown = Stepper(lab, cell=0, name="shown")
    expect(shown.grid).to_be_visible(timeout=20_000)
    expect(lab.output(1)).to_contain_text("(0, ", timeout=20_000)
    lab.close()
