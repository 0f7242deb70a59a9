"""Notebook widgets over the same view-model as the terminal workbench.

The names load on first use: what has no need of anywidget does not import it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from workbench.errors import missing_extra

if TYPE_CHECKING:
    from workbench.widgets.divergence import Divergence
    from workbench.widgets.linking import Link, link
    from workbench.widgets.panel import Workbench, view

_HOME = {
    "Divergence": "workbench.widgets.divergence",
    "Link": "workbench.widgets.linking",
    "Workbench": "workbench.widgets.panel",
    "link": "workbench.widgets.linking",
    "view": "workbench.widgets.panel",
}
_OPTIONAL = ("altair", "anywidget", "ipywidgets", "traitlets")

__all__ = ["Divergence", "Link", "Workbench", "link", "view"]


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'workbench.widgets' has no attribute {name!r}")
    try:
        value: object = getattr(import_module(home), name)
    except ModuleNotFoundError as error:
        if error.name not in _OPTIONAL:
            raise
        raise missing_extra(error.name, "for notebook widgets", "jupyter") from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
