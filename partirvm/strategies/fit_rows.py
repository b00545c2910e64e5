"""Pure functions that select row numbers: the rows that a fit uses (``fit_rows``), and candidates.

A fit uses all rows (``full``), a single random ``sample`` for all fits in a run, or a ``growing``
sample, whose size increases with the number of columns. In classification, samples, partitions and
candidates include all classes. In shuffled data, neighbouring rows (of a class) are a random
sample: reading them requires few tiles, and larger samples contain smaller ones.
"""

from dataclasses import dataclass, replace

import numpy as np

from partirvm.core.sampling import Purpose, random_order, stream
from partirvm.kernels.design import NONE, Design
from partirvm.options import Request
from partirvm.planning.cost import RowsRead, n_partitions
from partirvm.planning.memory import DataShape
from partirvm.spec.problem import AppendedBatch, Codes, Options, Problem
from partirvm.types import Bool, Int

GROWING = "growing"

ROWS_PER_COLUMN = 100
"""Minimum number of rows per column in a growing sample; the default initial size is this number
times the partition size P."""

LEAST = 10
"""Minimum number of rows per class in a sample."""

SPREAD = 20
"""``error`` searches SPREAD · P random rows: among all rows, it would select outliers."""

POOL = 4
"""``gain`` ranks POOL · P random rows."""

SPAN = 1 << 16
"""Number of rows that ``ranked`` processes at a time."""


def rows_read(request: Request, shape: DataShape, *, shuffled: bool) -> RowsRead:
    """Return the rows that intermediate fits read, and the rows read to select candidates, for
    planning."""
    selection = request.selection
    P = int(request.partition_size)
    n_rows = shape.n_rows
    few = SPREAD * P if selection == "error" and shuffled else n_rows
    searched = min(few, n_rows) if selection in ("error", "largest-error") else 0
    pool = min(POOL * P, shape.n_candidates) if selection == "gain" else 0
    if request.fit_rows == "full":
        return RowsRead(n_rows, searched=searched, pool=pool)
    return RowsRead(
        int(request.sample_rows),
        True,
        ROWS_PER_COLUMN * (request.fit_rows == GROWING),
        searched,
        pool,
    )


def intermediate_rows(problem: Problem, options: Options) -> str:
    """Return the value of ``fit_rows`` for the next intermediate fit: "full" if a growing sample
    has all rows."""
    return (
        "full"
        if options.fit_rows == GROWING and options.sample_rows >= problem.n_rows
        else options.fit_rows
    )


def enlarged(rows: int, columns: int, n_rows: int, rows_per_column: int = ROWS_PER_COLUMN) -> int:
    """Return the new size of a growing sample; if it includes most rows, all rows are used.

    Args:
        rows: the size of the sample
        columns: the number of columns
        n_rows: the number of all rows
        rows_per_column: the minimum number of rows per column
    """
    rows = max(rows, rows_per_column * columns)
    return n_rows if rows > 0.7 * n_rows else rows


def posterior_rows(problem: Problem, options: Options, fit_rows: str) -> Int | None:
    """Return the rows that a fit uses, in increasing order; None means all rows or that there is no
    fit yet."""
    if fit_rows not in ("sample", GROWING) or options.sample_rows >= problem.n_rows:
        return None
    return drawn_rows(problem, NONE, options.sample_rows, options.seed, purpose=Purpose.SAMPLE)


def joined(before: Problem, options: Options, now: Problem, partition_size: int) -> Problem:
    """Return the problem with additional rows as a batch.

    Args:
        before: the problem of the previous fit
        options: options of the previous fit
        now: the problem with all rows, the additional ones last
        partition_size: number of candidates per partition of the additional rows
    """
    n = now.n_rows
    codes = now.codes
    shuffled = now.shuffled
    count = n_partitions(n - before.n_rows, partition_size, before.n_kernels)
    batches = (*batches_of(before, options), AppendedBatch(n, count, shuffled=False))
    of_rows = replace(before, n_rows=n, codes=codes, shuffled=shuffled, batches=batches)
    return replace(of_rows, left_out_square=0.0, mean_only=False)


def batches_of(problem: Problem, options: Options) -> tuple[AppendedBatch, ...]:
    """Return the original rows and each append as a batch; without an append, all rows are one
    batch."""
    if problem.batches:
        return problem.batches
    count = n_partitions(problem.n_rows, options.partition_size, problem.n_kernels)
    return (AppendedBatch(problem.n_rows, count, problem.shuffled),)


def partition(problem: Problem, options: Options, number: int) -> Int:
    """Return the rows in partition ``number``, in increasing order, or none beyond the last
    partition; sizes differ by at most one."""
    start = 0
    codes = problem.codes
    seed = options.seed
    for batch in batches_of(problem, options):
        n_rows = batch.stop - start
        count = batch.partitions
        shuffled = batch.shuffled
        if number < count:
            break
        start = batch.stop
        number = number - count
    else:
        return NONE
    if codes is not None:
        codes = codes[start : batch.stop]
        return start + stratified_partition(
            codes, problem.n_classes, count, number, seed=seed, shuffled=shuffled
        )
    rows = np.arange(number * n_rows // count, (number + 1) * n_rows // count, dtype=np.int64)
    return start + (
        rows if shuffled else np.sort(random_order(n_rows, stream(seed, Purpose.PARTITIONS), rows))
    )


def stratified_partition(
    codes: Codes, n_classes: int, count: int, number: int, *, seed: int, shuffled: bool
) -> Int:
    """Return a partition's rows in increasing order; sizes differ by at most one, also within each
    class.

    Args:
        codes: class of each row (N,)
        n_classes: number of classes
        count: number of partitions
        number: number of this partition, from 0
        seed: seed of the random order within a class
        shuffled: True if the rows are in random order, so that a partition consists of neighbouring
            rows
    """
    parts = []
    dealt = 0
    for k in range(n_classes):
        members = codes == k
        size = int(np.count_nonzero(members))
        more = (np.arange(number + 1) - dealt) % count < size % count
        first = number * (size // count) + np.count_nonzero(more[:number])
        ranks = np.arange(first, first + size // count + int(more[number]))
        if not shuffled:
            ranks = np.sort(random_order(size, stream(seed, Purpose.PARTITIONS, k), ranks))
        parts.append(ranked(members, ranks))
        dealt += size
    return np.sort(np.concatenate(parts))


def drawn_rows(
    problem: Problem,
    used: Int,
    count: int,
    seed: int,
    draw: int = 0,
    *,
    purpose: Purpose = Purpose.CANDIDATES,
) -> Int:
    """Return random rows, or all remaining rows, in increasing order.

    In shuffled data, these are neighbouring rows (of each class). Half of the candidates are
    divided equally among the classes, the other half in proportion to their sizes; a sample is
    divided in proportion to size, with at least ``LEAST`` rows per class. With fewer rows than
    classes, the classes take turns.

    Args:
        problem: the problem with N rows
        used: sorted row numbers that must not be drawn
        count: number of rows to draw
        seed: seed of the fit
        draw: number of the draw; each draw has different rows
        purpose: candidates or a sample
    """
    drawing = RowDrawing(problem.shuffled, seed, purpose, draw)
    if problem.codes is not None:
        return drawing.of_classes(problem.codes, problem.n_classes, used, count)
    n_rows = problem.n_rows
    count = min(count, n_rows - len(used))
    rows = drawing.ranks(n_rows, draw * count, min(count + len(used), n_rows))
    return np.sort(rows[~np.isin(rows, used, assume_unique=True)][:count])


@dataclass(frozen=True)
class RowDrawing:
    """Rules for drawing row numbers.

    Attributes:
        shuffled: whether neighbouring numbers are a random sample.
        seed: the seed of the fit.
        purpose: candidates or a sample.
        draw: number of the draw.
    """

    shuffled: bool
    seed: int
    purpose: Purpose
    draw: int

    def ranks(self, n: int, first: int, size: int, *class_number: int) -> Int:
        """Return ``size`` of the first n numbers: consecutive ones from ``first`` in shuffled data,
        otherwise random ones."""
        if self.shuffled:
            return (first + np.arange(size, dtype=np.int64)) % max(n, 1)
        generator = stream(self.seed, self.purpose, self.draw, *class_number)
        return generator.choice(n, size=size, replace=False).astype(np.int64)

    def of_classes(self, codes: Codes, n_classes: int, used: Int, count: int) -> Int:
        """Return ``count`` random rows from all classes, in increasing order; see ``drawn_rows``.

        Args:
            codes: class of each row (N,)
            n_classes: number K of classes
            used: rows that must not be drawn
            count: number of rows to draw
        """
        free = np.ones(len(codes), dtype=bool)
        free[used] = False
        members = [(codes == k) & free for k in range(n_classes)]
        sizes = np.array([np.count_nonzero(rows) for rows in members], dtype=np.int64)
        turn = self.draw * count % n_classes
        even, least = (0.0, LEAST) if self.purpose is Purpose.SAMPLE else (0.5, 1)
        shares = np.roll(quotas(np.roll(sizes, -turn), count, even, least), turn).tolist()
        chosen = []
        for k in range(n_classes):
            ranks = self.ranks(int(sizes[k]), self.draw * shares[k], shares[k], k)
            chosen.append(ranked(members[k], np.sort(ranks)))
        return np.sort(np.concatenate(chosen))


def quotas(sizes: Int, count: int, even: float, least: int) -> Int:
    """Return how many rows (K,) each class contributes; see ``drawn_rows``.

    Args:
        sizes: number of rows in each class (K,)
        count: total number of rows, if there are enough
        even: fraction of the rows that is divided equally among classes; the others are divided in
            proportion to size
        least: minimum number of rows per class, if the class has enough
    """
    count = min(count, int(sizes.sum()))
    present = sizes > 0
    shares = (1 - even) * sizes / max(sizes.sum(), 1) + even * present / max(present.sum(), 1)
    rows: Int = np.minimum(
        np.maximum(np.floor(count * shares).astype(np.int64), least * present), sizes
    )
    for _ in range(int(rows.sum()) - count):
        rows[np.argmax(rows)] -= 1
    for _ in range(count - int(rows.sum())):
        room = np.flatnonzero(rows < sizes)
        rows[room[np.argmax(count * shares[room] - rows[room])]] += 1
    return rows


def ranked(members: Bool, ranks: Int) -> Int:
    """Return ``np.flatnonzero(members)[ranks]`` for increasing ranks (k,), without holding all
    positions in memory at once."""
    positions = [NONE]
    before = 0
    for start in range(0, len(members), SPAN):
        span = slice(start, start + SPAN)
        block = np.flatnonzero(members[span])
        inside = ranks[np.searchsorted(ranks, before) : np.searchsorted(ranks, before + len(block))]
        positions.append(start + block[inside - before])
        before += len(block)
    return np.concatenate(positions)


def fresh(new: Design, present: Design) -> Int:
    """Return, in order, the positions of the ``new`` columns that differ from all present columns
    and all earlier new ones."""
    columns = [np.column_stack([design.centres, design.which]) for design in (present, new)]
    count = len(present.labels)
    _, first = np.unique(np.concatenate(columns), axis=0, return_index=True)
    return np.sort(first[first >= count]) - count
