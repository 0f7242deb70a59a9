"""What happens at one site of one token, in one sentence: what a person reads at every step.

Pure: from plain facts to words, no reading and no layout. Differences are A minus B. What is
missing is said to be missing, with what would record it, and is never called equal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from workbench.comparison.columns import AFTER_ROUTING
from workbench.names import LOGPROBS
from workbench.view.inspector import LogprobFacts, Margin, RouterFacts, SiteDifference
from workbench.view.local import ModuleError
from workbench.view.numbers import compact_count, short, signed
from workbench.view.rows import quote

TITLES: Final[dict[str, str]] = {
    "embed": "embedding",
    "input": "layer input",
    "attn_in": "attention input",
    "attn_out": "attention output",
    "mlp_in": "MoE input",
    "router_logits": "router logits",
    "topk_ids": "top-k",
    "topk_weights": "gate weights",
    "routed_out": "routed experts",
    "shared_out": "shared expert",
    "mlp_out": "combined output",
    "output": "layer output",
    "final_norm": "final norm",
    "logits": "logits",
    LOGPROBS: "logprob",
}
_DENSE_TITLES: Final = {"mlp_in": "MLP input", "mlp_out": "MLP output"}
FEW_ULPS: Final = 4
"""Up to so many units of the last place, every element is said to be equal to that many."""
ROOM: Final = 78
"""Columns of a sentence: a terminal of 80 shows it whole."""
_MAX_TOKEN: Final = 8
_MAX_IDS: Final = 15
_LOCAL: Final = "LOCAL ERROR"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """What is known at one site of one token.

    Attributes:
        layer: None for a site of the whole model.
        site: Short name, or `logprobs`.
        dense: Whether the layer has a dense MLP instead of experts.
        difference: A against B; None where neither the site nor the row has one.
        budget: Relative L2 that rounding allows here; None where the site has no budget.
        excused: Whether it lies downstream of an explained flip.
        error: The module that makes the site, on A's input; None before attribution.
        entering: Largest relative L2 of what goes into the site at this row; None where unknown.
        earlier: Whether earlier tokens go in as well, as they do in attention.
        router: Both routers of the layer, or None.
        mass_moved: Half the summed difference of the gate weights, matched by expert.
        logprob: Of the token.
        tolerance: Of |dlogp| in nats.
        text: The token's text.
        absent: Why there is nothing, when there is nothing.
    """

    layer: int | None
    site: str
    dense: bool = False
    difference: SiteDifference | None = None
    budget: float | None = None
    excused: bool = False
    error: ModuleError | None = None
    entering: float | None = None
    earlier: bool = False
    router: RouterFacts | None = None
    mass_moved: float | None = None
    logprob: LogprobFacts | None = None
    tolerance: float | None = None
    text: str = ""
    absent: str = "not recorded on both sides"


def step_title(layer: int | None, site: str, *, dense: bool = False) -> str:
    """A site as people call it.

    >>> step_title(2, "mlp_out"), step_title(2, "mlp_out", dense=True), step_title(None, "embed")
    ('L2 combined output', 'L2 MLP output', 'embedding')
    """
    title = (_DENSE_TITLES if dense else TITLES).get(site, TITLES.get(site, site))
    return title if layer is None else f"L{layer} {title}"


def step_sentence(facts: StepFacts) -> str:
    """The sentence, with the layer and the site in front."""
    title = step_title(facts.layer, facts.site, dense=facts.dense)
    if facts.site == LOGPROBS:
        return f"{title} of {quote(facts.text, _MAX_TOKEN)}: {_logprob(facts)}"
    found = facts.difference
    if found is None or not found.known:
        return f"{title}: {facts.absent}"
    if facts.site == "topk_ids":
        return f"{title}: {_choice(facts)}"
    return _fitting(f"{title}: ", _size(found, facts.budget), _extra(facts), _origin(facts))


def _fitting(title: str, size: str, extra: str, origin: str) -> str:
    """The longest form that fits a line; a local error is never what is left out."""
    local = origin.startswith(_LOCAL)
    forms = [[size, extra, origin], [size, origin] if local or not extra else [size, extra]]
    texts = [title + "; ".join(filter(None, form)) for form in forms]
    brief = [text.replace("rounding budget", "budget") for text in texts]
    least = "; ".join(filter(None, (size.partition(",")[0], origin)))
    order = (texts[0], brief[0], texts[1], brief[1], f"{title}{least}")
    return next((text for text in order if len(text) <= ROOM), order[-1])


def _size(found: SiteDifference, budget: float | None) -> str:
    """How far the sides are apart, and what part of the budget that is."""
    if found.nonfinite_a or found.nonfinite_b:
        sides = (("A", found.nonfinite_a), ("B", found.nonfinite_b))
        return "NaN or Inf in " + " and ".join(f"{side} ({n})" for side, n in sides if n)
    if found.bit_equal:
        return "equal bit for bit"
    if found.max_ulp is not None and found.max_ulp <= FEW_ULPS:
        few = int(found.max_ulp)
        size = f"equal to {few} ULP" if few else "equal in the coarser type"
    else:
        size = f"rel L2 {short(found.rel_l2, 1)}"
    share = of_budget(found.rel_l2, budget)
    return f"{size}, {share}" if share else size


def of_budget(value: float | None, budget: float | None) -> str:
    """A difference as a part or a multiple of the rounding budget; empty where there is none.

    >>> of_budget(0.002, 0.005), of_budget(0.02, 0.005), of_budget(0.0, 0.005), of_budget(1e-9, 0.0)
    ('0.4 of the rounding budget', '4.0 × the rounding budget', '', 'beyond: no rounding here')
    """
    if value is None or budget is None or not math.isfinite(value) or value == 0:
        return ""
    if budget == 0:
        return "beyond: no rounding here"
    return _part(value / budget, "rounding budget")


def _part(share: float, whole: str) -> str:
    """A share in words: a part up to 1, a multiple beyond."""
    if share <= 1:
        return f"{'<0.1' if share < 0.05 else f'{share:.1f}'} of the {whole}"
    size = f"{share:.1f}" if share < 100 else compact_count(int(min(share, 1e12)))
    return f"{size} × the {whole}"


def _extra(facts: StepFacts) -> str:
    """What else counts at a site: the router's margin, the mass that its gates moved."""
    if facts.site == "router_logits" and facts.router is not None:
        return _margin(facts.router.margin_a, facts.router.margin_b)
    if facts.site == "topk_weights" and facts.mass_moved:
        return f"{short(facts.mass_moved, 1)} of the mass moved"
    return ""


def _margin(margin_a: Margin, margin_b: Margin) -> str:
    """The smaller gap between the last expert selected and the first rejected."""
    known = [m for m in (margin_a, margin_b) if m.gap is not None and not math.isnan(m.gap)]
    if not known:
        return ""
    least = min(known, key=lambda m: m.gap or 0.0)
    if not least.gap:
        return "margin 0, a tie"
    if math.isnan(least.ulps):
        return f"margin {short(least.gap, 1)}"
    count = f"{least.ulps:.0f}" if least.ulps < 1000 else compact_count(int(least.ulps))
    return f"margin {short(least.gap, 1)}, {count} ULP"


def _choice(facts: StepFacts) -> str:
    """Which experts flip, and whether the input can explain it."""
    router, found = facts.router, facts.difference
    if found is not None and found.bit_equal:
        other = router is not None and not router.same_order
        return "same experts, in another order" if other else "same experts"
    if router is None:
        return "the sides select different experts"
    return f"{_flipped(router)}; {_why(router)}"


def _flipped(router: RouterFacts) -> str:
    only_a = ",".join(str(row.expert) for row in router.experts if row.on == "A")
    only_b = ",".join(str(row.expert) for row in router.experts if row.on == "B")
    flips = f"{router.num_flips} flip{'' if router.num_flips == 1 else 's'}"
    known = only_a and only_b and len(only_a) + len(only_b) <= _MAX_IDS
    return f"{flips}, A {only_a} → B {only_b}" if known else flips


def _why(router: RouterFacts) -> str:
    if router.explained is None:
        return "not judged: inputs or scores are missing"
    if router.explained:
        return "gap within the input difference: explained"
    return f"needs {short(router.needed, 1)}, inputs move {short(router.bound, 1)}: UNEXPLAINED"


def _origin(facts: StepFacts) -> str:
    """Where the difference comes from, as far as the data say."""
    found = facts.difference
    if found is None or (found.bit_equal and not (found.nonfinite_a or found.nonfinite_b)):
        return ""
    if facts.error is not None and facts.error.over:
        return _wrong(facts.error)
    flipped = facts.router is not None and facts.router.num_flips > 0
    if flipped and facts.site in ("topk_weights", *AFTER_ROUTING):
        return "other experts" if facts.site == "topk_weights" else "other experts ran"
    if facts.error is not None:
        return _attributed(facts.error)
    if facts.excused:
        return "after an explained flip"
    return _by_input(found.rel_l2, facts)


def _wrong(error: ModuleError) -> str:
    sides = {"A": "A wrong", "B": "B wrong", "AB": "both wrong"}
    return f"{_LOCAL}: {sides.get(error.outside, 'no arbiter')}"


def _attributed(error: ModuleError) -> str:
    if error.local is None:
        return "not attributable"
    if error.local == 0 or (error.inherited is not None and error.inherited >= error.local):
        return "inherited"
    return "its own rounding"


def _by_input(size: float | None, facts: StepFacts) -> str:
    """Without the model: whether more leaves than entered."""
    entering = facts.entering
    if entering is None or size is None or math.isnan(entering):
        return ""
    if entering == 0:
        return "arises in attention" if facts.earlier else "arises here"
    if size <= entering:
        return "as it came in" if size == entering else "less than came in"
    return f"{short(entering, 1)} came in"


def _logprob(facts: StepFacts) -> str:
    found = facts.logprob
    if found is None or found.a is None or found.b is None:
        return facts.absent
    broken = [side for side, value in (("A", found.a), ("B", found.b)) if math.isnan(value)]
    if broken:
        return f"NaN in {' and '.join(broken)}"
    if found.a == found.b:
        return "the same on both sides"
    text = f"dlogp {signed(found.a - found.b)} (A − B)"
    if facts.tolerance is None:
        return text
    if facts.tolerance == 0:
        return f"{text}, beyond: no difference is allowed"
    share = _part(abs(found.a - found.b) / facts.tolerance, "tolerance").replace("the ", "")
    return f"{text}, {share}; after a flip" if facts.excused else f"{text}, {share}"
