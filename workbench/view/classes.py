"""What people read for each class of divergence. Stdlib only."""

from __future__ import annotations

from typing import Final

from workbench.names import DivergenceClass

CLASS_TITLES: Final[dict[DivergenceClass, str]] = {
    "local_error": "local error",
    "unexplained_flip": "unexplained flip",
    "logprob": "logprob",
    "rounding": "above rounding",
    "flip": "flip",
    "bit": "bit difference",
}
CLASS_HELP: Final[dict[DivergenceClass, str]] = {
    "local_error": "a module makes something else of the same input",
    "unexplained_flip": "experts differ, inputs do not explain it",
    "logprob": "log-probability differs beyond tolerance",
    "rounding": "a site differs by more than rounding allows",
    "flip": "the two sides select different experts",
    "bit": "any recorded bit differs",
}
