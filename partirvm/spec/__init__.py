"""The definition of a fit: its problem and options, its likelihood's interface, and its history
lines."""

from partirvm.spec.entries import Entry, Record, Spent
from partirvm.spec.panel_pass import Panel, Pass
from partirvm.spec.problem import (
    DenseFit,
    Likelihood,
    Options,
    PassFit,
    Problem,
    Solved,
    Start,
    WorkingTargets,
    survivors,
)

__all__ = [
    "DenseFit",
    "Entry",
    "Likelihood",
    "Options",
    "Panel",
    "Pass",
    "PassFit",
    "Problem",
    "Record",
    "Solved",
    "Spent",
    "Start",
    "WorkingTargets",
    "survivors",
]
