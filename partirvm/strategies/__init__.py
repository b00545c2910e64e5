"""Strategies decide the next steps of a fit."""

from typing import TypeAlias

from partirvm.strategies.instructions import Gather, Save, Stopped
from partirvm.strategies.rounds import BasicRound, IncrementalRounds, Rounds
from partirvm.strategies.split_merge import SplitMergeLevels
from partirvm.strategies.working_set import WorkingSetRounds

__all__ = [
    "STRATEGIES",
    "AnyStrategy",
    "BasicRound",
    "Gather",
    "IncrementalRounds",
    "Rounds",
    "Save",
    "SplitMergeLevels",
    "Stopped",
    "WorkingSetRounds",
]

AnyStrategy: TypeAlias = Rounds | SplitMergeLevels
"""``start`` returns the state before the first step; ``step`` continues to the next history line,
or to the next candidates if a step yields no line. A state's field ``end`` is the reason why the
run ended, or None until then."""

STRATEGIES: dict[str, type[AnyStrategy]] = {
    strategy.schedule.name: strategy
    for strategy in (BasicRound, SplitMergeLevels, IncrementalRounds, WorkingSetRounds)
}
"""Strategy classes by name."""
