"""One JupyterLab, one browser and one page for all of this folder; a fresh widget for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Playwright, sync_playwright

from tests.browser import browsers
from tests.browser.lab import Lab
from tests.browser.server import Server
from tests.browser.stepper import Stepper
from tests.captures import ROLLOUT, TRAINER, Toy, make_pair
from workbench.comparison.run import compare

SAMPLE_DATA = Path(__file__).resolve().parents[2] / "sample_data"
VIEWPORT = (1440, 1100)
NOTEBOOK = "stepper.ipynb"
SETUP = """
import json
import workbench as wb
from workbench.view.state import Cell
from workbench.widgets import content

def inspected(layer, token):
    return content.inspected(shown.divergence.model, Cell(layer, token))

shown = wb.view({path!r})
shown
"""


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """JupyterLab, starting: `page` waits for it."""
    found = Server(tmp_path_factory.mktemp("jupyter"))
    found.start()
    yield found
    found.stop()


@pytest.fixture(scope="package")
def driver() -> Iterator[Playwright]:
    with sync_playwright() as found:
        yield found


@pytest.fixture(scope="package")
def browser(server: Server, driver: Playwright) -> Iterator[Browser]:
    found = driver.chromium.launch(
        executable_path=browsers.chromium(), args=browsers.launch_arguments()
    )
    yield found
    found.close()


@pytest.fixture(scope="package")
def lab(browser: Browser, server: Server, faulty: Path) -> Lab:
    """JupyterLab in its page."""
    width, height = VIEWPORT
    context = browser.new_context(viewport={"width": width, "height": height}, locale="en-GB")
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    server.wait()
    found = Lab(context.new_page(), server)
    found.load()
    return found


@pytest.fixture(scope="package")
def faulty(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Path:
    """A comparison with a wrong layer, and one flip that no rounding explains."""
    directory = tmp_path_factory.mktemp("faulty")
    toy = Toy(num_layers=6, lengths=(60, 45, 75))
    rollout = replace(
        ROLLOUT, dtype="bfloat16", rounding="often", scale_experts=(2, 1.3), ids=[(1, 9, 1, 3)]
    )
    a, b = make_pair(directory, toy=toy, a=rollout, b=replace(TRAINER, dtype="bfloat16"))
    return compare(a, b, out=directory / "comparison").directory


@pytest.fixture(scope="package")
def recorded(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Path:
    """The bundled model's own rollout and trainer, compared: equal within rounding, with flips."""
    captures = SAMPLE_DATA / "captures" / "countdown-bf16"
    out = tmp_path_factory.mktemp("recorded") / "comparison"
    return compare(captures / "rollout", captures / "trainer", out=out).directory


@pytest.fixture(scope="package")
def notebook(lab: Lab, faulty: Path) -> Lab:
    """A notebook with the widget in its first cell, and two more."""
    lab.write(NOTEBOOK, [SETUP.format(path=str(faulty)), "# a cell to be left alone", ""])
    lab.open(NOTEBOOK)
    return lab


@pytest.fixture
def stepper(notebook: Lab) -> Stepper:
    """A fresh widget in the notebook, which is in front."""
    notebook.open(NOTEBOOK)
    found = Stepper(notebook, cell=0, name="shown")
    found.show()
    return found


@pytest.fixture(autouse=True)
def quiet(request: pytest.FixtureRequest) -> Iterator[None]:
    """Nothing is asked of another machine, and nothing complains on the console."""
    yield
    if "lab" not in request.fixturenames:
        return
    lab: Lab = request.getfixturevalue("lab")
    asked, complaints = lab.asked[:], lab.complaints[:]
    lab.asked.clear()
    lab.complaints.clear()
    assert not asked, "the page asked another machine"
    assert not complaints


@pytest.fixture(scope="session")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pictures go: $KLDIVE_SCREENSHOTS, else a temporary folder."""
    wanted = os.environ.get("KLDIVE_SCREENSHOTS")
    folder = Path(wanted) if wanted else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
