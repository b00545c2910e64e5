"""Random rows of a source for small fits before planning, and the log of such a fit."""

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from partirvm.core.termination import Termination
from partirvm.data import Source
from partirvm.data.folds import unfolded_source
from partirvm.execution import Executor
from partirvm.kernels.design import Design
from partirvm.learning.forms import kernel_text
from partirvm.learning.sample import EFFORT, STAGES, OnStep, SampledRows, SearchEffort, gathered
from partirvm.options import Request
from partirvm.planning.fit_memory import affordable
from partirvm.planning.machine import Machine
from partirvm.planning.memory import DataShape, kept_bytes, sample_bytes
from partirvm.resolve.new_problem import Interrupted
from partirvm.spec.entries import Entry, Record, Spent, line
from partirvm.spec.problem import Options, Problem
from partirvm.strategies.fit_rows import posterior_rows
from partirvm.strategies.instructions import Stopped


class OutOfTime(Stopped):
    """Raised when the time limit has passed: a small fit ends early, which is not an error."""


@dataclass
class SmallFitLog:
    """The log of a small fit, which is kept if the time limit ends the fit.

    Attributes:
        samples: supplies the times and the feature names.
        best: a design with the best kernel so far.
        entries: history entries.
        stage: the current stage of kernel learning.
        evaluations: number of evaluations in this stage.
        began: when the stage began, in seconds.
    """

    samples: "Samples"
    best: Design
    entries: list[Entry] = field(default_factory=list)
    stage: str = STAGES[0]
    evaluations: int = 0
    began: float = 0.0

    def keep(self, best: Design) -> None:
        """Store a design with the best kernel so far."""
        self.best = best

    def step(self, stage: str) -> None:
        """Report that a stage of kernel learning begins or, with "", that the current stage makes
        another evaluation."""
        now = time.perf_counter()
        if stage:
            self.stage = stage
            self.evaluations = 0
            self.began = now
        else:
            self.evaluations += 1
        text = self.stage
        seconds = now - self.began
        if seconds > 0.5:
            text += f", {self.evaluations / seconds:,.1f} evaluations/s"
        self.samples.on_step(1 + STAGES.index(self.stage), len(STAGES), text)

    def add(self, record: Record) -> None:
        """Append an entry with the time since the previous one."""
        samples = self.samples
        entry = line(record, samples.spent.share(), samples.began, saved=False)
        names = self.best.scaling.names(samples.source.columns.features)
        self.entries.append(entry | kernel_text(entry, names))


@dataclass
class Samples:
    """Random rows for small fits in this process, within the memory limit.

    Attributes:
        source: the rows.
        shape: numbers of rows and columns.
        machine: memory and threads.
        request: options of the fit.
        executor: gathers rows and runs passes.
        interrupted: returns why the work must end, or None.
        on_step: called with the progress of kernel learning.
        spent: counts passes and their time.
        began: when the first small fit began, in seconds.
        effort: limits kernel searches.
    """

    source: Source
    shape: DataShape
    machine: Machine
    request: Request
    executor: Executor
    interrupted: Interrupted
    on_step: OnStep = lambda number, total, text: None
    spent: Spent = field(default_factory=Spent)
    began: float = field(default_factory=time.perf_counter)
    effort: SearchEffort = field(default_factory=lambda: EFFORT)

    @property
    def unfolded(self) -> Source:
        """The rows as new rows have them (``data.folds``)."""
        return unfolded_source(self.source)

    def take(
        self, problem: Problem, rows: int, log: SmallFitLog | None = None, room: int = 0
    ) -> AbstractContextManager[SampledRows]:
        """Gather random rows.

        Args:
            problem: determines the rows with positive weight
            rows: maximum number of rows
            log: receives the records of the fit
            room: bytes for kernel blocks

        Raises ``Stopped`` on abort and ``OutOfTime`` at the time limit.
        """
        log = log or SmallFitLog(self, problem.empty)
        self.spent.since = time.perf_counter()
        options = Options(rows, "random", sample_rows=rows, seed=self.request.seed)
        numbers = posterior_rows(problem, options, "sample")
        return gathered(
            self.source,
            numbers,
            self.executor,
            self.check,
            self.spent,
            room=room,
            on_best=log.keep,
            on_step=log.step,
            log=log.add,
            effort=self.effort,
        )

    def check(self, *_: Any) -> None:
        """Raise an exception if the work must end."""
        reason = self.interrupted()
        if reason is Termination.TIME:
            raise OutOfTime(reason)
        if reason is not None:
            raise Stopped(reason)

    def affordable(self, columns: int, rows: int) -> tuple[int, int]:
        """Return how many columns fit in memory along with a sample, and the bytes for kernel
        blocks; set the number of threads."""
        machine = replace(self.machine, base=self.machine.base + sample_bytes(self.shape, rows))
        threads, most = affordable(self.shape, machine, columns)
        self.executor.use(threads)
        return most, kept_bytes(self.shape, most, threads, machine.budget)
