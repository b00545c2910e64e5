"""A kernel on trial beside a fit: sought on a sample of rows, then measured on all of them. Pure.

The fit's own vectors are the centres, as they are where the model needs detail, and its own α and β stay while the
kernel moves (``strategies.evaluating``, ``core.rprop``): each evaluation takes one dense solve, and a few are enough.
α that are tied, or follow, won no more over all rows where there were hundreds of vectors (kin40k, protein), and erred
more where there were fewer (airfoil, concrete). Where gammas are off a second search begins with all of these raised:
more centres can tell what a feature is for that few could not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.rprop import LATER_STEP, Search, advance, again, awakened, begin, groups
from partirvm.core.updates import HyperState
from partirvm.kernels import Kernel, Several
from partirvm.kernels.design import Design
from partirvm.likelihoods.passes import Pass
from partirvm.strategies.evaluating import OfNumbers, held
from partirvm.strategies.fit_rows import posterior_rows
from partirvm.strategies.learning import ROWS, SHARE, with_prior
from partirvm.strategies.problem import Options, Problem

Int = NDArray[np.int64]

GROWTH = 2
"""A kernel is learned again where the vectors are so many times the centres that it was learned from.

With no more centres than before there is nothing new to learn from: the evidence rises, and the error with it (airfoil,
139 vectors against 300 centres: 0.255 to 0.266 of sd(y)).
"""

WINDOW = 3
"""Evaluations over which the best one has to rise (``core.rprop.RISE``)."""


def due(problem: Problem, options: Options, fit: Any, centres: int) -> bool:
    """Whether a kernel that was learned from so many centres is to be learned again, at the vectors of this fit.

    They may be ``SHARE`` of the rows at most: beyond it the evidence overfits. No kernel is that was not learned
    before, nor where memory has no room for all columns in one pass. Nor is one of classes: what it would bring has not
    been measured, and a comparison over all rows takes them a whole fit instead of one pass.
    """
    if not options.centres or problem.classifies:
        return False
    most = min(int(SHARE * min(problem.n_rows, ROWS)), options.learning_columns - 1)
    return bool(GROWTH * max(centres, options.centres) <= fit.n_vectors <= most)


@dataclass(frozen=True)
class Trial:
    """A search for a better kernel, and the fit that stands meanwhile.

    ``problem``, ``design`` and ``fit`` are those of the fit; ``rows`` the sample, None for all, ``seen`` how many of
    them have weight. ``now`` is the evaluation under way, None once the search is over; ``awake`` says that gammas have
    been raised.
    """

    problem: Problem
    design: Design
    fit: HyperState
    rows: Int | None
    prior: str
    search: Search
    now: OfNumbers | None
    awake: bool = False
    seen: int = 0
    evaluations: int = 0

    @classmethod
    def of(cls, state: Any) -> Trial:
        """Begin beside the fit of a strategy's state."""
        problem, design = state.problem, state.design
        options = replace(state.options, likelihood_rows=min(problem.n_rows, ROWS))
        rows = posterior_rows(problem, options, "sample", design)
        search = begin(design.kernel.logs, None, LATER_STEP)
        first = held(problem, design, rows, state.fit)
        return cls(problem, design, state.fit, rows, options.gamma_prior, search, first)

    @property
    def wanted(self) -> Pass | None:
        """The pass that comes next; None once the search is over."""
        return None if self.now is None else self.now.wanted

    @property
    def kernel(self) -> Kernel | Several:
        """The best kernel so far."""
        return self.design.kernel.with_logs(self.search.best)

    @property
    def better(self) -> bool:
        """Whether it is another one than the fit's."""
        return not np.array_equal(self.search.best, self.design.kernel.logs)

    def heard(self, statistic: Any) -> Trial:
        """Go on with the statistic of the pass."""
        assert self.now is not None
        now = self.now.heard(statistic)
        if now.wanted is not None:
            return replace(self, now=now)
        point, features = now.point, groups(self.design.kernel.parameters)
        value, slope = with_prior(self.prior, features, self.search.logs, point)
        search, reason = advance(self.search, value, slope, point.rows, WINDOW)
        trial = replace(self, search=search, seen=point.rows, evaluations=self.evaluations + 1, now=None)
        if reason is not None:
            raised = awakened(search.best, features)
            if self.awake or np.array_equal(raised, search.best):
                return trial
            search = replace(again(search, raised, LATER_STEP), start=raised)  # bounds are those of what is raised
            trial = replace(trial, search=search, awake=True)
        design = replace(self.design, kernel=self.design.kernel.with_logs(search.logs))
        return replace(trial, now=held(self.problem, design, self.rows, self.fit))
