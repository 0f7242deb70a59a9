"""One fault in one place of one model, through recording, comparing, attributing and proving.

Side A is the model with the fault, recorded as a rollout; side B the same model without it. Shared
by the tests and by the benchmark that prints the whole table.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

import workbench
from tests.capture.models import make_model, random_ids
from workbench.attribution.bench import Bench
from workbench.attribution.experiments import suspects
from workbench.attribution.proof import prove
from workbench.attribution.run import attribute
from workbench.attribution.swappable import name_of
from workbench.capture.structure import find_parts
from workbench.comparison.result import Comparison
from workbench.faults import FAULTS, SIZES, Fault, Size, can_inject, inject
from workbench.faults.kinds import Kind, relative_size

MODULE_OF_KIND: Final[dict[Kind, str]] = {
    "input_norm": "input_norm",
    "attention": "attention",
    "post_attention_norm": "post_attention_norm",
    "router_logits": "router",
    "top_k": "top_k",
    "gate_weights": "gate_weights",
    "routed_experts": "routed_experts",
    "one_expert": "routed_experts",
    "shared_expert": "shared_expert",
    "combine": "combine",
    "residual_add": "residual_add",
    "final_norm": "final_norm",
    "lm_head": "lm_head",
}
"""Kinds of the matrix, and the module that each must be charged to."""

FAMILIES: Final[dict[str, dict[str, Any]]] = {
    "qwen3_moe": {"mlp_only_layers": []},
    "mixtral": {},
    "qwen2_moe": {},
    "glm4_moe": {"first_k_dense_replace": 0},
    "qwen3_moe dense middle": {},
}
BUNDLED: Final = Path(__file__).parents[2] / "sample_data" / "countdown-moe"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model and the tokens it runs."""

    name: str
    model: Any
    ids: list[list[int]]

    @property
    def layers(self) -> tuple[int, ...]:
        """First, middle, last."""
        count = len(find_parts(self.model).layers)
        return (0, count // 2, count - 1)

    @property
    def dtype(self) -> str:
        """Type of its weights."""
        return str(next(self.model.parameters()).dtype)[6:]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one case gave.

    Attributes:
        expected: Module that the fault sits in, as people call it.
        found: Module of the first local error, "" when none was reported.
        above: Whether the fault is larger than the module's budget.
        rows: Rows at which the fault changed its own site.
        proof: State of the proof.
    """

    fault: Fault
    expected: str
    found: str
    above: bool
    rows: int
    kl: float | None
    proof: str
    proof_text: str

    @property
    def word(self) -> str:
        """`exact`, `below` (nothing reported, and nothing had to be), `MISSED` or `WRONG`."""
        if self.found:
            return "exact" if self.found == self.expected else f"WRONG: {self.found}"
        return "MISSED" if self.above else "below"


def subject(family: str, dtype: torch.dtype = torch.float32, **changes: Any) -> Subject:
    """A tiny random model of a family, or the bundled one."""
    if family == "bundled":
        return _bundled(dtype)
    options = {**FAMILIES.get(family, {}), **changes}
    model = make_model(family.split(" ", maxsplit=1)[0], **options).to(dtype)
    return Subject(name=family, model=model, ids=random_ids(17, 9, 13))


def _bundled(dtype: torch.dtype) -> Subject:
    import json

    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(BUNDLED, dtype=dtype).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(BUNDLED)
    prompts = (BUNDLED / "prompts.jsonl").read_text().splitlines()[:12]
    ids = [tokenizer(json.loads(line)["prompt"])["input_ids"] for line in prompts]
    return Subject(name="bundled", model=model, ids=ids)


def capture(
    subject: Subject,
    out: Path,
    *,
    path: Any = "trainer",
    context: AbstractContextManager[Any] | None = None,
    one_by_one: bool = False,
) -> Path:
    """Records the subject's tokens, in one padded batch or one sequence at a time."""
    shutil.rmtree(out, ignore_errors=True)
    groups = [[ids] for ids in subject.ids] if one_by_one else [subject.ids]
    names = [f"r{place}" for place in range(len(subject.ids))]
    with (
        context or nullcontext(),
        torch.no_grad(),
        workbench.record(subject.model, out, path=path, logits=True) as recording,
    ):
        for place, group in enumerate(groups):
            recording.requests(names if not one_by_one else [names[place]])
            subject.model(**_padded(group), use_cache=False)
    return out


def _padded(group: list[list[int]]) -> dict[str, torch.Tensor]:
    longest = max(map(len, group))
    ids_BS = torch.zeros(len(group), longest, dtype=torch.long)
    mask_BS = torch.zeros_like(ids_BS)
    for row, ids in enumerate(group):
        ids_BS[row, : len(ids)] = torch.tensor(ids)
        mask_BS[row, : len(ids)] = 1
    return {"input_ids": ids_BS, "attention_mask": mask_BS}


def attributed(a: Path, b: Path, out: Path, model: Any) -> Comparison:
    """The pair compared and attributed, without the swap experiments."""
    shutil.rmtree(out, ignore_errors=True)
    return attribute(workbench.compare(a, b, out=out), model, swaps=False)


def proof_of(comparison: Comparison, model: Any) -> dict[str, Any]:
    """The proof of what the comparison suspects."""
    with torch.no_grad():
        bench = Bench(comparison, find_parts(model))
        gate = comparison.summary["tolerance"]["kl_gate"]
        return prove(bench, suspects(comparison.summary), kl_gate=gate)


def reported(comparison: Comparison) -> str:
    """The module of the first local error, as people call it; "" for none."""
    first = comparison.summary["first"]["local_error"]
    return "" if first is None else name_of((first["layer"], first["module"]))


def faults_of(
    subject: Subject,
    trainer: Path,
    *,
    kinds: list[Kind] | None = None,
    sizes: tuple[Size, ...] = SIZES,
    layers: tuple[int, ...] | None = None,
) -> Iterator[Fault]:
    """Every fault of the matrix that this subject can have."""
    for kind in kinds or list(MODULE_OF_KIND):
        places: tuple[int | None, ...] = (
            (layers or subject.layers) if FAULTS[kind].per_layer else (None,)
        )
        for layer in places:
            for size in sizes:
                expert = _busiest(trainer, layer) if kind == "one_expert" else 0
                fault = Fault(kind=kind, layer=layer, size=size, expert=expert)
                if not can_inject(subject.model, fault):
                    yield fault


def _busiest(trainer: Path, layer: int | None) -> int:
    """The expert that most rows choose."""
    found = workbench.open_capture(trainer)
    site = f"layers.{layer}.topk_ids"
    ids = [array.ravel() for _, array in found.iterate(site)]
    return int(np.bincount(np.concatenate(ids)).argmax()) if ids else 0


def run_case(subject: Subject, fault: Fault, trainer: Path, scratch: Path) -> Result:
    """One fault on side A against the clean side B."""
    a = capture(subject, scratch / "a", path="rollout", context=inject(subject.model, fault))
    comparison = attributed(a, trainer, scratch / "comparison", subject.model)
    expected = _expected(subject, fault)
    finding = next(
        m
        for m in comparison.summary["attribution"]["modules"]
        if name_of((m["layer"], m["module"])) == expected
    )
    found = reported(comparison)
    proof = proof_of(comparison, subject.model) if found else {"state": "", "text": ""}
    rows = _changed_rows(a, trainer, fault)
    return Result(
        fault=fault,
        expected=expected,
        found=found,
        above=_is_above(fault, finding, _dtype(a, fault), rows),
        rows=rows,
        kl=comparison.summary["kl"]["exact_mean"],
        proof=proof["state"],
        proof_text=proof["text"],
    )


def _expected(subject: Subject, fault: Fault) -> str:
    module = MODULE_OF_KIND[fault.kind]
    parts = find_parts(subject.model)
    if (
        fault.layer is not None
        and module == "combine"
        and parts.layers[fault.layer].kind == "dense"
    ):
        module = "dense_mlp"
    return name_of((fault.layer, module))


def _site(fault: Fault) -> str:
    name = fault.info.site
    return name if fault.layer is None else f"layers.{fault.layer}.{name}"


def _dtype(directory: Path, fault: Fault) -> str:
    """Type of the tensor that the fault changes, which need not be that of the weights."""
    return workbench.open_capture(directory).manifest.sites[_site(fault)].dtype


def _is_above(fault: Fault, finding: dict[str, Any], dtype: str, rows: int) -> bool:
    """Whether the fault is larger than its module's rounding budget, at some row.

    For one expert, its share of a row is at most the whole row, so no more is asked for than what
    showed. A wrong choice has no size: it counts where scores are not equal.
    """
    if fault.kind == "top_k":
        return rows > 0 and fault.size != "2u"
    if fault.kind == "one_expert":
        return float(finding["max"] or 0.0) > float(finding["derived_budget"])
    return relative_size(fault.size, dtype) > float(finding["derived_budget"])


def _changed_rows(a: Path, b: Path, fault: Fault) -> int:
    site = _site(fault)
    sides: list[np.ndarray] = []
    for directory in (a, b):
        found = workbench.open_capture(directory)
        sides.append(np.concatenate([array for _, array in found.iterate(site)]))
    return int((sides[0].astype(np.float64) != sides[1].astype(np.float64)).any(1).sum())
