"""Appended rows: continue a run that has ended with them.

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
from partirvm.strategies.fit_rows import batches_of
from partirvm.strategies.problem import AppendedBatch, Options, Problem
from partirvm.strategies.rounds import Phase, S
from partirvm.strategies.selection import partition_count


def joined(before: Problem, options: Options, now: Problem, partition_size: int) -> Problem:
    """The problem with the additional rows of ``now`` as a new batch.

    ``options`` are those of the fit before, ``partition_size`` is that of the new rows.
    """
    batches: tuple[AppendedBatch, ...] = (
        AppendedBatch(before.n_rows, 0, before.shuffled),
        AppendedBatch(now.n_rows, 0, shuffled=False),
    )
    if before.n_kernels:
        count = partition_count(now.n_rows - before.n_rows, before.rows_of(partition_size))
        batches = (*batches_of(before, options), AppendedBatch(now.n_rows, count, shuffled=False))
    return replace(before, n_rows=now.n_rows, codes=now.codes, shuffled=now.shuffled, batches=batches)


def grown(state: S, problem: Problem, options: Options) -> S:
    """The state of a checkpoint, for a problem with additional rows (``joined``), under these options.

    The kernel is that of the state, and is learned no more.
    """
    return replace(
        state,
        problem=replace(problem, empty=state.problem.empty),
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
