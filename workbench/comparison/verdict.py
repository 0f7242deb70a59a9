"""How a comparison ends: status, reason and verdict, by rules that are all in this file.

Status
    not_comparable  the tokens part, so that only what comes before was compared; a capture is
                    damaged or unfinished; nothing could be compared; or nothing diverged and no
                    row was scored on both sides
    diverged        other weights; NaN or Inf on one side alone; an unexplained flip; a jump; an
                    error above its budget, or a log-probability beyond tolerance, that no
                    explained flip excuses; a mean KL above the gate over rows not excused
    equal           none of these, over what was compared
                    (attribution makes this diverged when it finds a module beyond its rounding
                    budget on equal inputs)

Verdict
    alignment   the tokens part
    state       the weights differ
    capture     a side holds NaN or Inf that the other does not
    semantic    an unexplained flip, an error that no coarser type explains, or one constant factor
    precision   the paths run in different types, or the error fits the rounding of a coarser type
    rounding    within budget, not bit-equal
    identical   every compared bit agrees
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from workbench.comparison.jump import Jump
from workbench.names import DivergenceClass, Status, Verdict

_COARSER: Final[Mapping[str, str]] = {"fp32": "bf16", "fp16": "bf16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What the rules look at.

    Attributes:
        incomplete: Why a capture is not whole, "" when both are.
        other_tokens: Where the tokens part and what was left out, "" when they are the same.
        num_compared: Rows with anything compared.
        num_scored: Rows with a log-probability, or logits, on both sides.
        num_excused: Rows that lie downstream of an explained flip.
        weights: `equal`, `different` or `unknown`.
        weights_text: In words.
        one_sided_nonfinite: Cells with NaN or Inf on one side alone.
        counts: Cells per class, excused ones left out.
        jump: The first jump.
        mean_kl: Over rows that are not excused; None when there is none.
        kl_gate: Of the profile.
        same_dtype: Whether both paths run in one type.
        all_equal: Whether every compared bit and log-probability agrees.
        fits_coarser: Whether a coarser profile would find nothing.
    """

    incomplete: str
    other_tokens: str
    num_compared: int
    num_scored: int
    num_excused: int
    weights: str
    weights_text: str
    one_sided_nonfinite: int
    counts: Mapping[DivergenceClass, int]
    jump: Jump | None
    mean_kl: float | None
    kl_gate: float
    same_dtype: bool
    all_equal: bool
    fits_coarser: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Status, the reason for it in a sentence, and verdict."""

    status: Status
    reason: str
    verdict: Verdict


def coarser_profile(profile: str) -> str | None:
    """The profile whose rounding could explain an error that this one does not."""
    return _COARSER.get(profile)


def decide(found: Findings) -> Outcome:
    """Applies the rules."""
    reasons = divergences(found)
    verdict = _verdict(found, diverged=bool(reasons))
    if found.other_tokens:
        reason = "; ".join(filter(None, (found.other_tokens, found.incomplete)))
        return Outcome(status="not_comparable", reason=reason, verdict="alignment")
    if found.incomplete:
        return Outcome(status="not_comparable", reason=found.incomplete, verdict=verdict)
    if found.num_compared == 0:
        reason = "no row has anything that both sides recorded"
        return Outcome(status="not_comparable", reason=reason, verdict="capture")
    if reasons:
        return Outcome(status="diverged", reason="; ".join(reasons), verdict=verdict)
    if found.num_scored == 0:
        reason = "no row has a log-probability on both sides"
        return Outcome(status="not_comparable", reason=reason, verdict=verdict)
    reason = "every compared bit agrees" if found.all_equal else "every difference is within budget"
    if found.num_excused:
        reason += f"; {_many(found.num_excused, 'row')} downstream of an explained flip not judged"
    return Outcome(status="equal", reason=reason, verdict=verdict)


def divergences(found: Findings) -> list[str]:
    """What makes the pair diverge, the most telling first."""
    reasons = []
    if found.weights == "different":
        reasons.append(f"the weights differ: {found.weights_text}")
    if found.one_sided_nonfinite:
        reasons.append(f"{found.one_sided_nonfinite} cells are NaN or Inf on one side alone")
    if (count := found.counts["unexplained_flip"]) > 0:
        reasons.append(f"{_many(count, 'unexplained router flip')}")
    if found.jump is not None:
        place = "" if found.jump.layer is None else f"layer {found.jump.layer} "
        reasons.append(f"the error enters at {place}{found.jump.site}")
    if (count := found.counts["rounding"]) > 0:
        reasons.append(f"{_many(count, 'cell')} above the rounding budget")
    if (count := found.counts["logprob"]) > 0:
        reasons.append(f"{_many(count, 'log-probability', 'log-probabilities')} beyond tolerance")
    if found.mean_kl is not None and found.mean_kl > found.kl_gate:
        reasons.append(f"mean KL {found.mean_kl:.2e} above {found.kl_gate:.2e} nats")
    return reasons


def _many(count: int, one: str, more: str = "") -> str:
    return f"{count:,} {one if count == 1 else more or one + 's'}"


def _verdict(found: Findings, *, diverged: bool) -> Verdict:
    if found.weights == "different":
        return "state"
    if found.one_sided_nonfinite:
        return "capture"
    if not diverged:
        if found.all_equal:
            return "identical"
        return "rounding" if found.same_dtype else "precision"
    if found.counts["unexplained_flip"] or (found.jump is not None and found.jump.constant):
        return "semantic"
    return "precision" if found.fits_coarser or not found.same_dtype else "semantic"
