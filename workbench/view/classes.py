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
    "local_error": "a module's output differs on the same input, beyond its rounding budget",
    "unexplained_flip": "experts differ and the gap was too wide for the input difference",
    "logprob": "the token's log-probability differs beyond tolerance",
    "rounding": "some site differs by more than rounding in this dtype allows",
    "flip": "the two sides select different experts",
    "bit": "any recorded bit differs",
}
