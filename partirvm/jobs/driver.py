"""The driver: performs a strategy's instructions and tells it what came back.

All that touches rows, clock, disk or cluster happens here; all that decides happens in the strategy. Passes go to the
executor it is given, several of one answer at once; a dense fit runs here, several at once on the executor; models and
history go to the journal.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from partirvm.backends.base import Blocks, Executor
from partirvm.backends.blocks import Fetched
from partirvm.backends.threads import one_blas_thread
from partirvm.core.termination import Termination
from partirvm.core.updates import StepInfo
from partirvm.data.source import Source
from partirvm.kernels.design import Design
from partirvm.likelihoods.base import DenseFit, Fit, PassFit
from partirvm.likelihoods.passes import Pass
from partirvm.model import AnyModel
from partirvm.setup.kernel_search import learn_again
from partirvm.setup.sample import gathered
from partirvm.setup.spent import Entry as Entry
from partirvm.setup.spent import Spent, line
from partirvm.strategies.early import Early
from partirvm.strategies.instructions import (
    AnyStrategy,
    Event,
    Finish,
    Gather,
    Gathered,
    Instruction,
    KernelLearned,
    LearnKernel,
    Log,
    Passed,
    Record,
    Save,
    Saved,
    Solved,
    Stop,
)
from partirvm.strategies.problem import Options, Problem

RESUMABLE = ("round", "part", "kernel", "final")
"""Kinds of lines of history after which a run can go on; after the last fit only with more rows."""


class Watcher:
    """Hears what the driver does; every method may be overridden, none needs to be."""

    def on_tiles(self, name: str, done: int, total: int, rows: int) -> None:
        """A pass of this name has done so many of its tiles; ``rows`` is the number of rows it reads in all."""

    def on_step(self, info: StepInfo, candidates: int) -> None:
        """A dense fit has done one iteration."""

    def on_solves(self, done: int, total: int) -> None:
        """So many of the dense fits that run side by side are done."""

    def on_record(self, entry: dict[str, Any]) -> None:
        """A line was added to the history."""


@dataclass(frozen=True)
class Checkpoint:
    """Where a run can go on: a strategy's state that waits for ``waiting`` lines of history to be safe.

    After the ``final`` fit that is with more rows only (``strategies.growing``).
    """

    state: Any
    waiting: int
    final: bool = False


class Journal(Protocol):
    """Where a run leaves its model, its history, and where it stands."""

    def save(self, model: AnyModel) -> None:
        """Make this model the one to use."""
        ...

    def record(self, entry: dict[str, Any]) -> None:
        """Add a line of history: plain JSON values."""
        ...

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        """Make this the place to go on from; all models and lines before it were handed over already."""
        ...


@dataclass
class MemoryJournal:
    """A journal that keeps the last model and the history in memory, and no checkpoints."""

    model: AnyModel | None = None
    history: list[dict[str, Any]] = field(default_factory=list)

    def save(self, model: AnyModel) -> None:
        """Keep this model."""
        self.model = model

    def record(self, entry: dict[str, Any]) -> None:
        """Keep this line."""
        self.history.append(entry)

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        """Nothing: who has no job cannot go on."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended: why, its last line of history, its seconds, the columns and the fit of the model it saved last.

    ``state`` is where the strategy stood.
    """

    reason: Termination
    last: Record | None
    seconds: float
    kept: tuple[Design, Fit] | None = None
    state: Any = None


class _Interrupted(Exception):
    def __init__(self, reason: Termination) -> None:
        super().__init__(reason.value)
        self.reason = reason


@dataclass
class Driver:
    """Runs one strategy on one source.

    ``interrupted`` is asked between tiles and between dense iterations; once it answers with a reason the run ends with
    the model saved last. Where time is up before there is one, a small fit (``strategies.early``) leaves it. ``blocks``
    says how kernel blocks of the training rows are kept from pass to pass, if they are; ``told`` what a line of history
    says beside its record.
    """

    executor: Executor
    source: Source
    held_out: Source | None = None
    watcher: Watcher = field(default_factory=Watcher)
    interrupted: Callable[[], Termination | None] = lambda: None
    blocks: Blocks | None = None
    told: Callable[[Entry], Entry] = lambda entry: {}

    def run(
        self,
        strategy: AnyStrategy,
        problem: Problem,
        options: Options,
        journal: Journal,
        *,
        resume: Checkpoint | None = None,
        usable: bool = False,
        elapsed: float = 0.0,
        early: bool = True,
    ) -> Outcome:
        """Drive the strategy to its end. The journal holds the model when this returns.

        With ``resume`` it goes on from there, with the same bits as if it had never been away; ``usable`` says that the
        journal has a model already, ``elapsed`` how many seconds were spent before. Without ``early`` a run whose
        time is up before there is a model leaves none.
        """
        self._journal, self._began, self._epoch = journal, time.perf_counter() - elapsed, time.time()
        self._spent, self._likelihood = Spent(), problem.likelihood
        self._last: Record | None = None
        self._kept: tuple[Design, Fit] | None = None
        self._usable = usable
        with one_blas_thread():
            if resume is None:
                state, instructions = strategy.start(problem, options)
            else:
                state, instructions = strategy.next(resume.state, *[Saved()] * resume.waiting)
            outcome = self._run(strategy, state, instructions)
            if outcome.reason is not Termination.TIME or self._usable or not early:
                return outcome
            asked, self.interrupted = self.interrupted, lambda: None
            try:
                last = self._run(Early(), *Early().start(state.problem, state.options))
            finally:
                self.interrupted = asked
            return replace(last, reason=Termination.TIME)

    def _run(self, strategy: AnyStrategy, state: Any, instructions: tuple[Instruction, ...]) -> Outcome:
        while not isinstance(instructions[0], Finish):
            try:
                events = self._perform(instructions)
            except _Interrupted as interruption:
                events = (Stop(interruption.reason),)
            else:
                if isinstance(instructions[0], Save | Log) and instructions[0].record.kind in RESUMABLE:
                    final = instructions[0].record.kind == "final"
                    self._journal.checkpoint(Checkpoint(state, len(instructions), final))
            began = time.perf_counter()
            state, instructions = strategy.next(state, *events)
            events = ()  # statistics may be as large as what is made of them: not held while that is solved
            self._spent.deciding += time.perf_counter() - began
        return Outcome(instructions[0].reason, self._last, time.perf_counter() - self._began, self._kept, state)

    def _perform(self, instructions: Sequence[Instruction]) -> tuple[Event, ...]:
        """The answers to instructions that are all of one kind, or all lines of history."""
        if not isinstance(instructions[0], Save | Log):
            self._check()
        if isinstance(instructions[0], Pass):
            return tuple(map(Passed, self._passes([each for each in instructions if isinstance(each, Pass)])))
        if isinstance(instructions[0], PassFit):
            return self._by_passes([each for each in instructions if isinstance(each, PassFit)])
        if isinstance(instructions[0], LearnKernel):
            return (self._learn(instructions[0]),)
        if isinstance(instructions[0], DenseFit):
            fits = [each for each in instructions if isinstance(each, DenseFit)]
            return self._solves(fits) if len(fits) > 1 else (self._solve(fits[0]),)
        return tuple(self._one(instruction, len(instructions)) for instruction in instructions)

    def _one(self, instruction: Instruction, of: int) -> Event:
        match instruction:
            case Gather(rows):
                weights = self.source.weights_of(rows)
                present = None if weights is None else weights > 0
                return Gathered(self.executor.gather(self.source, rows), present)
            case Save(design, fit, record, moderate):
                self._kept = design, fit
                # a model takes the origin that is best for its own digits, the one it will have when it is read back
                design = replace(design, origin=None)
                self._journal.save(self._likelihood.model(design, fit, self.source.columns, moderate))
                self._usable = True
                return self._record(record, self._spent.share(of), saved=True)
            case Log(record):
                return self._record(record, self._spent.share(of))
        raise AssertionError(f"no way to perform {instruction}")

    def _passes(self, passes: Sequence[Pass]) -> list[Any]:
        source = self.source
        if passes[0].held_out:
            assert self.held_out is not None
            source = self.held_out
        name = passes[0].name
        rows = sum(one.count(source.n_rows) for one in passes)

        def progress(done: int, total: int) -> None:
            self.watcher.on_tiles(name, done, total, rows)
            self._check()

        began = time.perf_counter()
        statistics = self.executor.run(passes, source, progress, self._blocks(passes, source))
        self._spent.passing += time.perf_counter() - began
        self._spent.passes += len(passes)
        self._spent.rows += rows
        return statistics

    def _learn(self, wanted: LearnKernel) -> KernelLearned:
        """A search for a kernel in this process, on rows that are gathered once."""

        def heard(passes: Sequence[Any], done: int, total: int) -> None:
            if passes and total:
                rows = total_rows * len(passes)
                self.watcher.on_tiles(passes[0].name, done, total, rows)
            self._check()

        total_rows = self.source.n_rows if wanted.rows is None else len(wanted.rows)
        with gathered(self.source, wanted.rows, self.executor, heard, self._spent) as sample:
            began, passing = time.perf_counter(), self._spent.passing
            found = learn_again(sample, wanted)
            self._spent.deciding += time.perf_counter() - began - (self._spent.passing - passing)
        return found

    def _by_passes(self, tasks: Sequence[PassFit]) -> tuple[Event, ...]:
        """Fits side by side that need a pass for each step: the next pass of all of them is one reading of the rows."""
        courses, seconds, first = [task.begun() for task in tasks], [0.0] * len(tasks), time.time()
        while going := [k for k, course in enumerate(courses) if course.reason is None]:
            blocks = self._passes([courses[k].next_pass for k in going])
            for k, block in zip(going, blocks, strict=True):
                began = time.perf_counter()
                courses[k] = courses[k].advance(block, self._check)
                seconds[k] += time.perf_counter() - began
                self.watcher.on_step(courses[k].info, tasks[k].candidates)
                self._check()
        for spent in seconds:
            self._spent.solved(first, first + spent)
        return tuple(Solved(course.fit, course.reason) for course in courses if course.reason is not None)

    def _blocks(self, passes: Sequence[Pass], source: Source) -> Blocks | None:
        """How blocks are kept in this run of passes: those of held-out rows are not, one pass sees them in a round."""
        if self.blocks is None or source is not self.source:
            return None
        self.blocks.begin(max(sum(design.n_columns for design in one.designs) for one in passes))
        return self.blocks

    def _solve(self, solve: DenseFit) -> Solved:
        def on_step(info: StepInfo) -> None:
            self.watcher.on_step(info, solve.candidates)
            self._check()

        began = time.time()
        fit, reason = solve.run(on_step)
        self._spent.solved(began, time.time())
        return Solved(fit, reason)

    def _solves(self, solves: Sequence[DenseFit]) -> tuple[Event, ...]:
        def progress(done: int, total: int) -> None:
            self.watcher.on_solves(done, total)
            self._check()

        solutions = self.executor.solve(solves, progress)
        for solution in solutions:
            self._spent.solved(solution.began, solution.ended)
        return tuple(Solved(solution.fit, solution.reason) for solution in solutions)

    def _record(self, record: Record, spent: dict[str, float], *, saved: bool = False) -> Saved:
        self._last = record
        entry = line(record, spent, self._began, self._epoch, saved=saved)
        if self.blocks is not None:
            fetched, self.blocks.fetched = self.blocks.fetched, Fetched(failures=self.blocks.fetched.failures)
            entry["kernel_evaluated"], entry["kernel_kept"] = fetched.evaluated, fetched.kept
        entry |= self.told(entry)
        self._journal.record(entry)
        self.watcher.on_record(entry)
        return Saved()

    def _check(self) -> None:
        reason = self.interrupted()
        if reason is not None:
            raise _Interrupted(reason)
