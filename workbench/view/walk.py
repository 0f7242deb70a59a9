"""The way of one token through the model: every recorded place in execution order.

From the embedding through every layer to the log-probability of the token that comes next. Sites of
the whole model stand in a layer of the grid as the classes of divergence place them: `embed` in the
first, `final_norm`, `logits` and the log-probability in the last. A token's log-probability comes
from the row before it, so the step from `logits` goes to the next row of the request, and back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from workbench.names import LAYER_SITES, LOGPROBS, SITE_BY_NAME
from workbench.view.facts import recorded_model_sites
from workbench.view.state import Cell

if TYPE_CHECKING:
    from workbench.view.model import ViewModel

BEFORE_LAYERS: Final = ("embed",)
AFTER_LAYERS: Final = ("final_norm", "logits", LOGPROBS)
OF_MODEL: Final = (*BEFORE_LAYERS, *AFTER_LAYERS)
_ORDER: Final = {
    site: place for place, site in enumerate((*BEFORE_LAYERS, *LAYER_SITES, *AFTER_LAYERS))
}
_OF_EXPERTS: Final = ("router_logits", "topk_ids", "topk_weights", "routed_out", "shared_out")


class Stop(NamedTuple):
    """A place on the way."""

    layer: int
    row: int
    site: str

    @property
    def cell(self) -> Cell:
        """The cell of the grid that it belongs to."""
        return Cell(self.layer, self.row)

    @property
    def model_layer(self) -> int | None:
        """The layer, None for a site of the whole model."""
        return None if self.site in OF_MODEL else self.layer


def home_layer(site: str, num_layers: int) -> int | None:
    """The layer of the grid that a site of the whole model stands in; None for a layer's site."""
    if site in BEFORE_LAYERS:
        return 0
    return max(num_layers - 1, 0) if site in AFTER_LAYERS else None


def stops_of_layer(model: ViewModel, layer: int) -> list[str]:
    """Sites at a layer of the grid in execution order, those of the whole model included."""
    known = recorded_model_sites(model.source)
    dense = model.facts.layer_kind(layer) == "dense"
    sites = [site for site in model.sites if not (dense and site in _OF_EXPERTS)]
    before = [site for site in BEFORE_LAYERS if site in known and layer == 0]
    last = layer == model.num_layers - 1
    return [*before, *sites, *(site for site in AFTER_LAYERS if site in known and last)]


def settled(site: str, layer: int, num_layers: int) -> str:
    """The site to look at in a layer when `site` was looked at elsewhere.

    >>> settled("final_norm", 2, 4), settled("final_norm", 3, 4), settled("mlp_in", 0, 4)
    ('output', 'final_norm', 'mlp_in')
    """
    home = home_layer(site, num_layers)
    if home is None or home == layer:
        return site
    return "input" if site in BEFORE_LAYERS else "output"


def next_stop(model: ViewModel, here: Stop) -> Stop | None:
    """The place after `here`; None at the end of the way."""
    later = [s for s in stops_of_layer(model, here.layer) if _ORDER[s] > _ORDER[here.site]]
    if later and later[0] == LOGPROBS:
        stop = model.request_rows(here.row)[1]
        return Stop(here.layer, here.row + 1, LOGPROBS) if here.row + 1 < stop else None
    if later:
        return Stop(here.layer, here.row, later[0])
    for layer in range(here.layer + 1, model.num_layers):
        sites = stops_of_layer(model, layer)
        if sites:
            return Stop(layer, here.row, sites[0])
    return None


def previous_stop(model: ViewModel, here: Stop) -> Stop | None:
    """The place before `here`; None at the start of the way."""
    row = here.row
    if here.site == LOGPROBS and row > model.request_rows(row)[0]:
        row -= 1
    for layer in range(here.layer, -1, -1):
        sites = stops_of_layer(model, layer)
        if layer == here.layer:
            sites = [site for site in sites if _ORDER[site] < _ORDER[here.site]]
        if sites:
            return Stop(layer, row, sites[-1])
    return None


def stops(model: ViewModel, row: int) -> Iterator[Stop]:
    """Every place of a row's own way, in execution order, its own log-probability last."""
    for layer in range(model.num_layers):
        for site in stops_of_layer(model, layer):
            yield Stop(layer, row, site)


def is_site(site: str, model: ViewModel) -> bool:
    """Whether a site was recorded and can be put in focus."""
    return site in model.sites or site in recorded_model_sites(model.source)


def has_vector(site: str) -> bool:
    """Whether a site holds a tensor; a log-probability is one number."""
    return site in SITE_BY_NAME
