"""Measurements during planning: learn the kernel, the sparseness of the problem, and the speed of this machine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

from partirvm.blas_threads import one_blas_thread
from partirvm.data import Source
from partirvm.execution import Executor
from partirvm.kernels import Kernel, Several, kernel_from_spec
from partirvm.learning.basic_fits import probe_rows, sparseness
from partirvm.learning.folds import MANY, WIDTHS, choose
from partirvm.learning.forms import MOST_TURNED, learn, per_feature
from partirvm.learning.learned_text import kernel_texts
from partirvm.learning.process_search import FEW, LAST_ROWS, learn_regression, most_rows, searchable
from partirvm.learning.sample import Entry, SampledRows, Spent, gathered, line
from partirvm.learning.search import LearningOptions, learning_options, within_work
from partirvm.options import Request
from partirvm.planning.cost import Rates, learning_seconds, process_seconds
from partirvm.planning.make_plan import affordable
from partirvm.planning.memory import ALLOWANCE, DataShape, kept_bytes, sample_bytes
from partirvm.planning.plan import Machine, Plan, Sparseness
from partirvm.planning.units import counted, format_duration
from partirvm.setup.automatic import AUTO_PARTITION, resolve_partition_size
from partirvm.setup.kernel import chooses, chooses_family, metric_of
from partirvm.setup.timer import Interrupted, check_aborted
from partirvm.strategies.fit_rows import posterior_rows
from partirvm.strategies.instructions import Record
from partirvm.strategies.problem import Options, Problem
from partirvm.types import LEARNING_ROWS


@dataclass(frozen=True)
class Learned:
    """The result of kernel learning: the kernel, the final number of centres, history entries and a text for the plan.

    If the time limit ended learning early, the kernel is the best so far and ``centres`` is 0. ``notes`` list the
    limits that reduced the number of centres. ``left_out_square`` is that of ``Problem``.
    """

    kernel: Kernel | Several
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


class _TimeIsUp(Exception):
    """Raised if the time limit is over; the best result so far is then used."""


@dataclass(frozen=True)
class _Scope:
    """What kernel learning may use: ``rows`` of the sample, and ``columns`` of a dense fit.

    ``room`` is the number of bytes for kernel blocks. ``whole`` is False if work was reduced because of many features.
    """

    learning: LearningOptions
    rows: int
    columns: int
    room: int
    whole: bool
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Measuring:
    """Small fits to samples of a source within the memory limit; an abort raises ``StoppedError``.

    The executor gathers each sample once. The small fits then run in this process. ``announce`` is called with the
    expected seconds of kernel learning before it begins.
    """

    source: Source
    shape: DataShape
    machine: Machine
    parameters: Request
    executor: Executor
    interrupted: Interrupted
    announce: Callable[[str], None] = lambda text: None
    began: float = field(default_factory=time.perf_counter)

    def partition_size(self, problem: Problem, centres: int) -> PartitionSize:
        """Choose the partition size by the heuristic's fit; after kernel learning at least ``centres``.

        The size is the minimum for a constant target, and after a timeout.
        """
        n_rows, d, parameters = self.source.n_rows, self.source.n_features, self.parameters
        problem = replace(problem, likelihood=problem.likelihood.measured_by or problem.likelihood)
        wanted = probe_rows(n_rows, d, n_rows)
        most, least = min(wanted, parameters.heuristic_rows), min(AUTO_PARTITION[0], self.shape.n_candidates)
        if not problem.target_variance:
            return PartitionSize(least, left_open=True)
        rows = max(self._affordable(most * problem.n_kernels, most)[0] // problem.n_kernels, 1)
        cap = "heuristic_rows" if rows == most else "the memory limit"
        notes = (f"ρ measured on {rows:,} rows instead of {wanted:,} because of {cap}",) if rows < wanted else ()
        lines = _Lines(self, problem.empty.kernel)
        try:
            with self._sample(problem, rows, lines) as sample:
                record = sparseness(sample, problem, parameters.tol)
        except _TimeIsUp:
            return PartitionSize(least, left_open=True, notes=notes)
        lines.add(record)
        found, size, bounds = resolve_partition_size(n_rows, d, record, centres)
        return PartitionSize(size, True, found, tuple(lines.entries), notes + bounds)

    def kernel(self, problem: Problem, *, all_rows: bool) -> Learned:
        """Learn a kernel from an initial kernel; ``all_rows`` is True if all rows are candidates of a single fit."""
        parameters, chosen = self.parameters, chooses(self.parameters)
        problem = replace(problem, likelihood=problem.likelihood.measured_by or problem.likelihood)
        scope, lines = self._scope(problem), _Lines(self, problem.empty.kernel)
        learning, seed = scope.learning, parameters.seed
        self._announce(problem, scope)
        every = chosen and all_rows and scope.whole and self._memory_allows_all_candidates()
        start = per_feature(problem) if chosen else problem
        try:
            with self._sample(problem, LEARNING_ROWS if scope.whole else scope.rows, lines, scope.room) as sample:
                if searchable(problem):
                    family, columns = chooses_family(parameters), scope.columns
                    learn_regression(sample, start, learning, seed, family=family, columns=columns)
                elif problem.classifies and chosen:
                    options = Options(learning.max_centres, "random", seed=seed)
                    choose(sample, problem, learning, options, all_candidates=every)
                else:
                    learn(sample, start, learning, seed)
        except _TimeIsUp:
            return Learned(lines.best, 0, tuple(lines.entries), "not finished because of time_limit", scope.notes)
        last = lines.entries[-1]
        centres = min(last["candidates"], learning.max_centres)
        square = ((last["choice"] or {}).get("left_out_rmse", 0.0) / problem.target_scale) ** 2
        kernel = kernel_from_spec(last["kernel"])
        return Learned(kernel, centres, tuple(lines.entries), last["text"], scope.notes, square)

    def _scope(self, problem: Problem) -> _Scope:
        """Return the options of kernel learning, and the rows, columns and bytes that work and memory allow."""
        n_rows, d = self.source.n_rows, self.source.n_features
        learning = learning_options(
            n_rows,
            classes=problem.classifies,
            several=problem.n_classes > 2,
            prior=self.parameters.gamma_prior,
            metric=metric_of(self.parameters),
        )
        # the slopes of a block take as much memory as the block itself
        wanted = learning.max_centres
        rows, worth, evaluations = within_work(min(n_rows, LEARNING_ROWS), wanted, d)
        columns, room = self._affordable(max(2 * worth, min(LAST_ROWS, n_rows)), LEARNING_ROWS)
        most = min(max(columns // 2, 1), worth)
        notes: tuple[str, ...] = ()
        if most < worth:
            notes += (f"kernel learned with at most {most:,} centres because of the memory limit",)
        if worth < wanted:
            notes += (
                f"kernel learned from {rows:,} rows and at most {worth:,} centres, in searches of at most "
                f"{evaluations:,} evaluations, because of {d:,} features",
            )
        learning = replace(
            learning,
            centres=min(learning.centres, most),
            max_centres=most,
            evaluations=evaluations,
            metric="widths" if learning.metric == "auto" and d > MOST_TURNED else learning.metric,
        )
        return _Scope(learning, rows, columns, room, worth == wanted, notes)

    def _announce(self, problem: Problem, scope: _Scope) -> None:
        """Announce the expected seconds of kernel learning."""
        n_rows, d, learning, product = self.source.n_rows, self.source.n_features, scope.learning, product_rate()
        process, seconds = searchable(problem), 0.0
        if process:
            seconds += process_seconds(product, min(most_rows(d, scope.columns), n_rows), d)
        if not process or n_rows > FEW:
            seconds += learning_seconds(
                product,
                scope.rows,
                learning.centres,
                d,
                learning.evaluations,
                directions=learning.metric != "widths",
                folds=problem.classifies and chooses(self.parameters) and n_rows <= MANY,
            )
        what = f"{scope.rows:,} rows × {learning.centres:,} centres × {counted(d, 'feature')}"
        self.announce(f"kernel learning ({what}): about {format_duration(seconds)} of one thread")

    def _sample(self, problem: Problem, rows: int, lines: _Lines, room: int = 0) -> AbstractContextManager[SampledRows]:
        """Gather up to ``rows`` random rows; the time of passes over them is recorded in ``lines``."""
        options = Options(rows, "random", sample_rows=rows, seed=self.parameters.seed)
        numbers = posterior_rows(problem, options, "sample")
        hooks = {"room": room, "log": lines.add, "best": lines.is_best}
        return gathered(self.source, numbers, self.executor, self._check_interrupted, lines.spent, **hooks)

    def _check_interrupted(self, *passes: Any) -> None:
        reason = self.interrupted()
        check_aborted(lambda: reason)
        if reason is not None:
            raise _TimeIsUp

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
        return most, kept_bytes(self.shape, most, threads, machine.limit - machine.base - ALLOWANCE)


class _Lines:
    """History entries of small fits with their run times, and the best kernel so far."""

    def __init__(self, measuring: Measuring, kernel: Kernel | Several) -> None:
        self.best, self.spent = kernel, Spent()
        self.entries: list[Entry] = []
        self._measuring, self._epoch, self._since = measuring, time.time(), time.perf_counter()

    def is_best(self, kernel: Kernel | Several) -> None:
        """Store the best kernel so far."""
        self.best = kernel

    def add(self, record: Record) -> None:
        """Add an entry; time since the previous entry outside passes and dense fits is counted as ``deciding``."""
        spent, now = self.spent, time.perf_counter()
        dense = sum(ended - began for began, ended in spent.dense)
        spent.deciding = max(now - self._since - spent.passing - dense, 0.0)
        entry = line(record, spent.all(), self._measuring.began, self._epoch, saved=False)
        self.entries.append(entry | kernel_texts(self._measuring.source.columns.features)(entry))
        self._since = now


CALIBRATION_ROWS = 256
"""Number of rows, and of centres, of the kernel block that is timed."""


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
    return Rates(read, element, product_rate(), copy)


@cache
def product_rate() -> float:
    """Measure the flops per second of one thread in matrix products, once per process."""
    square = np.ones((512, 512))
    with one_blas_thread():
        return 2 * 512**3 / _least_seconds(lambda: square @ square)


def _least_seconds(work: Callable[[], Any], times: int = 3) -> float:
    """Run the function several times; return the shortest time, which other processes slowed down least."""
    spans = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        spans.append(time.perf_counter() - began)
    return min(spans)
