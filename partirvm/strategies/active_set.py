"""``selection="map-weight"``: candidates by the size that their weights would have, in the manner of the TMB paper.

Its Algorithm 1 keeps an *active set* of basis functions: it begins with B = 20 of them, and admits those whose weight
in the MAP solution over all candidates is larger than δ = 0.5, until none is. What that leaves open is read so:

- The first B are random rows. Each round's fit converges on the active set: MacKay's fixed point, instead of a gradient
  search by automatic differentiation. Columns whose α runs off to infinity are pruned, and are not tried again.
- With α and β of that fit, the MAP weights over the active columns and *all* rows that have not been candidates yet:

      w = β (βΦᵀΦ + A)⁻¹ Φᵀt,

  where A holds the fit's own α of the active columns, and of all others 1: δ is then half a prior standard deviation.
  For classes it is one Newton step from the mode of the active set, (ΦᵀBΦ + A)⁻¹ (ΦᵀBΦw₀ + Φᵀ(t − y)): the MAP of
  Laplace's quadratic there. A candidate's size is the largest of its outputs' weights.
- Rows with |w| > δ are admitted, the largest first and at most P a round. α and δ are in units of the target's sd (for
  classes, of the linear predictor), for kernels of height 1. The run ends when no row is admitted, or at a limit.
  (With the median α of the vectors in place of 1, nearly all rows are admitted in the end.)

It is the reference for tables of that paper, for sets whose N × N matrix fits: each round has a pass of N²·N
multiplications and a factorisation of an N × N matrix. ``gain`` asks nearly the same of a pool by a far smaller pass.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from partirvm.core.termination import Termination
from partirvm.core.updates import StopRule
from partirvm.kernels.design import Design
from partirvm.strategies.fit_rows import noise_rows
from partirvm.strategies.instructions import Gather, Passed
from partirvm.strategies.rounds import Answer, Phase
from partirvm.strategies.working_set import FLAT_ROUNDS, WorkingSet, WorkingSetState

FIRST = 20
"""B, rows of the first active set."""

ADMIT = 0.5
"""δ, the size of a MAP weight from which on its row is admitted, in units of the target's sd."""


class ActiveSet(WorkingSet):
    """The working set whose candidates are those of large MAP weights among all rows."""

    def _propose(self, state: WorkingSetState, room: int) -> Answer[WorkingSetState]:
        if not state.seen:
            return super()._propose(replace(state, flat=FLAT_ROUNDS - 1), min(FIRST, room))  # random ones
        rows = np.setdiff1d(np.arange(state.problem.n_rows), state.used, assume_unique=True)
        state = replace(state, selection=state.options.selection, chosen=rows, candidates=room)
        return replace(state, phase=Phase.POOL), (Gather(rows),)

    def _try(self, state: WorkingSetState, pool: Design) -> Answer[WorkingSetState]:
        """Request the statistics that the MAP weights of all columns need."""
        problem = state.problem
        rows = noise_rows(problem, state.options, state.seen)
        look = problem.likelihood.size_pass(state.design, state.fit, pool, rows)
        return replace(state, phase=Phase.GAINS, incoming=pool), (look,)

    def _on_gains(self, state: WorkingSetState, event: Passed) -> Answer[WorkingSetState]:
        problem, pool = state.problem, state.incoming
        assert pool is not None
        sizes = problem.likelihood.sizes(state.fit, pool, event.statistic, 1 / problem.target_variance) / np.sqrt(
            problem.target_variance
        )
        order = np.argsort(-sizes, kind="stable")
        best = order[sizes[order] > ADMIT][: state.candidates * state.problem.n_kernels]
        if not len(best):
            return self._conclude(replace(state, round=state.round - 1, incoming=None), Termination.CONVERGED)
        return self._admit(state, pool.take(best))

    def _rule(self, state: WorkingSetState) -> StopRule:
        """Every fit converges."""
        return super()._rule(replace(state, patient=True))

    def _judge(self, state: WorkingSetState) -> Answer[WorkingSetState]:
        """Flat evidence does not end the run: rows with large weights may be left."""
        return super()._judge(replace(state, evidence=-np.inf))
