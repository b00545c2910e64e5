"""Strategies: they decide what a fit does next."""

from typing import TypeAlias

from partirvm.strategies.rounds import BasicRound, IncrementalRounds, Rounds
from partirvm.strategies.split_merge import SplitMergeLevels
from partirvm.strategies.working_set import WorkingSetRounds

AnyStrategy: TypeAlias = Rounds | SplitMergeLevels
"""``start`` returns the state before the first step; ``step`` goes on to the next line of history, or until no line
follows from the next candidates. The field ``end`` of a state is the reason for the end, or None before."""

STRATEGIES: dict[str, type[AnyStrategy]] = {
    strategy.schedule.name: strategy for strategy in (BasicRound, SplitMergeLevels, IncrementalRounds, WorkingSetRounds)
}
"""Strategy classes by name."""
