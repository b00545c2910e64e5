"""How long a fit will still take: the plan's proportions, scaled by the time that its finished part took."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from partirvm.report.quantities import MEASURED
from partirvm.strategies import schedule_of


@dataclass(frozen=True)
class StageCost:
    """A round, or a level of ``fits`` fits of which ``batch`` go side by side, as planned.

    Seconds are of the whole stage; ``passes`` is how often in turn a fit, or a batch, goes over the rows.
    """

    pass_seconds: float
    solve_seconds: float
    passes: int = 1
    fits: int = 1
    batch: int = 1

    @property
    def seconds(self) -> float:
        """Of passes and dense fits together."""
        return self.pass_seconds + self.solve_seconds

    def done(self, fits: int, over: float, passes: float, solved: float) -> float:
        """Planned seconds of what is done: ``fits`` fits, or ``over`` of them before a batch that is under way.

        Of this batch so many ``passes`` and the share ``solved`` of the dense fits are done.
        """
        batch = min(self.batch, self.fits - over)
        under_way = min(passes / self.passes, 1.0) * self.pass_seconds + solved * self.solve_seconds
        return max(fits * self.seconds, over * self.seconds + batch * under_way) / self.fits


@dataclass
class Remaining:
    """Counts the plan's work as it gets done. ``stages`` is empty where the number of rounds is not known."""

    stages: tuple[StageCost, ...]
    began: float = field(default_factory=time.monotonic)
    _stage: int = 0
    _fits: int = 0
    _over: int = 0
    _passes: int = 0
    _share: float = 0.0
    _solved: float = 0.0

    @classmethod
    def of(cls, plan: Any) -> Remaining:
        """For a plan; knows nothing unless the plan knows the number of rounds."""
        if schedule_of(plan.strategy).open_ended(plan.max_rounds):
            return cls(())
        return cls(tuple(_stage(cost, plan) for cost in plan.rounds))

    @property
    def stage(self) -> int:
        """The round, or level, that is under way, from 0; never beyond the last."""
        return min(self._stage, max(len(self.stages) - 1, 0))

    def on_tiles(self, done: int, total: int) -> None:
        """A pass, or a few side by side, did so many of its tiles."""
        if self._fits > self._over:
            self._begin(self._stage, self._fits)
        share = done / total
        if share < self._share or self._share == 1.0:
            self._passes += 1
        self._share = share

    def on_solves(self, done: int, total: int) -> None:
        """So many of the dense fits side by side are done."""
        self._solved = done / total

    def on_record(self, entry: dict[str, Any]) -> None:
        """A line of history: a fit is over."""
        if entry["kind"] in MEASURED or self._stage >= len(self.stages):
            return
        self._fits += 1
        if entry["kind"] == "final":
            self._begin(len(self.stages), 0)
        elif self._fits >= self.stages[self._stage].fits:
            self._begin(self._stage + 1, 0)

    def _begin(self, stage: int, fits: int) -> None:
        self._stage, self._fits, self._over = stage, fits, fits
        self._passes, self._share, self._solved = 0, 0.0, 0.0

    def seconds(self, now: float | None = None) -> float | None:
        """Seconds left, about; None where that cannot be told (yet)."""
        if self._stage >= len(self.stages):
            return None
        total = sum(stage.seconds for stage in self.stages)
        done = sum(stage.seconds for stage in self.stages[: self._stage])
        done += self.stages[self._stage].done(self._fits, self._over, self._passes + self._share, self._solved)
        if done < 0.02 * total:
            return None
        elapsed = (time.monotonic() if now is None else now) - self.began
        return elapsed * (total - done) / done


def _stage(cost: Any, plan: Any) -> StageCost:
    passes = max(round(cost.passes / cost.fits), 1)
    if not schedule_of(plan.strategy).merges:
        return StageCost(cost.pass_seconds, cost.solve_seconds, passes)
    batch = max(plan.batch_elements // (cost.kept + cost.candidates) ** 2, 1)
    return StageCost(cost.pass_seconds, cost.solve_seconds, passes, cost.fits, batch)
