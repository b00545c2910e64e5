"""Formulas for the memory and the run time of a fit, and the plan computed from them. Pure
arithmetic."""

from partirvm.planning.cost import Rates, Schedule, Work
from partirvm.planning.machine import Machine
from partirvm.planning.memory import (
    DataShape,
    bytes_of_residuals,
    comparison_bytes,
    max_columns_within,
    residual_stage_bytes,
    step_bytes,
    trial_bytes,
)
from partirvm.planning.plan import Plan, kernel_store, make_plan

__all__ = [
    "DataShape",
    "Machine",
    "Plan",
    "Rates",
    "Schedule",
    "Work",
    "bytes_of_residuals",
    "comparison_bytes",
    "kernel_store",
    "make_plan",
    "max_columns_within",
    "residual_stage_bytes",
    "step_bytes",
    "trial_bytes",
]
