"""Where an error enters, told without the model: the first jump of total error in execution order.

A site jumps when its error exceeds both its rounding budget and what its declared inputs carry,
times `AMPLIFICATION`. A common factor is found more sharply: rounding to nearest has no preferred
sign, so the gain ‖A‖/‖B‖ scatters round 1, and its median over rows stands out long before the
error does. A path that truncates instead shrinks every product by up to 0.72 unit roundoffs each
time, at all layers alike; so a gain counts when it is larger than a few truncations explain, or
when one layer has it and the other layers at the same site do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from workbench.comparison.columns import MEASURED_LAYER_SITES
from workbench.comparison.excuses import Excuses, Tables
from workbench.comparison.locations import MIN_ROWS, Location, Place, locations
from workbench.comparison.publish import finite
from workbench.comparison.tolerance import Budgets

AMPLIFICATION: Final = 3.0
"""How much larger than its inputs' error a correct module's may be: gated products square errors,
and sums that cancel raise them."""

GAIN_ROUNDOFFS: Final = 4.0
"""A gain within this many unit roundoffs may be five truncations inside one module."""

OUTLIER_ROUNDOFFS: Final = 2.0
"""How far one layer's gain must stand out from the other layers', in unit roundoffs."""

INPUTS: Final[Mapping[str, tuple[str, ...]]] = {
    "attn_in": ("input",),
    "attn_out": ("attn_in",),
    "mlp_in": ("input", "attn_out"),
    "router_logits": ("mlp_in",),
    "topk_weights": ("router_logits",),
    "routed_out": ("mlp_in", "topk_weights"),
    "shared_out": ("mlp_in",),
    "mlp_out": ("mlp_in", "routed_out", "shared_out"),
    "output": ("input", "attn_out", "mlp_out"),
}
"""What each site is computed from, within its layer; `input` comes from the layer before."""

# Sums in float32 blur a gain by about 1e-7 times a few.
_SMALLEST_GAIN: Final = 2.0**-18
_STANDARD_ERRORS: Final = 6.0
_MIN_LAYERS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Jump:
    """A site where more error leaves than entered.

    Attributes:
        layer: None for `embed`, `final_norm` and `logits`.
        size: Median relative L2 error at the site.
        input_error: Largest median error among its declared inputs.
        scale: Median best-fit scalar sum(ab)/sum(bb): A is about `scale` * B there.
        gain: Median ‖A‖/‖B‖.
        scale_spread: Robust standard deviation of the gain over rows.
        constant: Whether one factor other than 1 describes all rows.
        rule: `error` or `gain`: which test found it.
        rows: Rows it stands on.
    """

    layer: int | None
    site: str
    size: float
    input_error: float
    scale: float
    gain: float
    scale_spread: float
    constant: bool
    rule: Literal["error", "gain"]
    rows: int

    def to_json(self) -> dict[str, Any]:
        """As `comparison.json` lists it."""
        body = {name: getattr(self, name) for name in self.__slots__}
        return {k: finite(v) if isinstance(v, float) else v for k, v in body.items()}


class _Given(NamedTuple):
    """What a site's inputs carry: error, gain, and gain beyond what is usual at their sites."""

    error: float
    gain: float
    unusual: float


_NOTHING: Final = _Given(0.0, 0.0, 0.0)


def find_jump(tables: Tables, budgets: Budgets, excused: Excuses) -> Jump | None:
    """The first jump in execution order, or None when every site carries on what it was given."""
    found = locations(tables, excused)
    usual = _usual_gains(found, tables.num_layers)
    carried: dict[Place, _Given] = {}
    for place in _execution_order(tables.num_layers):
        given = _given(place, carried)
        at = found.get(place)
        if at is None:
            # A site that was not recorded hands on what it was given.
            carried[place] = given
            continue
        jump = _judge(place, at, given, usual.get(place[1], 0.0), budgets)
        if jump is not None:
            return jump
        carried[place] = _Given(at.error, abs(at.gain), _unusual(at, usual.get(place[1], 0.0)))
    return None


def _execution_order(num_layers: int) -> list[Place]:
    layers: list[Place] = [(i, site) for i in range(num_layers) for site in MEASURED_LAYER_SITES]
    return [(None, "embed"), *layers, (None, "final_norm"), (None, "logits")]


def _usual_gains(found: Mapping[Place, Location], num_layers: int) -> dict[str, float]:
    """Median gain of a site over layers, 0 where there are too few to speak of what is usual."""
    usual = {}
    for site in MEASURED_LAYER_SITES:
        gains = [found[i, site].gain for i in range(num_layers) if (i, site) in found]
        gains = [gain for gain in gains if np.isfinite(gain)]
        if len(gains) >= _MIN_LAYERS:
            usual[site] = float(np.median(gains))
    return usual


def _given(place: Place, carried: Mapping[Place, _Given]) -> _Given:
    layer, site = place
    if layer is None:
        last = [p for p in carried if p[1] in ("output", "final_norm")]
        return carried[last[-1]] if site != "embed" and last else _NOTHING
    if site == "input":
        before: Place = (layer - 1, "output") if layer else (None, "embed")
        return carried[before]
    inputs = [carried[layer, name] for name in INPUTS[site]]
    return _Given(*(max(values) for values in zip(*inputs, strict=True)))


def _judge(
    place: Place, at: Location, given: _Given, usual: float, budgets: Budgets
) -> Jump | None:
    layer, site = place
    constant = _stands_out(at, given, usual, budgets)
    # A softmax turns the absolute error of its scores into a relative one: without knowing their
    # size only a common factor says something about gate weights.
    by_error = (
        site != "topk_weights"
        and at.error > _budget(place, budgets)
        and at.error > AMPLIFICATION * given.error
    )
    if not constant and not by_error:
        return None
    return Jump(
        layer=layer,
        site=site,
        size=at.error,
        input_error=given.error,
        scale=at.scale,
        gain=1.0 + at.gain,
        scale_spread=at.spread,
        constant=constant and abs(at.gain) > 2 * at.spread,
        rule="error" if by_error else "gain",
        rows=at.rows,
    )


def _budget(place: Place, budgets: Budgets) -> float:
    layer, site = place
    return budgets.model[site] if layer is None else float(budgets.layer[site][layer])


def _stands_out(at: Location, given: _Given, usual: float, budgets: Budgets) -> bool:
    """Whether the gain is a finding, by itself or against the other layers."""
    if at.rows < MIN_ROWS or not np.isfinite(at.gain) or budgets.roundoff == 0:
        return False
    certain = max(_SMALLEST_GAIN, _STANDARD_ERRORS * at.spread / np.sqrt(at.rows))
    unusual = _unusual(at, usual)
    return bool(
        _beyond(abs(at.gain), given.gain, max(certain, GAIN_ROUNDOFFS * budgets.roundoff))
        or _beyond(unusual, given.unusual, max(certain, OUTLIER_ROUNDOFFS * budgets.roundoff))
    )


def _unusual(at: Location, usual: float) -> float:
    """How far a gain stands out; a layer free of what all others have is no finding."""
    return min(abs(at.gain), abs(at.gain - usual))


def _beyond(gain: float, given: float, threshold: float) -> bool:
    return gain > threshold and gain > AMPLIFICATION * given
