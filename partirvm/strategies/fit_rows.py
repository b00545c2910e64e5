"""Which rows a fit sees: the choices of ``fit_rows`` (the option ``likelihood``), as rows and passes. Pure.

``full``
    All rows: one gram pass brings the new columns, and the noise of the whole set with it.
``sample``
    One random sample of rows, the same for every fit of a run: linear in N, and evidences stay comparable.
``partition``
    The literal scheme of Ben-Shimon & Shmilovici (2006): the posterior sees the rows of its own candidates only (all,
    where no candidate is left), and σ² comes from the residual over all rows, or over a sample of them. As the
    statistics of those rows give the residual of any mean, one pass serves all iterations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from partirvm.kernels.design import Design
from partirvm.likelihoods.passes import Pass
from partirvm.options import Request
from partirvm.planning.cost import RowsUsed
from partirvm.planning.schedule import Schedule
from partirvm.planning.units import counted
from partirvm.strategies.problem import AppendedBatch, Options, Problem
from partirvm.strategies.selection import (
    partition_count,
    partition_rows,
    random_rows,
    stratified_length,
    stratified_partition,
    stratified_rows,
)

Int = NDArray[np.int64]

FULL_FLOPS = 2e12
"""Maximum flops of all intermediate Gram passes for which ``auto`` lets each fit use all rows."""

SAMPLE = 20
"""``sample`` uses this × P rows by default."""

LEAST = 10
"""Number of rows of each class that a sample has beyond its proportion, if there are so many."""


@dataclass(frozen=True)
class FitRows:
    """Rows that a fit sees: all of them.

    ``whole`` says that they are all, ``sampled`` that they are a random sample; ``shared`` that every fit of a run sees
    the same rows, so that statistics are extended and evidences can be compared.
    """

    name: str

    whole: ClassVar[bool] = True
    sampled: ClassVar[bool] = False
    shared: ClassVar[bool] = True

    def posterior(self, problem: Problem, options: Options, design: Design) -> Int | None:
        """Rows that the posterior of these columns uses, increasing; None for all."""
        return None

    def noise(self, problem: Problem, options: Options) -> Int | None:
        """Rows over which σ² is measured, increasing; None for all."""
        return None

    def rows_used(self, request: Request, n_rows: int) -> RowsUsed:
        """The row counts of a resolved request, for planning."""
        return RowsUsed(n_rows)

    def text(self, sample: int | None) -> str:
        """Text of a report about these rows; ``sample`` is the size of a sample."""
        return ""


@dataclass(frozen=True)
class _Sample(FitRows):
    """One random sample."""

    whole: ClassVar[bool] = False
    sampled: ClassVar[bool] = True

    def posterior(self, problem: Problem, options: Options, design: Design) -> Int | None:
        """The sample."""
        return _sample(problem, options, options.sample_rows)

    def noise(self, problem: Problem, options: Options) -> Int | None:
        """The sample."""
        return _sample(problem, options, options.sample_rows)

    def rows_used(self, request: Request, n_rows: int) -> RowsUsed:
        """The number of rows of the sample."""
        return RowsUsed(int(request.sample_rows), sampled=True)

    def text(self, sample: int | None) -> str:
        """The text with the size of the sample."""
        return f", likelihood of a sample of {counted(sample or 0, 'row')}"


@dataclass(frozen=True)
class _Own(FitRows):
    """The rows of a fit's own candidates, and other rows for the noise if there is noise."""

    whole: ClassVar[bool] = False
    shared: ClassVar[bool] = False

    def posterior(self, problem: Problem, options: Options, design: Design) -> Int | None:
        """Rows of the candidates; all rows if no candidate is left."""
        return np.unique(design.rows) if len(design.labels) else None

    def noise(self, problem: Problem, options: Options) -> Int | None:
        """``noise_rows`` other rows, or all."""
        if not problem.likelihood.has_noise or options.noise_rows is None:
            return None
        return _others(problem, options, options.noise_rows)

    def rows_used(self, request: Request, n_rows: int) -> RowsUsed:
        """Only the rows of the candidates and those for the noise."""
        return RowsUsed(None, min(request.noise_rows or n_rows, n_rows))

    def text(self, sample: int | None) -> str:
        """The text for rows of the fit's own candidates."""
        return ", likelihood of a fit's own rows"


FIT_ROWS: dict[str, FitRows] = {each.name: each for each in (FitRows("full"), _Sample("sample"), _Own("partition"))}
"""Every choice of rows by name."""


def sees_all(seen: str) -> bool:
    """True if statistics of these rows (``RoundsState.seen``, empty before the first fit) are of all rows."""
    return bool(seen) and FIT_ROWS[seen].whole


def automatic(schedule: Schedule, n_rows: int, partition_size: int, n_kernels: int = 1, new_rows: int = 0) -> str:
    """The meaning of ``fit_rows="auto"``: all rows if that is affordable, else a sample; never ``partition``.

    The working set brings a column in once: all rows. Split-and-merge and incremental see every row as a candidate, or
    as ``n_kernels`` = K of them: K·N²·P multiplications and additions of intermediate passes over all rows. Where
    only ``new_rows`` are still to join (0 for all) it is that part of them. The rule counts flops and measures nothing,
    so that a fit means the same on every machine.

    >>> from partirvm.planning.schedule import InOrder
    >>> automatic(InOrder("incremental"), 6144, 134), automatic(InOrder("incremental"), 1_000_000, 500)
    ('full', 'sample')
    """
    flops = 2.0 * n_kernels * n_rows * (new_rows or n_rows) * partition_size
    whole = not schedule.whole_partitions or flops <= FULL_FLOPS
    return "full" if whole else "sample"


def posterior_rows(problem: Problem, options: Options, fit_rows: str, design: Design) -> Int | None:
    """Rows that the posterior of a fit of these columns uses, increasing; None for all."""
    return FIT_ROWS[fit_rows].posterior(problem, options, design)


def partition(problem: Problem, options: Options, number: int) -> Int:
    """Rows of partition ``number`` of ⌈N/P⌉, increasing; each has its part of the rows of every class.

    Where rows came later the partitions of each batch follow those of the batch before.
    """
    start, batch, number = _batch(problem, options, number)
    n_rows, count, seed = batch.stop - start, batch.partitions, options.seed
    if problem.codes is None:
        return start + partition_rows(n_rows, count, number, seed=seed, shuffled=batch.shuffled)
    codes = problem.codes[start : batch.stop]
    return start + stratified_partition(codes, problem.n_classes, count, number, seed=seed, shuffled=batch.shuffled)


def partition_length(problem: Problem, options: Options, number: int) -> int:
    """The number of rows of partition ``number``; 0 beyond the last."""
    start, batch, number = _batch(problem, options, number)
    n_rows, count = batch.stop - start, batch.partitions
    if number >= count:
        return 0
    if problem.codes is None:
        return (number + 1) * n_rows // count - number * n_rows // count
    return stratified_length(n_rows, count, number)


def batches_of(problem: Problem, options: Options) -> tuple[AppendedBatch, ...]:
    """The batches of appended rows; a single batch of all rows if none were appended."""
    count = partition_count(problem.n_rows, problem.rows_of(options.partition_size))
    return problem.batches or (AppendedBatch(problem.n_rows, count, problem.shuffled),)


def _batch(problem: Problem, options: Options, number: int) -> tuple[int, AppendedBatch, int]:
    """First row and batch of this partition, and its number within the batch; beyond the last, of the last one."""
    start, batches = 0, batches_of(problem, options)
    for batch in batches[:-1]:
        if number < batch.partitions:
            return start, batch, number
        start, number = batch.stop, number - batch.partitions
    return start, batches[-1], number


def noise_rows(problem: Problem, options: Options, fit_rows: str) -> Int | None:
    """Rows over which the residual, and with it σ², is measured, increasing; None for all, and before the first fit."""
    return FIT_ROWS[fit_rows].noise(problem, options) if fit_rows else None


def measuring(problem: Problem, options: Options, fit_rows: str, design: Design) -> tuple[Pass, ...]:
    """The passes that a fit of these columns needs before it begins; for ``partition`` that of its noise comes second.

    None where the likelihood needs none.
    """
    likelihood = problem.likelihood
    nothing, rows = likelihood.start(problem), posterior_rows(problem, options, fit_rows, design)
    own = likelihood.measure(nothing, problem.empty, design, rows)
    if FIT_ROWS[fit_rows].shared or not likelihood.has_noise:
        return own
    return own + likelihood.measure(nothing, problem.empty, design, noise_rows(problem, options, fit_rows))


def _sample(problem: Problem, options: Options, count: int) -> Int | None:
    """The run's random sample of ``count`` rows; None if that is all rows."""
    if count >= problem.n_rows:
        return None
    seed, shuffled, nothing = options.seed, problem.shuffled, np.zeros(0, np.int64)
    if problem.codes is None:
        return random_rows(problem.n_rows, nothing, count, seed=seed, draw=0, shuffled=shuffled)
    return stratified_rows(
        problem.codes, problem.n_classes, nothing, count, seed=seed, draw=0, shuffled=shuffled, even=0.0, least=LEAST
    )


def _others(problem: Problem, options: Options, count: int) -> Int | None:
    """A random sample from the end of the order, so that it is not a single partition; None if that is all rows."""
    if count >= problem.n_rows:
        return None
    if problem.shuffled:
        return np.arange(problem.n_rows - count, problem.n_rows, dtype=np.int64)
    nothing = np.zeros(0, np.int64)
    return random_rows(problem.n_rows, nothing, count, seed=options.seed, draw=1, shuffled=False)
