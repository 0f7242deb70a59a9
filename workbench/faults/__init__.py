"""Deliberate, named numerics mistakes in one path of a model, everything else bit-equal."""

from workbench.faults.inject import can_inject, inject
from workbench.faults.kinds import FAULTS, SIZES, Fault, FaultInfo, Size

__all__ = ["FAULTS", "SIZES", "Fault", "FaultInfo", "Size", "can_inject", "inject"]
