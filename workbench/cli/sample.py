"""Where the bundled model, prompts and recorded captures lie."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import workbench
from workbench.errors import UsageError

_PACKAGE: Final = Path(workbench.__file__).resolve().parent
_ROOTS: Final = (_PACKAGE.parent / "sample_data", _PACKAGE / "sample_data")
"""In a checkout, and in an installed wheel."""


class Sample(NamedTuple):
    """The bundled model, its held-out prompts, and a recorded pair of captures."""

    model: Path
    prompts: Path
    recorded: Path


def bundled_sample() -> Sample:
    """The bundled countdown model.

    Raises:
        UsageError: kldive was installed without its sample data.
    """
    for root in _ROOTS:
        model = root / "countdown-moe"
        if (model / "config.json").exists():
            return Sample(model, model / "prompts.jsonl", root / "captures" / "countdown-bf16")
    raise UsageError(
        "the bundled model is not here",
        where=" or ".join(str(root) for root in _ROOTS),
        do="run kldive from a checkout of its repository (pip install -e .), "
        "or capture a model of your own: kldive capture rollout MODEL ...",
    )
