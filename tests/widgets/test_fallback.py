"""What a notebook keeps of a widget for the day when no kernel runs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.view.synthetic import make_source
from workbench.widgets import Divergence, content, fallback, view

WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.mark.parametrize("make", [Divergence, view])
def test_the_picture_is_an_output_of_its_own_after_the_widget(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[dict[str, Any]] = []
    monkeypatch.setattr(fallback, "display", lambda data, **_: shown.append(data))
    widget = make(make_source(flips=((1, 5),), noise=1e-5))
    widget._ipython_display_()
    stepper = getattr(widget, "divergence", widget)
    living, saved = shown
    assert living[WIDGET]["model_id"] == widget.model_id
    # Where no widget can run, nothing stands in its place but what follows.
    assert living["text/plain"] == ""
    assert living["text/html"].startswith("<!--")
    assert WIDGET not in saved
    assert "first flip: L1 t5" in saved["text/html"]
    assert "first flip: L1 t5" in saved["text/plain"]
    assert f'class="kld-saved kld-saved-{stepper.name}"' in saved["text/html"]
    assert stepper._about["name"] == stepper.name


def test_a_newer_format_is_said_in_the_widget_and_in_what_is_saved() -> None:
    source = make_source()
    source.summary["version"] = 2
    model = Divergence(source).model
    said = "format 2, newer than 1"
    assert said in content.about(model)["warnings"]
    assert said in fallback.short_report(model)
