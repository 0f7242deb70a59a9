"""The sentence at every step, for every kind of site and every state it can be in."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from workbench.names import LAYER_SITES, LOGPROBS, MODEL_SITES
from workbench.view.inspector import ExpertRow, LogprobFacts, Margin, RouterFacts, SiteDifference
from workbench.view.local import ModuleError, ModuleVerdict
from workbench.view.steps import ROOM, StepFacts, of_budget, step_sentence, step_title

NUMERIC = [site for site in (*MODEL_SITES, *LAYER_SITES) if site != "topk_ids"]


def difference(site: str, rel_l2: float = 0.0, **changes: Any) -> SiteDifference:
    found = SiteDifference(
        site=site,
        max_abs=rel_l2,
        rel_l2=rel_l2,
        cosine=1.0,
        max_ulp=0.0 if rel_l2 == 0 else 900.0,
        bit_equal=rel_l2 == 0,
        nonfinite_a=0,
        nonfinite_b=0,
    )
    return replace(found, **changes)


def facts(site: str, rel_l2: float = 0.0, **changes: Any) -> StepFacts:
    layer = None if site in (*MODEL_SITES, LOGPROBS) else 2
    found = StepFacts(layer=layer, site=site, difference=difference(site, rel_l2), budget=0.01)
    return replace(found, **changes)


def expert(number: int, on: Any) -> ExpertRow:
    return ExpertRow(
        expert=number,
        on=on,
        rank_a=None if on == "B" else 1,
        rank_b=None if on == "A" else 1,
        gate_a=0.5,
        gate_b=0.5,
        logit_a=1.0,
        logit_b=1.0,
    )


def router(explained: bool | None = None, num_flips: int = 1, **changes: Any) -> RouterFacts:
    found = RouterFacts(
        experts=(expert(1, "both"), expert(5, "A"), expert(7, "B")),
        num_flips=num_flips,
        same_order=False,
        margin_a=Margin(gap=0.0012, ulps=3.0),
        margin_b=Margin(gap=0.0036, ulps=9.0),
        explained=explained,
        needed=0.31,
        bound=0.03,
    )
    return replace(found, **changes)


def error(**changes: Any) -> ModuleError:
    verdict = ModuleVerdict(
        module="attention",
        rows=10,
        over=0,
        median=0.0,
        budget=0.004,
        units_a=0.5,
        units_b=0.5,
        limit=2.0,
        who="neither",
        scale=None,
        includes=(),
    )
    found = ModuleError(
        verdict=verdict,
        local=0.001,
        inherited=0.002,
        total=0.003,
        units_a=0.5,
        units_b=0.5,
        over=False,
    )
    return replace(found, **changes)


@pytest.mark.parametrize("site", NUMERIC)
def test_every_site_says_equal_within_beyond_nan_and_missing(site: str) -> None:
    title = step_title(facts(site).layer, site)
    assert step_sentence(facts(site)) == f"{title}: equal bit for bit"
    within = step_sentence(facts(site, 0.004))
    assert within == f"{title}: rel L2 4.0e-03, 0.4 of the rounding budget"
    beyond = step_sentence(facts(site, 0.032))
    assert beyond == f"{title}: rel L2 0.032, 3.2 × the rounding budget"
    broken = difference(site, math.inf, nonfinite_a=3)
    assert step_sentence(facts(site, difference=broken)) == f"{title}: NaN or Inf in A (3)"
    missing = replace(broken, bit_equal=None)
    said = step_sentence(facts(site, difference=missing, absent="not recorded here"))
    assert said == f"{title}: not recorded here"
    assert "equal" not in said


def test_nan_in_both_sides_counts_each() -> None:
    broken = difference("output", math.inf, nonfinite_a=1, nonfinite_b=12)
    assert step_sentence(facts("output", difference=broken)).endswith("in A (1) and B (12)")


def test_the_same_nan_in_both_is_not_called_equal() -> None:
    same = difference("output", nonfinite_a=2, nonfinite_b=2)
    assert "equal" not in step_sentence(facts("output", difference=same))


def test_a_few_units_of_the_last_place_are_said_as_such() -> None:
    found = difference("attn_out", 0.001, max_ulp=1.0)
    said = step_sentence(facts("attn_out", difference=found))
    assert said == "L2 attention output: equal to 1 ULP, 0.1 of the rounding budget"
    other_type = replace(found, max_ulp=0.0)
    assert "equal in the coarser type" in step_sentence(facts("attn_out", difference=other_type))
    more = replace(found, max_ulp=5.0)
    assert "rel L2" in step_sentence(facts("attn_out", difference=more))


def test_router_logits_tell_the_smaller_margin() -> None:
    said = step_sentence(facts("router_logits", router=router(num_flips=0)))
    assert said == "L2 router logits: equal bit for bit; margin 1.2e-03, 3 ULP"
    tie = router(margin_a=Margin(gap=0.0, ulps=0.0))
    assert step_sentence(facts("router_logits", router=tie)).endswith("margin 0, a tie")
    unknown = router(
        margin_a=Margin(gap=None, ulps=math.nan), margin_b=Margin(gap=0.5, ulps=math.nan)
    )
    assert step_sentence(facts("router_logits", router=unknown)).endswith("margin 0.500")
    neither = Margin(gap=None, ulps=math.nan)
    none = router(margin_a=neither, margin_b=neither)
    assert "margin" not in step_sentence(facts("router_logits", router=none))


@pytest.mark.parametrize(
    ("explained", "words"),
    [
        (True, "1 flip, A 5 → B 7; gap within the input difference: explained"),
        (False, "1 flip, A 5 → B 7; needs 0.310, inputs move 0.030: UNEXPLAINED"),
        (None, "1 flip, A 5 → B 7; not judged: inputs or scores are missing"),
    ],
)
def test_a_flip_names_the_experts_and_whether_it_is_explained(
    explained: bool | None, words: str
) -> None:
    flipped = difference("topk_ids", bit_equal=False)
    said = step_sentence(facts("topk_ids", difference=flipped, router=router(explained)))
    assert said == f"L2 top-k: {words}"


def test_many_flips_are_counted_and_not_listed() -> None:
    rows = tuple(expert(100 + i, "A" if i < 4 else "B") for i in range(8))
    found = router(True, num_flips=4, experts=rows)
    flipped = difference("topk_ids", bit_equal=False)
    said = step_sentence(facts("topk_ids", difference=flipped, router=found))
    assert said.startswith("L2 top-k: 4 flips; ")


def test_the_same_experts_may_stand_in_another_order() -> None:
    same = router(num_flips=0, same_order=True)
    assert step_sentence(facts("topk_ids", router=same)) == "L2 top-k: same experts"
    other = router(num_flips=0)
    assert step_sentence(facts("topk_ids", router=other)).endswith("same experts, in another order")


def test_a_flip_whose_vectors_cannot_be_read_is_still_a_flip() -> None:
    flipped = difference("topk_ids", bit_equal=False)
    assert "different experts" in step_sentence(facts("topk_ids", difference=flipped))


def test_after_a_flip_other_experts_ran() -> None:
    said = step_sentence(facts("mlp_out", 0.2, router=router(True), excused=True))
    assert said.endswith("other experts ran")
    before = step_sentence(facts("attn_out", 0.2, router=router(True), excused=True))
    assert before.endswith("after an explained flip")


def test_gate_weights_tell_the_mass_that_moved() -> None:
    said = step_sentence(facts("topk_weights", 0.004, mass_moved=0.133))
    assert said.endswith("rel L2 4.0e-03, 0.4 of the budget; 0.133 of the mass moved")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "inherited"),
        ({"local": 0.0}, "inherited"),
        ({"inherited": 0.0005}, "its own rounding"),
        ({"inherited": None}, "its own rounding"),
        ({"local": None}, "not attributable"),
        ({"over": True, "units_a": 5.0}, "LOCAL ERROR: A wrong"),
        ({"over": True, "units_b": 5.0}, "LOCAL ERROR: B wrong"),
        ({"over": True, "units_a": 5.0, "units_b": 5.0}, "LOCAL ERROR: both wrong"),
        ({"over": True, "units_a": None, "units_b": None}, "LOCAL ERROR: no arbiter"),
    ],
)
def test_attribution_says_where_the_error_comes_from(changes: dict[str, Any], words: str) -> None:
    said = step_sentence(facts("attn_out", 0.003, error=error(**changes)))
    assert said.endswith(f"; {words}")


@pytest.mark.parametrize(
    ("entering", "earlier", "words"),
    [
        (0.0, False, "arises here"),
        (0.0, True, "arises in attention"),
        (0.003, False, "as it came in"),
        (0.005, False, "less than came in"),
        (0.001, False, "1.0e-03 came in"),
    ],
)
def test_without_attribution_the_input_is_what_is_known(
    entering: float, earlier: bool, words: str
) -> None:
    said = step_sentence(facts("attn_out", 0.003, entering=entering, earlier=earlier))
    assert said.endswith(f"; {words}")


def logprob(a: float | None, b: float | None) -> LogprobFacts:
    return LogprobFacts(a=a, b=b, dlogp=None, rank_a=1, rank_b=1, kl=None)


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        (-0.5, -0.5, "the same on both sides"),
        (-0.5, -0.75, "dlogp +0.2500 (A − B), 0.2 of tolerance"),
        (-3.5, -0.5, "dlogp -3.0000 (A − B), 3.0 × tolerance"),
        (math.nan, -0.5, "NaN in A"),
        (math.nan, math.nan, "NaN in A and B"),
        (-math.inf, -math.inf, "the same on both sides"),
        (None, -0.5, "not recorded on both sides"),
    ],
)
def test_logprob_is_a_minus_b_in_parts_of_the_tolerance(
    a: float | None, b: float | None, words: str
) -> None:
    said = step_sentence(facts(LOGPROBS, logprob=logprob(a, b), tolerance=1.0, text="4"))
    assert said == f"logprob of '4': {words}"


def test_logprob_without_tolerance_or_with_none_allowed() -> None:
    found = facts(LOGPROBS, logprob=logprob(-1.0, -2.0), text="4")
    assert step_sentence(found).endswith("dlogp +1.0000 (A − B)")
    assert step_sentence(replace(found, tolerance=0.0)).endswith("no difference is allowed")
    excused = replace(found, tolerance=0.5, excused=True)
    assert step_sentence(excused).endswith("2.0 × tolerance; after a flip")


def test_infinite_difference_of_logprob_is_said() -> None:
    said = step_sentence(facts(LOGPROBS, logprob=logprob(-math.inf, -1.0), tolerance=0.1))
    assert "dlogp -Inf (A − B)" in said


def test_no_budget_means_no_share_and_none_for_rounding_means_beyond() -> None:
    assert of_budget(0.1, None) == ""
    assert of_budget(math.nan, 0.1) == ""
    assert of_budget(0.1, 0.0) == "beyond: no rounding here"
    assert of_budget(0.01, 0.01) == "1.0 of the rounding budget"
    assert of_budget(1e-9, 1.0) == "<0.1 of the rounding budget"
    assert of_budget(12345.0, 1.0) == "12k × the rounding budget"


def test_the_dense_layer_has_an_mlp() -> None:
    assert step_sentence(facts("mlp_out", dense=True)) == "L2 MLP output: equal bit for bit"


@pytest.mark.parametrize("site", [*NUMERIC, "topk_ids", LOGPROBS])
@pytest.mark.parametrize(
    "changes",
    [
        {"error": error(over=True, units_a=5.0, units_b=5.0)},
        {"entering": 0.004567},
        {"excused": True},
        {"entering": 0.0, "earlier": True},
    ],
)
def test_every_sentence_fits_a_line_of_80_columns(site: str, changes: dict[str, Any]) -> None:
    rows = (expert(127, "A"), expert(106, "B"))
    for explained in (True, False, None):
        found = facts(site, 0.00123456, **changes, mass_moved=0.00123)
        if found.layer is not None:
            found = replace(found, layer=47)
        if site == "topk_ids":
            found = replace(found, difference=difference(site, bit_equal=False))
        found = replace(
            found,
            router=router(explained, experts=rows),
            logprob=logprob(-20.12345, -0.1),
            tolerance=0.1,
            text="long token text",
        )
        assert len(step_sentence(found)) <= ROOM
