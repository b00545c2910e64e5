"""Strategies: pure state machines that determine the next step of a fit."""

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
"""Strategy classes by name."""

WEIGHING: dict[str, type[AnyStrategy]] = {WorkingSet.name: ActiveSet}
"""Classes that replace the strategy of the same name if ``Selection.weighs_all`` is true."""


def strategy_for(name: str, selection: str) -> AnyStrategy:
    """Return the strategy of this name. The selection "map-weight" has a Python class of its own in the working set."""
    weighing = selection in SELECTIONS and SELECTIONS[selection].weighs_all
    return WEIGHING.get(name, STRATEGIES[name])() if weighing else STRATEGIES[name]()


def schedule_of(name: str) -> Schedule:
    """Return the schedule of the strategy that a stored plan names; plain rounds if the name is unknown."""
    return STRATEGIES[name].schedule if name in STRATEGIES else Schedule(name)
