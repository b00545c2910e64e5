"""The fit of ``basic`` on some of the rows, rehearsed: what each kernel would be worth to it, others can tell. Pure.

The fit that is to come has an α for each of as many candidates as there are rows, and overfits where the tied RVM of a
few centres does not: pima, german and cancer lost 5 to 20 % of log loss to widths that the tied one held for best.

A rehearsal asks for an instruction (``wanted``), hears the answer (``heard``), and in the end has a ``mean``: as an
evaluation of ``strategies.evaluating`` does, of which it takes the place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.updates import HyperState, StopRule
from partirvm.kernels import Kernel, Several
from partirvm.kernels.design import Design
from partirvm.likelihoods.columns import survivors
from partirvm.likelihoods.gaussian import Solve
from partirvm.likelihoods.gaussian_passes import GramPass
from partirvm.likelihoods.laplace import Newton, Start
from partirvm.strategies.columns import fresh
from partirvm.strategies.instructions import Gathered, Instruction, Passed, Solved
from partirvm.strategies.problem import Options, Problem
from partirvm.strategies.rules import INTERMEDIATE, final_rule

Float = NDArray[np.float64]
Int = NDArray[np.int64]


@dataclass(frozen=True)
class Rehearsal:
    """A fit of all columns of ``design`` to ``rows``; ``begun`` is its start, ``fit`` its end."""

    problem: Problem
    design: Design
    rows: Int
    rule: StopRule
    begun: HyperState | None = None
    fit: Any | None = None

    @property
    def wanted(self) -> Instruction | None:
        """The instruction that comes next; None once there is a ``mean``."""
        if self.fit is not None:
            return None
        problem, design, count = self.problem, self.design, len(self.design.labels)
        if problem.classifies:
            start = Start.of(problem.likelihood.start(problem))
            likelihood: Any = problem.likelihood
            return Newton(design, likelihood, start, self.rule, count, self.rows)
        if self.begun is None:
            offset = np.zeros((0, len(design.scaling.t_shift)))
            return GramPass(problem.empty, design, offset, rows=self.rows)
        return Solve(self.begun, self.rule, count)

    def heard(self, event: Passed | Solved) -> Rehearsal:
        """Go on with the answer."""
        if isinstance(event, Passed):
            empty = replace(self.problem.empty, kernel=self.design.kernel)
            problem = replace(self.problem, empty=empty)
            nothing = problem.likelihood.start(problem)
            begun = problem.likelihood.join(nothing, empty, self.design, event.statistic)
            return replace(self, begun=begun)
        return replace(self, design=survivors(self.design, event.fit), fit=event.fit)

    @property
    def mean(self) -> Float | None:
        """The mean of the weights (M, C), of the columns of ``design``, once it is known."""
        if self.fit is None:
            return None
        return self.fit.posterior.mean[:, None] if isinstance(self.fit, HyperState) else self.fit.mean


def rehearsal(problem: Problem, options: Options, rows: Int, heard: Gathered, kernel: Kernel | Several) -> Rehearsal:
    """Begin the fit of these rows with all of them as candidates, under this kernel.

    It ends earlier than the one to come, as intermediate fits do: errors tell widths apart long before the last digits.
    """
    there = slice(None) if heard.present is None else heard.present
    empty = replace(problem.empty, kernel=kernel)
    offered = empty.with_centres(heard.points[there], rows[there])
    design = offered.take(fresh(offered, empty), leading=problem.leading)
    rule = replace(final_rule(options), tol=INTERMEDIATE * options.tol, guard=False)
    if problem.classifies:
        rule = replace(rule, max_iterations=options.max_passes)
    return Rehearsal(problem, design, rows, rule)
