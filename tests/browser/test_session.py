"""A notebook from its first run to its reading without a kernel, by its owner and by others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.lab import Lab
from tests.browser.stepper import Stepper
from workbench.comparison.result import open_comparison
from workbench.view.headline import headline, verdict_line
from workbench.view.model import ViewModel

pytestmark = [pytest.mark.browser, pytest.mark.slow]

NAME = "session.ipynb"
VIEW = "import workbench as wb\nshown = wb.view({path!r})\nshown"
LINKED = """
import json
from ipywidgets import VBox
from workbench.widgets import Divergence, link
left, right = Divergence({path!r}), Divergence({path!r})
link(left, right, by="token")
VBox([left, right])
"""
CHART = """
import workbench as wb
from workbench.widgets import charts
charts.layer_profile(wb.open_comparison({path!r}))
"""
UNKNOWN_MODEL = "widget model not found"
MAX_SAVED_BYTES = 200_000


@pytest.fixture
def session(lab: Lab) -> Iterator[Lab]:
    """JupyterLab with the notebook of these tests closed afterwards."""
    yield lab
    lab.close(NAME)


@pytest.fixture
def saved(session: Lab, recorded: Path) -> Lab:
    """A notebook that was run, saved and closed, and whose kernel is gone."""
    session.write(NAME, [VIEW.format(path=str(recorded))])
    session.open(NAME)
    Stepper(session, cell=0, name="shown").show()
    session.save()
    session.close(NAME)
    session.server.shut_kernel(NAME)
    return session


@pytest.fixture(scope="module")
def finding(recorded: Path) -> list[str]:
    """What the comparison comes to, in the words of every face."""
    model = ViewModel(open_comparison(recorded))
    return [verdict_line(model).text, headline(model).text]


def test_all_cells_run_from_the_menu(session: Lab, recorded: Path) -> None:
    session.write(NAME, [VIEW.format(path=str(recorded)), "print(shown.divergence.cursor)"])
    session.open(NAME)
    session.page.get_by_role("menuitem", name="Run", exact=True).click()
    session.page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    shown = Stepper(session, cell=0, name="shown")
    expect(shown.address).to_be_visible()
    expect(session.output(1)).to_contain_text("(0, ")
    # The picture for later stays out of sight while the widget lives.
    expect(session.output(0).get_by_role("img")).to_have_count(0)


def test_the_owner_reads_the_finding_without_a_kernel(
    saved: Lab, finding: list[str], screenshots: Path
) -> None:
    assert (saved.server.notebooks / NAME).stat().st_size < MAX_SAVED_BYTES
    saved.open(NAME)
    output = saved.output(0)
    for text in finding:
        expect(output).to_contain_text(text)
    expect(output.get_by_role("img")).to_be_visible()
    complaint = output.get_by_text("Error displaying widget")
    expect(complaint).to_be_attached()
    expect(complaint).not_to_be_visible()
    output.screenshot(path=screenshots / "saved-trusted.png")
    # JupyterLab says it on the console, too.
    assert [text for text in saved.complaints if UNKNOWN_MODEL not in text] == []
    saved.complaints.clear()


def test_a_stranger_reads_the_finding_without_trust(
    saved: Lab, finding: list[str], screenshots: Path
) -> None:
    path = saved.server.notebooks / NAME
    notebook = saved.read(NAME)
    # Any change from outside takes the owner's signature away.
    notebook["metadata"]["sent_by"] = "a colleague"
    path.write_text(json.dumps(notebook), encoding="utf-8")
    saved.open(NAME)
    output = saved.output(0)
    for text in finding:
        expect(output).to_contain_text(text)
    picture = output.get_by_role("img")
    expect(picture).to_be_visible()
    assert picture.evaluate("(image) => image.decode().then(() => image.clientWidth)") > 500
    output.screenshot(path=screenshots / "saved-untrusted.png")


def test_linked_widgets_move_together(session: Lab, recorded: Path) -> None:
    session.write(NAME, [LINKED.format(path=str(recorded)), ""])
    session.open(NAME)
    session.run(0)
    grids = session.output(0).get_by_role("grid")
    addresses = session.output(0).locator(".kld-at b")
    expect(addresses).to_have_count(2)
    grids.nth(0).focus()
    session.page.keyboard.press("End")
    expect(addresses).to_have_text(["L0 t309", "L0 t309"])
    grids.nth(1).focus()
    session.page.keyboard.press("Home")
    expect(addresses).to_have_text(["L0 t0", "L0 t0"])
    assert session.python("print(left.cursor, right.cursor)") == "(0, 0) (0, 0)"


def test_a_chart_is_drawn_without_a_network(
    session: Lab, recorded: Path, screenshots: Path
) -> None:
    session.write(NAME, [CHART.format(path=str(recorded))])
    session.open(NAME)
    session.run(0)
    picture = session.output(0).get_by_role("img")
    expect(picture).to_be_visible()
    assert picture.evaluate("(image) => image.decode().then(() => image.naturalWidth)") > 400
    looks = []
    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        session.theme(theme)
        looks.append(session.output(0).screenshot(path=screenshots / f"chart in {theme}.png"))
    session.theme("JupyterLab Light")
    light, dark = looks
    assert light != dark


def test_a_request_to_another_machine_would_be_seen(lab: Lab) -> None:
    answered = lab.page.evaluate(
        "() => fetch('https://kldive.invalid/script.js').then(() => true, () => false)"
    )
    assert not answered
    assert lab.asked == ["https://kldive.invalid/script.js"]
    lab.asked.clear()
    lab.complaints.clear()


def test_with_saved_widget_state_the_cells_are_still_drawn(
    session: Lab, recorded: Path, screenshots: Path
) -> None:
    session.write(NAME, [f"import json\n{VIEW.format(path=str(recorded))}", ""])
    session.open(NAME)
    shown = Stepper(session, cell=0, name="shown")
    shown.show()
    places = shown.places([(layer, row) for layer in range(4) for row in range(30, 50)])
    points = [(left + 1.5, top + 1.5) for left, top, _, _ in places]
    drawn = shown.colours_at(points)
    assert len(set(drawn)) > 1
    session.command("@jupyter-widgets/jupyterlab-manager:saveWidgetState")
    session.save()
    session.close(NAME)
    session.server.shut_kernel(NAME)
    session.open(NAME)
    expect(shown.inspector).to_contain_text("No kernel answers")
    assert shown.colours_at(points) == drawn
    session.output(0).screenshot(path=screenshots / "saved-state.png")
