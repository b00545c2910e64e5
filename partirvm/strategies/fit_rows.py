"""Rows that a fit uses: the choices of ``fit_rows`` (the flag ``--likelihood``), as row numbers and passes. Pure.

``full``
    The fit uses all rows. One Gram pass gives the statistics of the new columns, including those for σ².
``sample``
    All fits of a run use one random sample of rows. The time is linear in N, and evidences can be compared.
``growing``
    A random sample that grows with the number of columns (``strategies.rounds``). Larger samples contain smaller ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.sampling import Purpose, random_order, stream
from partirvm.likelihoods.base import Rows
from partirvm.options import Request
from partirvm.planning.cost import RowsUsed, Schedule
from partirvm.planning.units import counted
from partirvm.strategies.problem import AppendedBatch, Options, Problem
from partirvm.strategies.selection import (
    partition_count,
    partition_rows,
    random_rows,
    stratified_partition,
    stratified_rows,
)

Int = NDArray[np.int64]

FULL_FLOPS = 2e12
"""Maximum flops of all intermediate Gram passes for which ``auto`` lets each fit use all rows."""

SAMPLE = 20
"""The default size of ``sample`` is this number × the partition size P."""

GROWING = "growing"

ROWS_PER_COLUMN = 100
"""Minimum rows per column of a growing sample; its default first size is this number × the partition size P."""

MOST = 0.7
"""Maximum fraction of all rows in a growing sample: with more, few products are saved."""

LEAST = 10
"""Minimum number of rows of each class in a sample; a class with fewer rows is used whole."""


def rows_used(request: Request, n_rows: int) -> RowsUsed:
    """Return the numbers of rows that an intermediate fit uses, for planning."""
    if request.fit_rows == "full":
        return RowsUsed(n_rows)
    return RowsUsed(int(request.sample_rows), sampled=True, per_column=ROWS_PER_COLUMN * grows(request.fit_rows))


def rows_text(fit_rows: str, sample: int | None) -> str:
    """Return a report's text about the rows of intermediate fits; ``sample`` is the (first) size of a sample."""
    if fit_rows == "full":
        return ""
    return f", likelihood of a sample {'that grows from' if grows(fit_rows) else 'of'} {counted(sample or 0, 'row')}"


def first_sample(fit_rows: str, partition_size: int) -> int:
    """Return the default size of a sample, or the first size of a growing one."""
    return (ROWS_PER_COLUMN if grows(fit_rows) else SAMPLE) * partition_size


def grows(seen: str) -> bool:
    """Return whether ``fit_rows`` or ``RoundsState.seen`` (empty before the first fit) is a sample that grows."""
    return seen == GROWING


def intermediate_rows(problem: Problem, options: Options) -> str:
    """Return the rows of the next fit before the last one: ``fit_rows``, or "full" if a growing sample has all rows."""
    return "full" if grows(options.fit_rows) and options.sample_rows >= problem.n_rows else options.fit_rows


def enlarged(rows: int, columns: int, n_rows: int) -> int:
    """Return the size of a growing sample of ``rows`` rows for this number of columns.

    It has at least ``ROWS_PER_COLUMN`` rows per column. If these are most of the ``n_rows`` rows, it has all of them.

    >>> enlarged(50_000, 200, 10**6), enlarged(50_000, 1200, 10**6), enlarged(50_000, 1200, 150_000)
    (50000, 120000, 150000)
    """
    rows = max(rows, ROWS_PER_COLUMN * columns)
    return n_rows if rows > MOST * n_rows else rows


def fresh_rows(problem: Problem, before: Options, now: Options) -> Rows | None:
    """Return the rows of the growing sample of ``now`` outside that of ``before``, in increasing order.

    The result is None if the sample becomes all rows of data that are not shuffled: these would be most row numbers.
    """
    old, new = _nested_sample(problem, before), _nested_sample(problem, now)
    assert old is not None
    if problem.codes is None and problem.shuffled:
        return range(len(old), problem.n_rows if new is None else len(new))
    return None if new is None else np.setdiff1d(new, old, assume_unique=True)


def automatic(
    schedule: Schedule,
    n_rows: int,
    partition_size: int,
    n_kernels: int = 1,
    new_rows: int = 0,
    *,
    shuffled: bool = False,
) -> str:
    """Return the meaning of ``fit_rows="auto"``: ``full`` if all rows are affordable, otherwise a sample.

    The working set uses ``growing`` if the data are ``shuffled`` and have more than
    four times the rows of the first sample. In split-and-merge and incremental fits every row gives K = ``n_kernels``
    candidates, and the intermediate passes over all rows take about 2·K·N²·P flops, where P is the partition size. If
    ``new_rows`` is not 0, only this number of rows still has to join, and the flops fall in proportion. The rule counts
    flops and measures no time, so that the result is the same on every machine.

    >>> in_order, chosen = Schedule("incremental", whole_partitions=True), Schedule("working-set", selects=True)
    >>> automatic(in_order, 6144, 134), automatic(in_order, 1_000_000, 500)
    ('full', 'sample')
    >>> automatic(chosen, 1_000_000, 500, shuffled=True)
    'growing'
    """
    if schedule.selects:
        return GROWING if shuffled and 4 * ROWS_PER_COLUMN * partition_size < n_rows else "full"
    flops = 2.0 * n_kernels * n_rows * (new_rows or n_rows) * partition_size
    whole = not schedule.whole_partitions or flops <= FULL_FLOPS
    return "full" if whole else "sample"


def posterior_rows(problem: Problem, options: Options, fit_rows: str) -> Int | None:
    """Return the rows that a fit uses, in increasing order; None means all, or no fit yet."""
    if grows(fit_rows):
        return _nested_sample(problem, options)
    return _sample(problem, options, options.sample_rows) if fit_rows == "sample" else None


def partition(problem: Problem, options: Options, number: int) -> Int:
    """Return the rows of partition ``number`` of the ⌈N/P⌉ partitions, in increasing order; none beyond the last one.

    In classification every partition has the same fraction of each class. After an append, the partitions of each
    batch follow the partitions of the previous batch.
    """
    start, batch, number = _batch(problem, options, number)
    n_rows, count, seed = batch.stop - start, batch.partitions, options.seed
    if number >= count:
        return np.zeros(0, np.int64)
    if problem.codes is None:
        return start + partition_rows(n_rows, count, number, seed=seed, shuffled=batch.shuffled)
    codes = problem.codes[start : batch.stop]
    return start + stratified_partition(codes, problem.n_classes, count, number, seed=seed, shuffled=batch.shuffled)


def batches_of(problem: Problem, options: Options) -> tuple[AppendedBatch, ...]:
    """Return the original rows and each append as batches; without an append, one batch of all rows."""
    count = partition_count(problem.n_rows, problem.rows_of(options.partition_size))
    return problem.batches or (AppendedBatch(problem.n_rows, count, problem.shuffled),)


def _batch(problem: Problem, options: Options, number: int) -> tuple[int, AppendedBatch, int]:
    """Return the first row of the batch that holds this partition, the batch, and the partition's number in it."""
    start, batches = 0, batches_of(problem, options)
    for batch in batches[:-1]:
        if number < batch.partitions:
            return start, batch, number
        start, number = batch.stop, number - batch.partitions
    return start, batches[-1], number


def drawn_rows(
    problem: Problem,
    used: Int,
    count: int,
    *,
    seed: int,
    draw: int,
    even: float,
    least: int = 1,
    purpose: Purpose = Purpose.CANDIDATES,
) -> Int:
    """Return random rows outside ``used``; in classification from all classes (``selection.stratified_rows``)."""
    how: dict[str, Any] = {"seed": seed, "draw": draw, "shuffled": problem.shuffled, "purpose": purpose}
    if problem.codes is None:
        return random_rows(problem.n_rows, used, count, **how)
    return stratified_rows(problem.codes, problem.n_classes, used, count, even=even, least=least, **how)


def _sample(problem: Problem, options: Options, count: int) -> Int | None:
    """Return the run's random sample of ``count`` rows; None if ``count`` covers all rows."""
    if count >= problem.n_rows:
        return None
    how: dict[str, Any] = {"seed": options.seed, "draw": 0, "even": 0.0, "least": LEAST, "purpose": Purpose.SAMPLE}
    return drawn_rows(problem, np.zeros(0, np.int64), count, **how)


def _nested_sample(problem: Problem, options: Options) -> Int | None:
    """Return the growing sample of ``options.sample_rows`` rows; None if it has all rows.

    A larger sample contains a smaller one, except in classification, where the shares of classes are rounded.
    """
    count = options.sample_rows
    if count >= problem.n_rows or problem.codes is not None:
        return _sample(problem, options, count)
    if problem.shuffled:
        return np.arange(count, dtype=np.int64)
    return np.sort(random_order(problem.n_rows, stream(options.seed, Purpose.SAMPLE), np.arange(count)))


def joined(before: Problem, options: Options, now: Problem, partition_size: int) -> Problem:
    """Return the problem with the additional rows of ``now`` as a new batch.

    ``options`` are the options of the previous fit. ``partition_size`` applies to the new rows.
    """
    batches: tuple[AppendedBatch, ...] = (
        AppendedBatch(before.n_rows, 0, before.shuffled),
        AppendedBatch(now.n_rows, 0, shuffled=False),
    )
    if before.n_kernels:
        count = partition_count(now.n_rows - before.n_rows, before.rows_of(partition_size))
        batches = (*batches_of(before, options), AppendedBatch(now.n_rows, count, shuffled=False))
    return replace(
        before, n_rows=now.n_rows, codes=now.codes, shuffled=now.shuffled, batches=batches, left_out_square=0.0
    )
