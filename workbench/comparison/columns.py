"""Names and kinds of the columns of a comparison's two tables: its file format, in one place.

`layers.arrow` has one line per (layer, row), sorted by layer then row; `rows.parquet` one per row.
A null is a value that could not be compared; it never means equal.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import polars as pl

from workbench.comparison.arrow import Column, Kind
from workbench.names import HIDDEN_LAYER_SITES, LAYER_SITES, MODEL_SITES

SITE_METRICS: Final[tuple[tuple[str, Kind], ...]] = (
    ("max_abs", "f4"),
    ("rel_l2", "f4"),
    ("cosine", "f4"),
    ("scale", "f4"),
    ("bit_equal", "b1"),
    ("nonfinite_a", "u4"),
    ("nonfinite_b", "u4"),
    ("max_ulp", "u4"),
)
"""Per measured site: largest |a-b|; ‖a-b‖/‖b‖; cosine; best-fit scalar sum(ab)/sum(bb); whether
every stored bit agrees; NaN and Inf on each side; largest distance in units of the coarser type's
last place."""

MEASURED_LAYER_SITES: Final[tuple[str, ...]] = tuple(s for s in LAYER_SITES if s != "topk_ids")
"""Layer sites with `SITE_METRICS`, in execution order; `topk_weights` is matched by expert id."""

MEASURED_MODEL_SITES: Final[tuple[str, ...]] = MODEL_SITES
"""Sites whose `SITE_METRICS` are columns of `rows.parquet`."""

ROUTER_METRICS: Final[tuple[tuple[str, Kind], ...]] = (
    ("topk.set_equal", "b1"),
    ("topk.order_equal", "b1"),
    ("topk.num_flips", "u4"),
    ("topk.margin_a", "f4"),
    ("topk.margin_b", "f4"),
    ("topk.explained", "b1"),
    ("topk.needed", "f4"),
    ("topk.bound", "f4"),
    ("gates.max_abs", "f4"),
    ("gates.mass_moved", "f4"),
    ("router.kl", "f4"),
)
"""Router: same experts; in the same slots; experts of A that B did not select; k-th minus (k+1)-th
score on each side; for rows with a flip whether the input difference explains it (null: cannot be
judged), the move of scores that the flip needs and the move that the inputs can cover; gate
weights matched by expert id; KL(softmax z_A || softmax z_B)."""

LOCAL_SITES: Final[dict[str, str]] = {
    "embedding": "embed",
    "input_norm": "attn_in",
    "attention": "attn_out",
    "post_attention_norm": "mlp_in",
    "router": "router_logits",
    "top_k": "topk_ids",
    "gate_weights": "topk_weights",
    "routed_experts": "routed_out",
    "shared_expert": "shared_out",
    "combine": "mlp_out",
    "dense_mlp": "mlp_out",
    "residual_add": "output",
    "final_norm": "final_norm",
    "lm_head": "logits",
}
"""Modules that a local error is charged to, in execution order, and the site each makes. For each,
`local.arrow` has `local`, `inherited`, `total`, `units_a`, `units_b` and `over`; `embedding` stands
in the first layer's lines, `final_norm` and `lm_head` in the last layer's."""

LOCAL_ERROR: Final = "local_error"
"""Column of `local.arrow`: whether any module of the cell is beyond its budget."""

AFTER_ROUTING: Final = ("routed_out", "mlp_out", "output")
"""Sites of a layer that a flip in that layer changes, in the same row."""

NUMERIC_SITES: Final[tuple[str, ...]] = (
    *HIDDEN_LAYER_SITES[:4],
    "router_logits",
    *HIDDEN_LAYER_SITES[4:],
)
"""Layer sites that have a rounding budget."""

ROW_SCHEMA: Final[dict[str, pl.DataType]] = {
    "row": pl.UInt32(),
    "request": pl.String(),
    "position": pl.Int32(),
    "token_id": pl.Int32(),
    "text": pl.String(),
    "phase": pl.String(),
    "modality": pl.String(),
    "step": pl.Int32(),
    "batch_size": pl.Int32(),
    "state_a": pl.String(),
    "state_b": pl.String(),
    "chunk_a": pl.Int32(),
    "offset_a": pl.Int32(),
    "chunk_b": pl.Int32(),
    "offset_b": pl.Int32(),
    "logprob_a": pl.Float32(),
    "logprob_b": pl.Float32(),
    "dlogp": pl.Float32(),
    "ratio": pl.Float32(),
    "k1": pl.Float32(),
    "k2": pl.Float32(),
    "k3": pl.Float32(),
    "kl_exact": pl.Float32(),
    "kl_exact_reverse": pl.Float32(),
    "tv": pl.Float32(),
    "entropy_a": pl.Float32(),
    "entropy_b": pl.Float32(),
    "rank_a": pl.Int32(),
    "rank_b": pl.Int32(),
    "argmax_equal": pl.Boolean(),
    "num_flip_layers": pl.UInt32(),
}
"""`rows.parquet`, before the site columns. `step` and `batch_size` are A's; `chunk` and `offset`
say where a side's arrays of this row lie (null: none). `dlogp` = logp_A - logp_B; `ratio` =
exp(-dlogp)."""

KIND_TO_POLARS: Final[dict[Kind, pl.DataType]] = {
    "f4": pl.Float32(),
    "u4": pl.UInt32(),
    "b1": pl.Boolean(),
}


def layer_columns(sites: Iterable[str], *, routing: bool) -> list[Column]:
    """Columns of `layers.arrow` when `sites` are measured, with or without the router's."""
    measured = set(sites)
    columns = [Column("layer", "u4"), Column("row", "u4")]
    for site in MEASURED_LAYER_SITES:
        if site in measured:
            columns += [Column(f"{site}.{metric}", kind) for metric, kind in SITE_METRICS]
    if routing:
        columns += [Column(name, kind) for name, kind in ROUTER_METRICS]
    return columns


def known_columns() -> dict[str, Kind]:
    """Every column that `layers.arrow` may have."""
    return {c.name: c.kind for c in layer_columns(MEASURED_LAYER_SITES, routing=True)}
