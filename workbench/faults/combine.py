"""The ways to add experts up, each from the same expert outputs. Owns their arithmetic.

All are right: they differ by about one rounding unit, which two paths share or do not share.

Axis legend: T row, K top-k slot, D hidden.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from workbench.faults.kinds import CombineOrder


def expert_outputs(
    experts: nn.Module, hidden_TD: torch.Tensor, topk_ids_TK: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    """What each selected expert gives before its gate weight, (K, T, D), through the live module.

    One slot at a time with a weight of exactly 1, so that the module multiplies and adds nothing.

    `dtype` is the type that the module gets its gate weights in.
    """
    call: Any = type(experts).forward
    outputs = []
    for slot in range(topk_ids_TK.shape[1]):
        ids_T1 = topk_ids_TK[:, slot : slot + 1].contiguous()
        ones_T1 = torch.ones(ids_T1.shape, dtype=dtype, device=hidden_TD.device)
        outputs.append(call(experts, hidden_TD, ids_T1, ones_T1))
    return torch.stack(outputs)


def combine(
    outputs_KTD: torch.Tensor, topk_weights_TK: torch.Tensor, order: CombineOrder
) -> torch.Tensor:
    """The weighted sum over slots, slot by slot, (T, D) in the type of `outputs_KTD`."""
    dtype = outputs_KTD.dtype
    weights_KT1 = topk_weights_TK.T.unsqueeze(-1)
    if order == "float32":
        products_KTD = outputs_KTD.float() * weights_KT1.float()
    elif order == "cast_each":
        products_KTD = (outputs_KTD.float() * weights_KT1.float()).to(dtype)
    else:
        products_KTD = outputs_KTD * weights_KT1.to(dtype)
    total_TD = products_KTD[0]
    for product_TD in products_KTD[1:]:
        total_TD = total_TD + product_TD
    return total_TD.to(dtype)
