"""The stepper with Jupyter's own controls above it: what `workbench.view(...)` shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import ipywidgets
import traitlets

from workbench.comparison.tolerance import PROFILES
from workbench.names import DEFAULT_CLASS_ORDER
from workbench.view.actions import ACTION_BY_ID
from workbench.view.classes import CLASS_TITLES
from workbench.view.lenses import LENSES, is_error_lens
from workbench.view.numbers import compact_count
from workbench.view.source import Source
from workbench.view.state import ViewState
from workbench.widgets.divergence import Divergence, Pair
from workbench.widgets.fallback import display_with_fallback, static_bundle
from workbench.widgets.windows import Rectangle

if TYPE_CHECKING:
    import polars as pl

_BUTTONS: Final = (
    ("jump.first", "first", "fast-backward"),
    ("jump.previous", "previous", "step-backward"),
    ("jump.next", "next", "step-forward"),
    ("zoom.in", "", "search-plus"),
    ("zoom.out", "", "search-minus"),
    ("zoom.fit", "fit", "arrows-h"),
)


class Workbench(ipywidgets.VBox):  # type: ignore[misc]
    """`Divergence` below a row of controls; each control is linked with a trait of it.

    Args:
        divergence: The stepper.

    Attributes:
        divergence: The stepper; its traits are what can be read, written and observed.
    """

    def __init__(self, divergence: Divergence) -> None:
        self.divergence = divergence
        super().__init__([_controls(divergence), divergence])

    @property
    def state(self) -> ViewState:
        """What is shown, as one frozen value."""
        return self.divergence.state

    def to_code(self) -> str:
        """The Python that shows this state again."""
        return self.divergence.to_code()

    def frame(self) -> pl.DataFrame:
        """The selected cells, or the cursor's when none is: one line per cell, all its metrics."""
        return self.divergence.frame()

    def to_html(self, path: str | Path) -> Path:
        """Writes one self-contained page with the current window; returns its path."""
        return self.divergence.to_html(path)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        data = super()._repr_mimebundle_(**kwargs)
        return {**data, **static_bundle(self.divergence.model)}

    def _ipython_display_(self, **kwargs: Any) -> None:
        found, model = self._repr_mimebundle_(**kwargs), self.divergence.model
        display_with_fallback(found, {}, model, self.divergence.name)


def view(
    comparison: Source | str | Path,
    *,
    klass: str | None = None,
    lens: str | None = None,
    tolerance: str | None = None,
    cursor: Pair | None = None,
    pin: Pair | None = None,
    window: Rectangle | None = None,
    selection: Sequence[Rectangle] = (),
) -> Workbench:
    """Opens a comparison in the notebook, at its first divergence.

    Args:
        comparison: An open comparison, or the directory of one.
        klass: What counts as a divergence; goes to its first cell.
        lens: What colours the grid.
        tolerance: Profile of the rounding budgets.
        cursor: Layer and token to go to.
        pin: Reference cell.
        window: First layer, layer after the last, first token, token after the last.
        selection: Rectangles of cells, written as `window` is.

    Raises:
        KldiveError: The comparison cannot be read, or a setting does not exist.
    """
    return Workbench(
        Divergence(
            comparison,
            klass=klass,
            lens=lens,
            tolerance=tolerance,
            cursor=cursor,
            pin=pin,
            window=window,
            selection=selection,
        )
    )


def _controls(divergence: Divergence) -> ipywidgets.Widget:
    dropdowns = [
        _dropdown(divergence, "klass", "class", _class_options(divergence)),
        _dropdown(divergence, "lens", "lens", _lens_options(divergence)),
        _dropdown(divergence, "tolerance", "tolerance", _tolerance_options(divergence)),
    ]
    buttons = [_button(divergence, *entry) for entry in _BUTTONS]
    row = ipywidgets.Layout(flex_flow="row wrap", align_items="center", width="100%")
    layers = [_layer_slider(divergence)] if divergence.model.num_layers > 1 else []
    return ipywidgets.Box([*dropdowns, *layers, *buttons], layout=row)


def _class_options(divergence: Divergence) -> list[tuple[str, str]]:
    """Classes with the number of their cells, those without any left out."""
    counts = divergence.model.class_counts()
    kept = [k for k in DEFAULT_CLASS_ORDER if counts[k] or k == divergence.klass]
    return [(f"{CLASS_TITLES[k]} ({compact_count(counts[k])})", k) for k in kept]


def _lens_options(divergence: Divergence) -> list[tuple[str, str]]:
    known = divergence.model.attribution is not None
    shown = [lens for lens in LENSES.values() if known or not is_error_lens(lens.id)]
    return [(f"{lens.key} {lens.title}", lens.id) for lens in shown]


def _tolerance_options(divergence: Divergence) -> list[tuple[str, str]]:
    names = [name for name in PROFILES if name != "auto"]
    return [(name, name) for name in dict.fromkeys([divergence.tolerance, *names])]


def _dropdown(
    divergence: Divergence, trait: str, title: str, options: list[tuple[str, str]]
) -> ipywidgets.Dropdown:
    """A dropdown that mirrors a trait, whatever value that takes."""
    dropdown = ipywidgets.Dropdown(
        options=options,
        value=getattr(divergence, trait),
        description=title,
        layout=ipywidgets.Layout(width="auto", margin="2px 8px 2px 0"),
        style={"description_width": "auto"},
    )

    def follow(_change: object) -> None:
        # What stands now, not what was told: one write may be answered by another.
        value = getattr(divergence, trait)
        if value not in [known for _, known in dropdown.options]:
            # New options make a dropdown choose their first one.
            dropdown.unobserve(lead, names="value")
            dropdown.options = [*dropdown.options, (value, value)]
            dropdown.value = value
            dropdown.observe(lead, names="value")
        elif dropdown.value != value:
            dropdown.value = value

    def lead(change: Any) -> None:
        if change["new"] is not None:
            setattr(divergence, trait, change["new"])

    divergence.observe(follow, names=trait)
    dropdown.observe(lead, names="value")
    return dropdown


def _layer_slider(divergence: Divergence) -> ipywidgets.IntSlider:
    slider = ipywidgets.IntSlider(
        value=divergence.cursor[0],
        min=0,
        max=divergence.model.num_layers - 1,
        description="layer",
        layout=ipywidgets.Layout(width="220px"),
        style={"description_width": "auto"},
    )
    traitlets.link(
        (slider, "value"),
        (divergence, "cursor"),
        transform=(lambda layer: (layer, divergence.cursor[1]), lambda cursor: cursor[0]),
    )
    return slider


def _button(divergence: Divergence, action: str, title: str, icon: str) -> ipywidgets.Button:
    known = ACTION_BY_ID[action]
    button = ipywidgets.Button(
        description=title,
        icon=icon,
        tooltip=f"{known.title} ({known.keys[0]})",
        layout=ipywidgets.Layout(width="auto"),
    )
    button.on_click(_does(divergence, action))
    return button


def _does(divergence: Divergence, action: str) -> Callable[[object], None]:
    return lambda _button: divergence.act(action)
