"""How long a fit will still take: the plan's proportions, scaled by the time that its finished part took."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Remaining:
    """Counts the plan's work as it gets done.

    ``costs`` holds each round's planned seconds of one pass, its number of passes, and its planned dense seconds; it is
    empty where the number of rounds is not known.
    """

    costs: tuple[tuple[float, int, float], ...]
    began: float = field(default_factory=time.monotonic)
    _round: int = 0
    _passes: int = 0
    _share: float = 0.0

    @classmethod
    def of(cls, plan: Any) -> Remaining:
        """For a plan; knows nothing unless the plan knows the number of rounds."""
        known = plan.max_rounds is not None or plan.strategy == "basic"
        costs = ((cost.pass_seconds / max(cost.passes, 1), cost.passes, cost.solve_seconds) for cost in plan.rounds)
        return cls(tuple(costs) if known else ())

    def on_tiles(self, done: int, total: int) -> None:
        """A pass has done so many of its tiles."""
        share = done / total
        if share < self._share or self._share == 1.0:
            self._passes += 1
        self._share = share

    def on_round(self) -> None:
        """A round is over."""
        self._round, self._passes, self._share = self._round + 1, 0, 0.0

    def seconds(self, now: float | None = None) -> float | None:
        """Seconds left, about; None where that cannot be told (yet)."""
        if self._round >= len(self.costs):
            return None
        done = sum(single * passes + dense for single, passes, dense in self.costs[: self._round])
        total = sum(single * passes + dense for single, passes, dense in self.costs)
        single, passes, _ = self.costs[self._round]
        done += single * min(self._passes + self._share, passes)
        if done < 0.02 * total:
            return None
        elapsed = (time.monotonic() if now is None else now) - self.began
        return elapsed * (total - done) / done
