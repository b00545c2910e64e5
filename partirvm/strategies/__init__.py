"""Strategies: pure state machines that decide what a fit does next."""

from __future__ import annotations

from partirvm.strategies.basic import Basic
from partirvm.strategies.instructions import Strategy
from partirvm.strategies.working_set import WorkingSet

STRATEGIES: dict[str, type[Strategy]] = {Basic.name: Basic, WorkingSet.name: WorkingSet}
"""Every strategy by name."""
