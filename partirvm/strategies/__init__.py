"""Strategies, which decide what a fit does next."""

from typing import TypeAlias

from partirvm.strategies.rounds import BasicRound, IncrementalRounds, Rounds
from partirvm.strategies.split_merge import SplitMergeLevels
from partirvm.strategies.working_set import WorkingSetRounds

AnyStrategy: TypeAlias = Rounds | SplitMergeLevels
"""``start`` returns the state before the first step; ``step`` continues to the next history line,
or until the next candidates yield none. A state's field ``end`` is the reason why the run ended, or
None until then."""

STRATEGIES: dict[str, type[AnyStrategy]] = {
    strategy.schedule.name: strategy
    for strategy in (BasicRound, SplitMergeLevels, IncrementalRounds, WorkingSetRounds)
}
"""Strategy classes by name."""
