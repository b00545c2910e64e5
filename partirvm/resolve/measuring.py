"""Measurements during planning: learn the kernel, the sparseness of the problem, and the speed of this machine."""

from __future__ import annotations

import math
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from timeit import repeat
from typing import Any

import numpy as np

from partirvm.core.termination import Termination
from partirvm.data import Source
from partirvm.execution import Executor
from partirvm.kernels import Kernel, kernel_from_spec
from partirvm.learning.folds import DENSE, choose, sparseness
from partirvm.learning.forms import kernel_text, learn, per_feature
from partirvm.learning.process_search import LAST_ROWS, learn_regression, searchable
from partirvm.learning.sample import Entry, SampledRows, Spent, gathered, line
from partirvm.learning.search import learning_options
from partirvm.options import Request
from partirvm.planning.cost import Rates
from partirvm.planning.memory import DataShape, kept_bytes, sample_bytes
from partirvm.planning.plan import Machine, Sparseness, affordable
from partirvm.process import one_blas_thread
from partirvm.resolve.kernel import chooses
from partirvm.resolve.new_problem import Interrupted
from partirvm.strategies.fit_rows import posterior_rows
from partirvm.strategies.problem import Options, Problem, Record, Stopped
from partirvm.types import LEARNING_ROWS

AUTO_PARTITION = (32, 1000)
"""Minimum and maximum of the partition size that ``partition_size="auto"`` chooses."""

HEURISTIC_ROWS = 2000
"""Maximum number of rows of the basic RVM from which ``partition_size="auto"`` derives P."""


class Timer:
    """A timer that starts on creation. ``limit`` is in seconds."""

    def __init__(self, limit: Any = None) -> None:
        self.limit, self._began = limit, time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def __call__(self) -> Termination | None:
        """Return ``TIME`` if the time limit is over, otherwise None."""
        return Termination.TIME if self.seconds > (math.inf if self.limit is None else self.limit) else None

    def after(self, other: Interrupted) -> Interrupted:
        """Return a function that first calls ``other``, and calls this timer if ``other`` returns None."""
        return lambda: other() or self()


@dataclass
class Measuring:
    """Small fits, in this process, to samples of a source within the memory limit; an abort raises ``Stopped``.

    ``entries`` are their history entries, ``notes`` the limits that reduced them, ``learned`` a text on the learned
    kernel, and ``centres`` the number of its centres, or 0 if the time limit ended learning early.
    """

    source: Source
    shape: DataShape
    machine: Machine
    request: Request
    executor: Executor
    interrupted: Interrupted
    entries: list[Entry] = field(default_factory=list)
    notes: tuple[str, ...] = ()
    learned: str | None = None
    centres: int = 0
    sparseness: Sparseness | None = None
    _best: Kernel | None = None
    _spent: Spent = field(default_factory=Spent)
    _began: float = field(default_factory=time.perf_counter)

    def learn(self, problem: Problem, *, all_rows: bool) -> Problem:
        """Return the problem with a learned kernel; ``all_rows`` is True if all rows are candidates of a single fit.

        After the time limit, the kernel is the best so far.
        """
        request, n_rows, d, chosen = self.request, self.source.n_rows, self.shape.n_features, chooses(self.request)
        metric = "widths" if request.metric == "auto" and not chosen else request.metric
        several = problem.n_classes > 2
        learning = learning_options(n_rows, d, classes=problem.n_classes > 0, several=several, metric=metric)
        columns, room = self._affordable(max(2 * learning.max_centres, min(LAST_ROWS, n_rows)), LEARNING_ROWS)
        most = min(max(columns // 2, 1), learning.max_centres)  # the slopes of a block take as much memory as the block
        unbounded = learning.rows >= min(n_rows, LEARNING_ROWS)
        if most < learning.max_centres or not unbounded:
            self.notes += (
                f"kernel learned from {learning.rows:,} rows and at most {most:,} centres because of the memory limit "
                "or the number of features",
            )
        learning = replace(learning, centres=min(learning.centres, most), max_centres=most)
        measured = replace(problem, likelihood=problem.likelihood.measured_by or problem.likelihood)
        start, self._best = per_feature(measured) if chosen else measured, problem.empty.kernel
        try:
            with self._sample(measured, learning.rows, room) as sample:
                if searchable(measured):
                    family = request.kernel == "auto"
                    learn_regression(sample, start, learning, request.seed, family=family, columns=columns)
                elif chosen and not measured.likelihood.has_noise:
                    options = Options(learning.max_centres, "random", seed=request.seed)
                    choose(sample, measured, learning, options, all_candidates=all_rows and unbounded)
                else:
                    learn(sample, start, learning, request.seed)
        except Stopped as stopped:
            if stopped.reason is not Termination.TIME:
                raise
            self.learned = "not finished because of time_limit"
            return problem.with_kernel(self._best)
        last = self.entries[-1]
        self.learned, self.centres = last["text"], min(last["candidates"], learning.max_centres)
        square = ((last["choice"] or {}).get("left_out_rmse", 0.0) / problem.target_scale) ** 2
        return replace(problem.with_kernel(kernel_from_spec(last["kernel"])), left_out_square=square)

    def partition_size(self, problem: Problem) -> int:
        """Choose the partition size by the heuristic; the minimum if the target is constant or time is over."""
        n_rows, d, least = self.source.n_rows, self.source.n_features, min(AUTO_PARTITION[0], self.shape.n_candidates)
        if not problem.target_variance:
            return least
        most = min(math.ceil(math.sqrt(n_rows * d)), n_rows, HEURISTIC_ROWS)
        rows = max(self._affordable(most * problem.n_kernels, most)[0] // problem.n_kernels, 1)
        problem = replace(problem, likelihood=problem.likelihood.measured_by or problem.likelihood)
        try:
            with self._sample(problem, rows) as sample:
                record = sparseness(sample, problem, self.request.tol)
        except Stopped as stopped:
            if stopped.reason is not Termination.TIME:
                raise
            return least
        self._log(record)
        self.sparseness, size, notes = resolve_partition_size(n_rows, d, record, self.centres)
        self.notes += notes
        return size

    def _sample(self, problem: Problem, rows: int, room: int = 0) -> AbstractContextManager[SampledRows]:
        """Gather up to ``rows`` random rows; ``room`` is the number of bytes for kernel blocks."""
        self._spent.since = time.perf_counter()
        options = Options(rows, "random", sample_rows=rows, seed=self.request.seed)
        numbers = posterior_rows(problem, options, "sample")

        def check(*passes: Any) -> None:
            reason = self.interrupted()
            if reason is not None:
                raise Stopped(reason)

        best = partial(setattr, self, "_best")
        return gathered(self.source, numbers, self.executor, check, self._spent, room=room, log=self._log, best=best)

    def _log(self, record: Record) -> None:
        """Add an entry with the time since the previous one."""
        entry = line(record, self._spent.share(), self._began, saved=False)
        self.entries.append(entry | kernel_text(entry, self.source.columns.features))

    def _affordable(self, columns: int, rows: int) -> tuple[int, int]:
        """Return the columns that fit in memory with a sample, and bytes left for kernel blocks; set the threads."""
        machine = replace(self.machine, base=self.machine.base + sample_bytes(self.shape, rows))
        threads, most = affordable(self.shape, machine, columns, shrink_threads=self.executor.elastic)
        self.executor.use(threads)
        return most, kept_bytes(self.shape, most, threads, machine.budget)


def resolve_partition_size(
    n_rows: int, d: int, measured: Record, centres: int = 0
) -> tuple[Sparseness, int, tuple[str, ...]]:
    """Return the sparseness, ``partition_size="auto"`` within its bounds, and notes.

    The heuristic is ⌈f·√(N·d)⌉ with f = 0.2 for ρ ≤ 0.25, 0.6 for 0.25 < ρ ≤ 0.75, and 1 for larger ρ, the fraction of
    rows that a basic RVM on √(N·d) random rows keeps as vectors (Ben-Shimon & Shmilovici 2006, §3.1; the paper prints
    the middle line with a reversed sign). The partition size is at least the number of ``centres`` of kernel learning:
    learned kernels are wide, so the heuristic finds few vectors, and rounds of so few candidates would end the fit too
    early.
    """
    rho, (least, most) = measured.vectors / measured.rows, AUTO_PARTITION
    heuristic = math.ceil((0.2 if rho <= 0.25 else 0.6 if rho <= 0.75 else 1.0) * math.sqrt(n_rows * d))
    notes: tuple[str, ...] = ()
    size = min(max(heuristic, least, centres), most, n_rows)
    if rho > DENSE:
        notes += ("nearly every row became a vector: the kernel is probably too narrow (lower gamma)",)
    return Sparseness(measured.rows, measured.vectors, heuristic), size, notes


def calibrate(source: Source, problem: Problem) -> Rates:
    """Measure the rates of one thread on the first tile; without a kernel, leading columns are timed as elements."""
    with one_blas_thread():
        began = time.perf_counter()
        tile = source.tile(0)
        read = (time.perf_counter() - began) / len(tile.X)
        X = tile.X[:256]
        design = problem.empty.with_centres(X, np.arange(len(X)))
        design = design if problem.n_kernels else design.take(slice(None), leading=problem.leading)
        block, square = design.block(X), np.ones((256, 256))
        element, product = (
            min(repeat(work, number=1, repeat=3))  # other processes slow down the shortest time least
            for work in (lambda: design.block(X, block), lambda: square @ square)
        )
    return Rates(read, element / block.size, 2 * 256**3 / product)
