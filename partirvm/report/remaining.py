"""The remaining time of a fit: planned times, scaled by the measured time of the finished part."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from partirvm.report.quantities import MEASURED
from partirvm.strategies import schedule_of


@dataclass(frozen=True)
class StageCost:
    """Planned cost of a stage: a round, or a level of ``fits`` fits of which ``batch`` run in parallel.

    Seconds refer to the whole stage. ``passes`` is the number of successive passes of a fit or of a batch of fits.
    """

    pass_seconds: float
    solve_seconds: float
    passes: int = 1
    fits: int = 1
    batch: int = 1

    @property
    def seconds(self) -> float:
        """Planned seconds of passes and dense fits together."""
        return self.pass_seconds + self.solve_seconds

    def done(self, fits: int, over: float, passes: float, solved: float) -> float:
        """Return the planned seconds of the finished part of the stage.

        ``fits`` fits have ended, and ``over`` fits ended before the running batch. In the running batch, ``passes``
        passes and the fraction ``solved`` of the dense fits are finished.
        """
        batch = min(self.batch, self.fits - over)
        under_way = min(passes / self.passes, 1.0) * self.pass_seconds + solved * self.solve_seconds
        return max(fits * self.seconds, over * self.seconds + batch * under_way) / self.fits


@dataclass
class Remaining:
    """Tracker of the finished part of a plan. ``stages`` is empty if the number of rounds is unknown."""

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
        """Return the tracker for a plan, without stages if the plan has no number of rounds."""
        if schedule_of(plan.strategy).open_ended(plan.max_rounds):
            return cls(())
        return cls(tuple(_stage(cost, plan) for cost in plan.rounds))

    @property
    def stage(self) -> int:
        """Number of the current round or level, counted from 0, at most the number of the last round or level."""
        return min(self._stage, max(len(self.stages) - 1, 0))

    def on_tiles(self, done: int, total: int) -> None:
        """Receive that ``done`` of ``total`` tiles of a pass, or of several parallel passes, are finished."""
        if self._fits > self._over:
            self._begin(self._stage, self._fits)
        share = done / total
        if share < self._share or self._share == 1.0:
            self._passes += 1
        self._share = share

    def on_solves(self, done: int, total: int) -> None:
        """Receive that ``done`` of ``total`` parallel dense fits are finished."""
        self._solved = done / total

    def on_record(self, entry: dict[str, Any]) -> None:
        """Process the history entry of a finished fit."""
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
        """Return the approximate remaining seconds, or None if the remaining time is unknown (yet)."""
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
