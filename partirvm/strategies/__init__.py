"""Strategies: they decide what a fit does next."""

from __future__ import annotations

from partirvm.planning.cost import Schedule
from partirvm.strategies.problem import AnyStrategy
from partirvm.strategies.rounds import BasicRound, IncrementalRounds, WorkingSetRounds
from partirvm.strategies.split_merge import SplitMergeLevels

STRATEGIES: dict[str, type[AnyStrategy]] = {
    strategy.name: strategy for strategy in (BasicRound, SplitMergeLevels, IncrementalRounds, WorkingSetRounds)
}
"""Strategy classes by name."""


def schedule_of(name: str) -> Schedule:
    """Return the schedule of the strategy that a stored plan names; plain rounds if the name is unknown."""
    return STRATEGIES[name].schedule if name in STRATEGIES else Schedule(name)
