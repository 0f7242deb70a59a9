"""The modules of one model that can be swapped. Owns their order and how they are called.

Every site that side A recorded is made by exactly one module, so the list is complete and disjoint:
to swap all of them is to swap the whole forward. A module whose own site A lacks is swapped with
the next one that A has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from workbench.attribution.kinds import MODULE_BY_NAME, module_of
from workbench.attribution.local import ModulePlace
from workbench.attribution.substitute import Place
from workbench.capture.structure import ModelParts
from workbench.names import LAYER_SITES

LM_HEAD: ModulePlace = (None, "lm_head")


def find_modules(
    parts: ModelParts, is_there: Callable[[int | None, str], bool]
) -> list[ModulePlace]:
    """Modules in execution order.

    Args:
        parts: The trainer's model.
        is_there: Whether a place (layer, None for a site of the model; site) can be swapped.
    """
    places: list[Place] = [(None, "embed")]
    places += [(layer.index, site) for layer in parts.layers for site in LAYER_SITES]
    places += [(None, "final_norm")]
    found: list[ModulePlace] = []
    for layer, site in places:
        dense = layer is not None and parts.layers[layer].experts is None
        module = module_of(site, dense=dense)
        if module is not None and is_there(layer, site):
            found.append((layer, module.name))
    # The head is swapped by its logits, or by the log-probabilities that every capture has.
    return [*found, LM_HEAD]


def site_of(module: ModulePlace) -> Place:
    """The place that a module makes."""
    return module[0], MODULE_BY_NAME[module[1]].site


def sites_of(modules: Iterable[ModulePlace]) -> frozenset[Place]:
    """The places that some modules make."""
    return frozenset(site_of(module) for module in modules)


def name_of(module: ModulePlace) -> str:
    """As people call it.

    >>> name_of((3, "routed_experts"))
    'L3 routed_experts'
    """
    layer, name = module
    return name if layer is None else f"L{layer} {name}"
