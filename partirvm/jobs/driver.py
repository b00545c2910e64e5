"""The driver: performs a strategy's instructions and tells it what came back.

All that touches rows, clock, disk or cluster happens here; all that decides happens in the strategy. Passes go to the
executor it is given, dense fits run here with a fixed number of BLAS threads, models and history go to the journal.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from partirvm.backends.base import Executor
from partirvm.backends.process import peak_memory
from partirvm.backends.threads import one_blas_thread
from partirvm.core.termination import Termination
from partirvm.core.updates import StepInfo, step, verdict
from partirvm.data.source import Source
from partirvm.model import Model
from partirvm.strategies.instructions import (
    Event,
    Finish,
    Gather,
    Gathered,
    Instruction,
    Options,
    Passed,
    Problem,
    Record,
    Save,
    Saved,
    ScorePass,
    Solve,
    Solved,
    Stop,
    Strategy,
)

PASS_NAMES = {"GramPass": "gram", "ResidualPass": "residual", "ScorePass": "held-out", "MomentsPass": "moments"}


class Watcher:
    """Hears what the driver does; every method may be overridden, none needs to be."""

    def on_tiles(self, name: str, done: int, total: int, rows: int) -> None:
        """A pass of this name has done so many of its tiles; ``rows`` is the number of rows it reads in all."""

    def on_step(self, info: StepInfo, candidates: int) -> None:
        """A dense fit has done one iteration."""

    def on_record(self, entry: dict[str, Any]) -> None:
        """A line was added to the history."""


class Journal(Protocol):
    """Where a run leaves its model and its history."""

    def save(self, model: Model) -> None:
        """Make this model the one to use."""
        ...

    def record(self, entry: dict[str, Any]) -> None:
        """Add a line of history: plain JSON values."""
        ...


@dataclass
class MemoryJournal:
    """A journal that keeps the last model and the history in memory."""

    model: Model | None = None
    history: list[dict[str, Any]] = field(default_factory=list)

    def save(self, model: Model) -> None:
        """Keep this model."""
        self.model = model

    def record(self, entry: dict[str, Any]) -> None:
        """Keep this line."""
        self.history.append(entry)


@dataclass(frozen=True)
class Outcome:
    """How a run ended: why, the history's line of the model that it leaves, and its seconds."""

    reason: Termination
    last: Record | None
    seconds: float


class _Interrupted(Exception):
    def __init__(self, reason: Termination) -> None:
        super().__init__(reason.value)
        self.reason = reason


@dataclass
class Driver:
    """Runs one strategy on one source.

    ``interrupted`` is asked between tiles and between dense iterations; once it answers with a reason, and a model has
    been saved, the run ends with the model saved last. Until there is a model, only ``ABORTED`` ends it.
    """

    executor: Executor
    source: Source
    held_out: Source | None = None
    watcher: Watcher = field(default_factory=Watcher)
    interrupted: Callable[[], Termination | None] = lambda: None

    def run(self, strategy: Strategy, problem: Problem, options: Options, journal: Journal) -> Outcome:
        """Drive the strategy to its end. The journal holds the model when this returns."""
        with one_blas_thread():
            return self._run(strategy, problem, options, journal)

    def _run(self, strategy: Strategy, problem: Problem, options: Options, journal: Journal) -> Outcome:
        self._journal, self._began = journal, time.perf_counter()
        self._spent = {"pass_seconds": 0.0, "solve_seconds": 0.0, "passes": 0}
        self._last: Record | None = None
        state, instructions = strategy.start(problem, options)
        while True:
            (instruction,) = instructions
            if isinstance(instruction, Finish):
                return Outcome(instruction.reason, self._last, time.perf_counter() - self._began)
            try:
                event = self._perform(instruction)
            except _Interrupted as interruption:
                event = Stop(interruption.reason)
            with self._timed("solve_seconds"):
                state, instructions = strategy.next(state, event)

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self._spent[name] += time.perf_counter() - began

    def _perform(self, instruction: Instruction) -> Event:
        match instruction:
            case Gather(rows):
                return Gathered(self.executor.gather(self.source, rows))
            case Solve():
                return self._solve(instruction)
            case Save():
                return self._save(instruction)
            case Finish():
                raise AssertionError("handled by the loop")
        return self._pass(instruction)

    def _pass(self, instruction: Any) -> Passed:
        source = self.source
        if isinstance(instruction, ScorePass):
            assert self.held_out is not None
            source = self.held_out
        name = PASS_NAMES[type(instruction).__name__]

        def progress(done: int, total: int) -> None:
            self.watcher.on_tiles(name, done, total, source.n_rows)
            self._check()

        with self._timed("pass_seconds"):
            statistic = self.executor.run(instruction, source, progress)
        self._spent["passes"] += 1
        return Passed(statistic)

    def _solve(self, instruction: Solve) -> Solved:
        fit, reason = instruction.start, None
        with self._timed("solve_seconds"):
            while reason is None:
                self._check()
                fit, info = step(fit)
                self.watcher.on_step(info, instruction.candidates)
                reason = verdict(fit, info, instruction.rule)
        return Solved(fit, reason)

    def _save(self, instruction: Save) -> Saved:
        self._journal.save(Model.from_fit(instruction.design, instruction.fit, self.source.columns))
        self._last = instruction.record
        entry = asdict(instruction.record)
        entry["termination"] = instruction.record.termination.value
        entry["seconds"] = time.perf_counter() - self._began
        entry |= self._spent
        entry["peak_memory"] = peak_memory()
        self._spent = {"pass_seconds": 0.0, "solve_seconds": 0.0, "passes": 0}
        self._journal.record(entry)
        self.watcher.on_record(entry)
        return Saved()

    def _check(self) -> None:
        reason = self.interrupted()
        if reason is not None and (self._last or reason is Termination.ABORTED):
            raise _Interrupted(reason)


def deadline(seconds: float | None) -> Callable[[], Termination | None]:
    """An interruption that answers ``TIME`` once so many seconds have passed from now; never for None."""
    end = None if seconds is None else time.monotonic() + seconds

    def interrupted() -> Termination | None:
        return Termination.TIME if end is not None and time.monotonic() > end else None

    return interrupted
