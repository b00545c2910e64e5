"""Measurements during planning: learn the kernel, the sparseness of the problem, and the speed of this machine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from partirvm.blas_threads import one_blas_thread
from partirvm.core.termination import Termination
from partirvm.data import Source
from partirvm.execution import Executor
from partirvm.kernels import Kernel, kernel_from_spec
from partirvm.learning.folds import DENSE, WIDTHS, choose, sparseness
from partirvm.learning.forms import kernel_texts, learn, per_feature
from partirvm.learning.process_search import LAST_ROWS, learn_regression, searchable
from partirvm.learning.sample import Entry, SampledRows, Spent, gathered, line
from partirvm.learning.search import learning_options, within_work
from partirvm.options import Request
from partirvm.planning.cost import Rates
from partirvm.planning.memory import DataShape, kept_bytes, sample_bytes
from partirvm.planning.plan import Machine, Plan, Sparseness, affordable, partition_size, probe_rows
from partirvm.planning.units import parse_duration
from partirvm.resolve.kernel import chooses, chooses_family, metric_of
from partirvm.strategies.fit_rows import posterior_rows
from partirvm.strategies.problem import Options, Problem, Record, Stopped
from partirvm.types import LEARNING_ROWS

Interrupted: TypeAlias = Callable[[], Termination | None]
"""Called repeatedly during a fit; returns the reason to end the fit, or None to continue."""

AUTO_PARTITION = (32, 1000)
"""Minimum and maximum of the partition size that ``partition_size="auto"`` chooses."""

HEURISTIC_ROWS = 2000
"""Maximum number of rows of the basic RVM from which ``partition_size="auto"`` derives P."""

CALIBRATION_ROWS = 256
"""Number of rows, and of centres, of the kernel block that is timed."""


def check_aborted(interrupted: Interrupted) -> None:
    """Raise ``Stopped`` if an abort was requested; the caller decides which files to keep."""
    if interrupted() is Termination.ABORTED:
        raise Stopped(Termination.ABORTED)


@dataclass
class Timer:
    """A timer that starts on creation. ``limit`` is in seconds; ``since`` is the start in seconds since 1970."""

    limit: float | None = None
    clock: Callable[[], float] = time.monotonic
    since: float = field(default_factory=time.time)
    _began: float = field(init=False)

    def __post_init__(self) -> None:
        self._began = self.clock()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return self.clock() - self._began

    def __call__(self) -> Termination | None:
        """Return ``TIME`` if the time limit is over, otherwise None."""
        return Termination.TIME if self.seconds > (math.inf if self.limit is None else self.limit) else None

    def after(self, other: Interrupted) -> Interrupted:
        """Return a function that first calls ``other``, and calls this timer if ``other`` returns None."""
        return lambda: other() or self()


def timer_of(parameters: Request) -> Timer:
    """Start the timer of a fit, which includes planning. Raises ``UsageError`` for an invalid time limit."""
    limit = parameters.time_limit
    return Timer(None if limit is None else parse_duration(limit, "time_limit"))


@dataclass(frozen=True)
class Learned:
    """The result of kernel learning: the kernel, the final number of centres, history entries and a text for the plan.

    If the time limit ended learning early, the kernel is the best so far and ``centres`` is 0. ``notes`` list the
    limits that reduced the number of centres. ``left_out_square`` is that of ``Problem``.
    """

    kernel: Kernel
    centres: int
    lines: tuple[Entry, ...]
    text: str
    notes: tuple[str, ...] = ()
    left_out_square: float = 0.0


@dataclass(frozen=True)
class PartitionSize:
    """The partition size and the measurements that it is based on.

    With ``left_open`` the plan may lower the partition size if memory is short. ``lines`` are the history entries of
    the heuristic's fit. ``notes`` list the bounds that changed the partition size.
    """

    size: int
    left_open: bool = False
    sparseness: Sparseness | None = None
    lines: tuple[Entry, ...] = ()
    notes: tuple[str, ...] = ()

    def lines_with(self, plan: Plan) -> tuple[Entry, ...]:
        """Return the history entries; add the partition size of the plan and the plan's notes to the last entry."""
        if self.sparseness is None:
            return self.lines
        chosen = {"partition_size": plan.partition_size, "heuristic_size": self.sparseness.partition_size}
        return (*self.lines[:-1], {**self.lines[-1], **chosen, "notes": list(plan.notes)})


@dataclass(frozen=True)
class Measuring:
    """Small fits to samples of a source within the memory limit; an abort raises ``Stopped``.

    The executor gathers each sample once. The small fits then run in this process.
    """

    source: Source
    shape: DataShape
    machine: Machine
    parameters: Request
    executor: Executor
    interrupted: Interrupted
    began: float = field(default_factory=time.perf_counter)

    def partition_size(self, problem: Problem, centres: int) -> PartitionSize:
        """Choose the partition size by the heuristic's fit; after kernel learning at least ``centres``.

        The size is the minimum for a constant target, and after a timeout.
        """
        n_rows, d = self.source.n_rows, self.source.n_features
        problem = replace(problem, likelihood=problem.likelihood.measured_by or problem.likelihood)
        wanted = probe_rows(n_rows, d)
        most, least = min(wanted, HEURISTIC_ROWS), min(AUTO_PARTITION[0], self.shape.n_candidates)
        if not problem.target_variance:
            return PartitionSize(least, left_open=True)
        rows = max(self._affordable(most * problem.n_kernels, most)[0] // problem.n_kernels, 1)
        cap = "the time it takes" if rows == most else "the memory limit"
        notes = (f"ρ measured on {rows:,} rows instead of {wanted:,} because of {cap}",) if rows < wanted else ()
        lines = _Lines(self, problem.empty.kernel)
        try:
            with self._sample(problem, rows, lines) as sample:
                record = sparseness(sample, problem, self.parameters.tol)
        except Stopped as stopped:
            if stopped.reason is not Termination.TIME:
                raise
            return PartitionSize(least, left_open=True, notes=notes)
        lines.add(record)
        found, size, bounds = resolve_partition_size(n_rows, d, record, centres)
        return PartitionSize(size, True, found, tuple(lines.entries), notes + bounds)

    def kernel(self, problem: Problem, *, all_rows: bool) -> Learned:
        """Learn a kernel from an initial kernel; ``all_rows`` is True if all rows are candidates of a single fit.

        Work, memory and many features bound rows, centres and evaluations; ``notes`` say so.
        """
        parameters, n_rows, d = self.parameters, self.source.n_rows, self.shape.n_features
        chosen = chooses(parameters)
        problem = replace(problem, likelihood=problem.likelihood.measured_by or problem.likelihood)
        kinds = {"classes": problem.classifies, "several": problem.n_classes > 2}
        learning = learning_options(n_rows, **kinds, prior=parameters.gamma_prior, metric=metric_of(parameters))
        wanted = learning.max_centres
        rows, worth, evaluations = within_work(min(n_rows, LEARNING_ROWS), wanted, d)
        columns, room = self._affordable(max(2 * worth, min(LAST_ROWS, n_rows)), LEARNING_ROWS)
        most = min(max(columns // 2, 1), worth)  # the slopes of a block take as much memory as the block itself
        notes: tuple[str, ...] = ()
        if most < worth:
            notes += (f"kernel learned with at most {most:,} centres because of the memory limit",)
        if worth < wanted:
            notes += (
                f"kernel learned from {rows:,} rows and at most {worth:,} centres, in searches of at most "
                f"{evaluations:,} evaluations, because of {d:,} features",
            )
        learning = replace(learning, centres=min(learning.centres, most), max_centres=most, evaluations=evaluations)
        every = chosen and all_rows and worth == wanted and self._memory_allows_all_candidates()
        start, lines = per_feature(problem) if chosen else problem, _Lines(self, problem.empty.kernel)
        try:
            with self._sample(problem, LEARNING_ROWS if worth == wanted else rows, lines, room) as sample:
                if searchable(problem):
                    family = chooses_family(parameters)
                    learn_regression(sample, start, learning, parameters.seed, family=family, columns=columns)
                elif problem.classifies and chosen:
                    options = Options(learning.max_centres, "random", seed=parameters.seed)
                    choose(sample, problem, learning, options, all_candidates=every)
                else:
                    learn(sample, start, learning, parameters.seed)
        except Stopped as stopped:
            if stopped.reason is not Termination.TIME:
                raise
            return Learned(lines.best, 0, tuple(lines.entries), "not finished because of time_limit", notes)
        last = lines.entries[-1]
        centres = min(last["candidates"], learning.max_centres)
        square = ((last["choice"] or {}).get("left_out_rmse", 0.0) / problem.target_scale) ** 2
        kernel = kernel_from_spec(last["kernel"])
        return Learned(kernel, centres, tuple(lines.entries), last["text"], notes, square)

    def _sample(self, problem: Problem, rows: int, lines: _Lines, room: int = 0) -> AbstractContextManager[SampledRows]:
        """Gather up to ``rows`` random rows; the time of passes over them is recorded in ``lines``."""
        options = Options(rows, "random", sample_rows=rows, seed=self.parameters.seed)
        numbers = posterior_rows(problem, options, "sample")
        hooks = {"room": room, "log": lines.add, "best": lines.is_best}
        return gathered(self.source, numbers, self.executor, self._check_interrupted, lines.spent, **hooks)

    def _check_interrupted(self, *passes: Any) -> None:
        reason = self.interrupted()
        if reason is not None:
            raise Stopped(reason)

    def _memory_allows_all_candidates(self) -> bool:
        """True if memory allows a basic RVM of all rows for each compared kernel at the same time."""
        columns = math.ceil(math.sqrt(len(WIDTHS) + 1) * self.source.n_rows)
        return self._affordable(columns, self.source.n_rows)[0] >= columns

    def _affordable(self, columns: int, rows: int) -> tuple[int, int]:
        """Return the number of columns that fit in memory with a sample, and the bytes left for kernel blocks.

        The executor then uses as many threads as these columns allow.
        """
        held = sample_bytes(self.shape, rows)
        machine = replace(self.machine, base=self.machine.base + held)
        threads, most = affordable(self.shape, machine, columns, shrink_threads=self.executor.elastic)
        self.executor.use(threads)
        return most, kept_bytes(self.shape, most, threads, machine.budget)


class _Lines:
    """History entries of small fits with their run times, and the best kernel so far."""

    def __init__(self, measuring: Measuring, kernel: Kernel) -> None:
        self.best, self.spent = kernel, Spent()
        self.entries: list[Entry] = []
        self._measuring, self._epoch, self._since = measuring, time.time(), time.perf_counter()

    def is_best(self, kernel: Kernel) -> None:
        """Store the best kernel so far."""
        self.best = kernel

    def add(self, record: Record) -> None:
        """Add an entry; time since the previous entry outside passes and dense fits is counted as ``deciding``."""
        spent, now = self.spent, time.perf_counter()
        dense = sum(ended - began for began, ended in spent.dense)
        spent.deciding = max(now - self._since - spent.passing - dense, 0.0)
        entry = line(record, spent.share(), self._measuring.began, self._epoch, saved=False)
        self.entries.append(entry | kernel_texts(self._measuring.source.columns.features)(entry))
        self._since = now


def resolve_partition_size(
    n_rows: int, d: int, measured: Record, centres: int = 0
) -> tuple[Sparseness, int, tuple[str, ...]]:
    """Resolve ``partition_size="auto"`` from the fit of the heuristic.

    Returns the measured sparseness, the partition size within its bounds, and notes about these bounds. After kernel
    learning the partition size is at least the number of ``centres``. Learned kernels are wide, so the heuristic finds
    few vectors; rounds of so few candidates would end the fit too early.
    """
    heuristic = partition_size(n_rows, d, measured.vectors / measured.rows)
    sparseness = Sparseness(measured.rows, measured.vectors, heuristic)
    least, most = AUTO_PARTITION
    size = min(max(heuristic, least), most, n_rows)
    notes: tuple[str, ...] = ()
    if size < min(centres, most, n_rows):
        size = min(centres, most, n_rows)
        notes += (f"partition size raised from {heuristic:,} to {size:,}, the number of centres in kernel learning",)
    elif size > heuristic:
        notes += (f"partition size raised from {heuristic:,} to {size:,}, the minimum of 'auto'",)
    if size < heuristic:
        why = "the maximum of 'auto'" if size == most else "the number of rows"
        notes += (f"partition size lowered to {size:,}, {why}",)
    if sparseness.rho > DENSE:
        notes += ("nearly every row became a vector: the kernel is probably too narrow (lower gamma)",)
    return sparseness, size, notes


def calibrate(source: Source, problem: Problem) -> Rates:
    """Measure the rates of one thread on the first tile; without a kernel, leading columns are timed as elements."""
    with one_blas_thread():
        began = time.perf_counter()
        tile = source.tile(0)
        read = (time.perf_counter() - began) / len(tile.X)
        X = tile.X[:CALIBRATION_ROWS]
        centres = X[:256]
        design = problem.empty.with_centres(centres, np.arange(len(centres)))
        design = design if problem.n_kernels else design.led_by(problem.leading)
        block = design.block(X)
        element = _least_seconds(lambda: design.block(X, block)) / block.size
        kept, places = block.T.copy(), np.arange(block.shape[1])
        copy = _least_seconds(lambda: np.take(kept, places, axis=0, out=block.T, mode="clip")) / block.size
        square = np.ones((512, 512))
        product = 2 * 512**3 / _least_seconds(lambda: square @ square)
    return Rates(read, element, product, copy)


def _least_seconds(work: Callable[[], Any], times: int = 3) -> float:
    """Run the function several times; return the shortest time, which other processes slowed down least."""
    spans = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        spans.append(time.perf_counter() - began)
    return min(spans)
