"""kldive: find where rollout and trainer part, and prove why.

The public names load on first use, so that importing the package costs nothing and never imports
torch, transformers or vllm.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.attribution.run import attribute
    from workbench.capture.trainer import record
    from workbench.comparison.result import Comparison, open_comparison
    from workbench.comparison.run import compare
    from workbench.errors import KldiveError
    from workbench.report.text import show
    from workbench.store import Capture, open_capture
    from workbench.widgets import view as view

__version__ = "0.1.0"

_HOME = {
    "Capture": "workbench.store",
    "Comparison": "workbench.comparison.result",
    "KldiveError": "workbench.errors",
    "attribute": "workbench.attribution.run",
    "compare": "workbench.comparison.run",
    "open_capture": "workbench.store",
    "open_comparison": "workbench.comparison.result",
    "record": "workbench.capture.trainer",
    "show": "workbench.report.text",
}

__all__ = [
    "Capture",
    "Comparison",
    "KldiveError",
    "attribute",
    "compare",
    "open_capture",
    "open_comparison",
    "record",
    "show",
    "view",
]


class _View(ModuleType):
    """The package `workbench.view`, which is also the verb: called, it opens a notebook widget.

    Importing any part of the package binds its name here, so that no function could keep it.
    """

    def __call__(self, comparison: Any, **settings: Any) -> object:
        """As `workbench.widgets.view`: its settings, its errors."""
        return import_module("workbench.widgets").view(comparison, **settings)

    @property
    def __signature__(self) -> object:
        """What an editor shows at the opening bracket."""
        from inspect import signature

        return signature(import_module("workbench.widgets").view)


import_module("workbench.view").__class__ = _View


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'workbench' has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
