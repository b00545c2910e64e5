"""``selection="map-weight"``: candidates chosen by the size of their MAP weights, as in the TMB paper.

Algorithm 1 of the paper keeps an *active set* of basis functions, which begins with those B = 20 that have the largest
MAP weights if every α is the bound ν = e⁵. Each round adds the basis functions whose weight in the MAP solution over
all candidates is larger than δ = 0.5. The algorithm ends when no weight is larger than δ. The paper leaves some points
open. This module implements them as follows:

- The fit of each round converges on the active set by MacKay's fixed point; the paper uses a gradient search by
  automatic differentiation, which also learns γ. Here γ is learned before the first round and again as vectors grow.
  Columns whose α diverges, or in a regression exceeds a given bound ν, are pruned and never become candidates again.
- The α and β of this fit give MAP weights of the active columns and of *all* rows that were never candidates:

      w = β (βΦᵀΦ + A)⁻¹ Φᵀt.

  The diagonal matrix A holds the fitted α of each active column, and for every other column the bound ν if it is given,
  as in the paper, and otherwise 1: δ is then half a prior standard deviation. In classification, w is one Newton step
  from the mode of the active set, (ΦᵀBΦ + A)⁻¹ (ΦᵀBΦw₀ + Φᵀ(t − y)): the MAP of Laplace's quadratic at this mode. The
  size of a candidate is its largest |w| over the outputs.
- Rows with |w| > δ join the active set, the largest first. At most P rows (the partition size) join in one round. α and
  δ are in units of the target's standard deviation, for kernels of height 1. In classification their unit is that of
  the linear predictor. The run ends when no row joins, or at a limit. (With the median α of the vectors in place of 1,
  nearly all rows join in the end.)

The purpose is to reproduce the tables of this paper, for data whose N × N matrix fits in memory. Each round needs a
pass of N²·N multiplications and a factorisation of an N × N matrix. ``gain`` applies a similar criterion to a pool of
candidates, with a far smaller pass.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from partirvm.core.stopping import StopRule, Thresholds
from partirvm.core.termination import Termination
from partirvm.kernels.design import Design
from partirvm.strategies.fit_rows import noise_rows
from partirvm.strategies.instructions import Gather, Passed
from partirvm.strategies.rounds import Answer, Phase
from partirvm.strategies.working_set import WorkingSet, WorkingSetState

START = math.exp(5)
"""α of all columns before the first fit, the paper's ν."""


class ActiveSet(WorkingSet):
    """Working-set strategy whose candidates are the rows with large MAP weights."""

    def _propose(self, state: WorkingSetState, room: int) -> Answer[WorkingSetState]:
        room = room if state.seen else min(state.options.first_candidates, room)
        rows = np.setdiff1d(np.arange(state.problem.n_rows), state.used, assume_unique=True)
        state = replace(state, selection=state.options.selection, chosen=rows, candidates=room)
        return replace(state, phase=Phase.POOL), (Gather(rows),)

    def _try(self, state: WorkingSetState, pool: Design) -> Answer[WorkingSetState]:
        """Request the statistics from which the MAP weights of all columns are computed."""
        problem = state.problem
        rows = noise_rows(problem, state.options, state.seen)
        request = problem.likelihood.size_pass(state.design, state.fit, pool, rows)
        return replace(state, phase=Phase.GAINS, incoming=pool), (request,)

    def _on_gains(self, state: WorkingSetState, event: Passed) -> Answer[WorkingSetState]:
        problem, pool = state.problem, state.incoming
        assert pool is not None
        options, unit = state.options, np.sqrt(problem.target_variance)
        alpha = options.alpha_bound or (1.0 if state.seen else START)
        sizes = problem.likelihood.sizes(state.fit, pool, event.statistic, alpha / unit**2) / unit
        best = np.argsort(-sizes, kind="stable")
        if state.seen:
            best = best[sizes[best] > options.least_weight]
        best = best[: state.candidates * problem.n_kernels]
        if not len(best):
            return self._conclude(replace(state, round=state.round - 1, incoming=None), Termination.CONVERGED)
        return self._admit(state, pool.take(best))

    def _rule(self, state: WorkingSetState) -> StopRule:
        """Return a rule under which every fit converges, and under which columns beyond the bound are pruned."""
        rule, options = super()._rule(replace(state, patient=True)), state.options
        if options.alpha_bound is None:
            return rule
        return replace(rule, thresholds=Thresholds(options.alpha_bound / state.problem.target_variance))

    def _judge(self, state: WorkingSetState) -> Answer[WorkingSetState]:
        """Begin the next round even if the evidence is flat, since rows with large weights may remain."""
        return super()._judge(replace(state, evidence=-np.inf))
