"""Charts of a comparison: aggregates, drawn. Each gives a `Chart` with the `.frame` it draws.

Direction is always A minus B, A the rollout that sampled the tokens, B the trainer. Each chart says
how much it covers; a missing number is left out and never drawn as zero.

    from workbench.widgets import charts

    charts.kl_by_position(comparison).save("kl.png", theme="dark")
"""

from __future__ import annotations

from workbench.errors import missing_extra

try:
    from workbench.widgets.chart import Chart
    from workbench.widgets.expert_charts import expert_load, gate_weights
    from workbench.widgets.layer_charts import flips_by_margin, layer_profile, local_errors
    from workbench.widgets.probability_charts import (
        kl_by_first_layer,
        kl_by_modality,
        kl_by_position,
        probabilities,
        ratios,
    )
except ModuleNotFoundError as error:
    if error.name not in ("altair", "vl_convert"):
        raise
    raise missing_extra(error.name, "for charts", "jupyter") from None

__all__ = [
    "Chart",
    "expert_load",
    "flips_by_margin",
    "gate_weights",
    "kl_by_first_layer",
    "kl_by_modality",
    "kl_by_position",
    "layer_profile",
    "local_errors",
    "probabilities",
    "ratios",
]
