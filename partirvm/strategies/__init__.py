"""Strategies: pure state machines that decide what a fit does next."""

from __future__ import annotations

from partirvm.planning.schedule import Schedule
from partirvm.strategies.active_set import ActiveSet
from partirvm.strategies.incremental import Basic, Incremental
from partirvm.strategies.instructions import AnyStrategy
from partirvm.strategies.selection import SELECTIONS
from partirvm.strategies.split_merge import SplitMerge
from partirvm.strategies.working_set import WorkingSet

STRATEGIES: dict[str, type[AnyStrategy]] = {
    strategy.name: strategy for strategy in (Basic, SplitMerge, Incremental, WorkingSet)
}
"""Every strategy by name, with its schedule: how its candidates join."""

WEIGHING: dict[str, type[AnyStrategy]] = {WorkingSet.name: ActiveSet}
"""Strategies that replace the one of this name if the selection weighs all rows."""


def strategy_for(name: str, selection: str) -> AnyStrategy:
    """The strategy of this name; for a working set the one that fits its selection."""
    weighing = selection in SELECTIONS and SELECTIONS[selection].weighs_all
    return WEIGHING.get(name, STRATEGIES[name])() if weighing else STRATEGIES[name]()


def schedule_of(name: str) -> Schedule:
    """The schedule of a strategy in a stored plan; plain rounds if this version does not have that strategy."""
    return STRATEGIES[name].schedule if name in STRATEGIES else Schedule(name)
