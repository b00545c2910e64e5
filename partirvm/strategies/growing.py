"""Rows that came later: a run that has ended, or was ended, goes on with them.

Scaling and kernel stay. A Gaussian fit knows of the rows before the Gram statistics of its columns: one pass over the
new rows alone brings theirs, and the sum is that of all rows. A fit of classes has none that hold for other weights: it
moves to the mode over all rows, a few passes. Either way the columns that are there come first, as a round without
candidates whose model is saved; only a fit over a part of the rows has to begin with the next one. Then rounds follow
as if they had never ended: those of the working set choose among all rows that were none yet, those in order go on with
the partitions that were left, then with those of the new rows. A fit of all rows at once, or the last merge of
split-and-merge, is what ``incremental`` goes on from.
"""

from __future__ import annotations

from dataclasses import replace

from partirvm.core.termination import Termination
from partirvm.strategies.fit_rows import lots_of
from partirvm.strategies.problem import Lot, Options, Problem
from partirvm.strategies.rounds import Phase, S
from partirvm.strategies.selection import partition_count


def grown(state: S, problem: Problem, options: Options) -> S:
    """A checkpoint's state for these rows, more than it has seen, under these options.

    Of ``problem`` only what is of its rows counts: their number, their classes, whether they are shuffled. The kernel
    is learned no more.
    """
    before = state.problem
    lots: tuple[Lot, ...] = (Lot(before.n_rows, 0, before.shuffled), Lot(problem.n_rows, 0, shuffled=False))
    if before.n_kernels:
        count = partition_count(problem.n_rows - before.n_rows, before.rows_of(options.partition_size))
        lots = (*lots_of(before, state.options), Lot(problem.n_rows, count, shuffled=False))
    return replace(
        state,
        problem=replace(before, n_rows=problem.n_rows, codes=problem.codes, shuffled=problem.shuffled, lots=lots),
        options=replace(options, centres=0),
        phase=Phase.GROWN,
        scores=None,
        concluding=None,
        settled=False,
        warm=None,
        dropped=0,
        rebases=0,
        reason=Termination.CONVERGED,
    )
