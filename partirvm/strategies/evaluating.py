"""One look at a kernel: the evidence and its slopes in the kernel's log parameters, pass by pass. Pure.

The evidence is the tied one, or that of a fit's own α and β, which do not move.

An evaluation asks for a pass (``wanted``), hears its statistic (``heard``), and in the end has a ``point``. Of numbers
it takes two passes, Gram and slopes; of classes the Newton steps to the mode, a bend pass and the slopes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from partirvm.core import tied_laplace
from partirvm.core.laplace import LaplaceState
from partirvm.core.logistic import LogisticBlock
from partirvm.core.newton import Search, receive, settle
from partirvm.core.posterior import AnyPosterior, any_posterior
from partirvm.core.statistics import GramStatistics
from partirvm.core.tied import Held, Noise, Tied, updates
from partirvm.core.updates import HyperState, StopRule
from partirvm.kernels.design import NONE, Design
from partirvm.likelihoods.columns import labels_of
from partirvm.likelihoods.gaussian import FIRST_NOISE
from partirvm.likelihoods.gaussian_passes import GramPass, ResidualPass
from partirvm.likelihoods.laplace_passes import LogisticPass
from partirvm.likelihoods.passes import Pass
from partirvm.likelihoods.slope_passes import BendPass, SlopePass
from partirvm.strategies.problem import Problem

Float = NDArray[np.float64]
Int = NDArray[np.int64]

FIRST_UPDATES, UPDATES = 10, 5
"""Updates of α and β at the first evaluation of a search, and at later ones, which begin where the last ended."""

FIRST_TURNS, TURNS = 5, 1
"""The same for classes: how often the mode is sought and α updated after it, before it is sought for good."""

CLASS_UPDATES = 2
"""Updates of α on one quadratic: more of them leave the place where it holds."""

STEPS, LAST_STEPS = 3, 10
"""Newton steps to the mode at most: before an update of α, and before the slopes."""

AT_MODE = 1e-6
"""The mode is found when a Newton step promises less than ``core.newton.SETTLED`` × this nats per row."""

FIRST_CLASS_ALPHA = 0.1
"""α at which classes begin."""


@dataclass(frozen=True)
class Point:
    """What an evaluation found, over ``rows`` rows of weight above zero.

    ``value`` is the evidence in nats, ``slope`` (p,) its slopes in log parameters; ``weights`` (M, C) are the mean of
    the posterior, of classes its mode. ``determined`` is the mean γ of the kernel columns (and outputs); ``residual``
    (T,) is ‖t − Φμ‖², ``surprise`` −Σ log p of the right class and ``wrong`` rows of another.
    """

    value: float
    slope: Float
    tied: Tied | Held
    rows: int
    determined: float
    weights: Float
    residual: Float = field(default_factory=lambda: np.zeros(1))
    surprise: float = 0.0
    wrong: int = 0


def first_tied(problem: Problem) -> Tied:
    """Where a search begins: weights of the target's own size, and the noise of every fit's beginning."""
    if problem.classifies:
        return Tied(FIRST_CLASS_ALPHA, FIRST_CLASS_ALPHA)
    power = problem.power if problem.powers is None else problem.powers
    variance = FIRST_NOISE * power if problem.noise_variance is None else problem.noise_variance
    return Tied(1 / problem.power, 1 / problem.power, 1 / variance)


@dataclass(frozen=True)
class OfNumbers:
    """The evaluation of a target that is a number; ``rows`` are row numbers, None for all."""

    problem: Problem
    design: Design
    rows: Int | None
    tied: Tied | Held
    count: int
    statistics: GramStatistics | None = None
    posterior: AnyPosterior | None = None
    slope: Float | None = None

    @property
    def wanted(self) -> Pass | None:
        """The pass that comes next; None once there is a ``point``."""
        if self.posterior is None:
            offset = np.zeros((0, len(self.design.scaling.t_shift)))
            return GramPass(self.design.take(NONE, leading=NONE), self.design, offset, rows=self.rows)
        if self.slope is None:
            means, covariances = self.posterior.means, self.posterior.covariances
            return SlopePass(self.design, means, covariances, self.tied.beta, rows=self.rows)
        return None

    @property
    def mean(self) -> Float | None:
        """The mean of the weights (M, T), once it is known: before the slopes are."""
        return None if self.posterior is None else self.posterior.means

    def heard(self, statistic: Any) -> OfNumbers:
        """Go on with the statistic of the pass."""
        if self.posterior is not None:
            return replace(self, slope=statistic)
        basis = self.design.basis
        empty, problem = GramStatistics.empty(basis, self.problem.n_targets), self.problem
        statistics = empty.extend(labels_of(self.design), statistic, basis)
        if isinstance(self.tied, Held):
            found = any_posterior(statistics, self.tied.alpha, self.tied.beta)
            return replace(self, statistics=statistics, posterior=found)
        power, variance = problem.power if problem.powers is None else problem.powers, problem.noise_variance
        noise = Noise(power, None if variance is None else 1 / variance)
        tied, found = updates(statistics, self.tied, self.count, noise)
        return replace(self, tied=tied, statistics=statistics, posterior=found)

    @property
    def point(self) -> Point:
        """What was found."""
        assert self.statistics is not None
        assert self.posterior is not None
        assert self.slope is not None
        found, kernels = self.posterior, self.statistics.labels >= 0
        determined = float(found.determinedness[kernels].mean())
        n, residual = self.statistics.n, np.atleast_1d(found.residual)
        return Point(found.log_evidence, self.slope, self.tied, n, determined, found.means, residual=residual)


@dataclass(frozen=True)
class OfClasses:
    """The evaluation of classes, from ``weights`` (M, C) on; ``turns`` are still to be made before the last mode."""

    problem: Problem
    design: Design
    rows: Int | None
    tied: Tied
    turns: int
    weights: Float
    search: Search | None = None
    mode: LaplaceState | None = None
    shift: Float | None = None
    slope: Float | None = None

    @property
    def wanted(self) -> Pass | None:
        """The pass that comes next; None once there is a ``point``."""
        likelihood = self.problem.likelihood.name
        if self.mode is None:
            weights = self.weights if self.search is None else self.search.trial.weights
            return LogisticPass(self.design, weights, likelihood, self.rows)
        if self.slope is not None:
            return None
        mean, covariance = self.mode.weights, tied_laplace.covariances(self.mode)
        if self.shift is None:
            return BendPass(self.design, mean, covariance, likelihood, self.rows)
        return SlopePass(self.design, mean, covariance, likelihood=likelihood, shift=self.shift, rows=self.rows)

    @property
    def mean(self) -> Float | None:
        """The mode of the weights (M, C), once it is known: before the slopes are."""
        return None if self.mode is None else self.mode.weights

    def heard(self, statistic: Any) -> OfClasses:
        """Go on with the statistic of the pass."""
        if self.mode is not None:
            if self.shift is not None:
                return replace(self, slope=statistic)
            covariance = tied_laplace.covariances(self.mode)
            return replace(self, shift=-0.5 * np.einsum("kij,jk->ik", covariance, statistic))
        if self.search is None:
            labels = labels_of(self.design)
            state = tied_laplace.begun(self.problem.likelihood.name, labels, self.tied, self.weights, statistic)
            return replace(self, search=settle(state))
        rule = StopRule(AT_MODE, STEPS if self.turns else LAST_STEPS)
        search, reason = receive(self.search, statistic, rule)
        if reason is None:
            return replace(self, search=search)
        state = replace(search.current, passes=0)
        if not self.turns:
            return replace(self, search=search, mode=state)
        tied, state = tied_laplace.updates(state, self.tied, CLASS_UPDATES)
        return replace(self, tied=tied, turns=self.turns - 1, search=settle(state))

    @property
    def point(self) -> Point:
        """What was found."""
        assert self.mode is not None
        assert self.slope is not None
        mode = self.mode
        return Point(
            mode.log_evidence,
            self.slope,
            self.tied,
            mode.n,
            float(mode.determinedness[mode.labels >= 0].mean()),
            mode.weights,
            surprise=mode.block.surprise,
            wrong=mode.block.wrong,
        )


def held(problem: Problem, design: Design, rows: Int | None, fit: HyperState) -> OfNumbers:
    """Begin an evaluation of the columns of a fit at its own α and β, with the kernel of ``design``."""
    return OfNumbers(problem, design, rows, Held(fit.alpha, fit.beta), 0)


Evaluation: TypeAlias = OfNumbers | OfClasses


def evaluation(problem: Problem, design: Design, rows: Int | None, last: Point | None, *, fresh: bool) -> Evaluation:
    """Begin an evaluation of this design where ``last`` ended; ``fresh`` gives α and β more updates.

    Centres that the last evaluation had not come last, and begin at weight zero.
    """
    tied = first_tied(problem) if last is None else last.tied
    assert isinstance(tied, Tied)
    if not problem.classifies:
        return OfNumbers(problem, design, rows, tied, FIRST_UPDATES if fresh else UPDATES)
    weights = np.zeros((design.n_columns, problem.n_outputs))
    if last is not None:
        weights[: len(last.weights)] = last.weights
    return OfClasses(problem, design, rows, tied, FIRST_TURNS if fresh else TURNS, weights)


def held_out(problem: Problem, design: Design, weights: Float, rows: Int) -> Pass:
    """The pass over other rows that says what weights (M, C) are worth there, see ``loss``."""
    if problem.classifies:
        return LogisticPass(design, weights, problem.likelihood.name, rows)
    return ResidualPass(design, weights, rows=rows)


def loss(statistic: Any) -> float:
    """Of such a pass: the squared errors as the model sees the target, or −log p of the right classes, all together."""
    return float(statistic.surprise if isinstance(statistic, LogisticBlock) else statistic.energy.sum())
