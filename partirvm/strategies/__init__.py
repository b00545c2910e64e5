"""Strategies: pure state machines that decide what a fit does next."""

from __future__ import annotations

from partirvm.strategies.incremental import Basic, Incremental
from partirvm.strategies.instructions import Strategy
from partirvm.strategies.split_merge import SplitMerge
from partirvm.strategies.working_set import WorkingSet

STRATEGIES: dict[str, type[Strategy]] = {
    strategy.name: strategy for strategy in (Basic, SplitMerge, Incremental, WorkingSet)
}
"""Every strategy by name."""
