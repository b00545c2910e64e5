"""Strategies: pure state machines that decide what a fit does next."""

from __future__ import annotations

from partirvm.strategies.active_set import ActiveSet
from partirvm.strategies.incremental import Basic, Incremental
from partirvm.strategies.instructions import AnyStrategy
from partirvm.strategies.selection import ALL_WEIGHTS
from partirvm.strategies.split_merge import SplitMerge
from partirvm.strategies.working_set import WorkingSet

STRATEGIES: dict[str, type[AnyStrategy]] = {
    strategy.name: strategy for strategy in (Basic, SplitMerge, Incremental, WorkingSet)
}
"""Every strategy by name."""


def strategy_for(name: str, selection: str) -> AnyStrategy:
    """The strategy of this name; a working set is the one that goes with how it selects."""
    return ActiveSet() if (name, selection) == (WorkingSet.name, ALL_WEIGHTS) else STRATEGIES[name]()
