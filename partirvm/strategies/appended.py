"""Continuation of a finished run after rows were appended.

The scaling and the kernel stay unchanged. A regression keeps the Gram statistics of its columns: one pass over the new
rows gives their statistics, and the sum of old and new statistics covers all rows. The statistics of a classification
are valid for the current weights only. Its fit therefore moves to the mode over all rows, which takes a few passes.

In both cases the present columns are fitted first, in a round without candidates whose model is saved. A regression
that used a part of the rows skips this round. The usual rounds follow. The working set chooses among all rows that were
never candidates. ``incremental`` continues with its remaining partitions, then with the partitions of the new rows.
Runs of ``basic`` and ``split-merge`` are continued by ``incremental``.
"""

from __future__ import annotations

from dataclasses import replace

from partirvm.core.termination import Termination
from partirvm.strategies.fit_rows import batches_of
from partirvm.strategies.problem import AppendedBatch, Options, Problem
from partirvm.strategies.rounds import Phase, S
from partirvm.strategies.selection import partition_count


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


def grown(state: S, problem: Problem, options: Options) -> S:
    """Return the state of a checkpoint, changed to a problem with additional rows (``joined``) and to these options.

    The kernel of the checkpoint stays and is not learned again.
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
