"""Laplace's approximation: fits of likelihoods whose posterior is approximated by a quadratic at the mode.

A fit needs a pass for each step, since the quadratic changes with the weights. The driver therefore performs a
``Newton`` instruction pass by pass. Each likelihood defines the passes for its quadratic, its errors and its gains.

The Bernoulli likelihood of two classes: one linear predictor, p = 1 / (1 + e⁻ᶠ) (Tipping 2001, eq. 23).

Likelihoods of K classes with one linear predictor per class: softmax, and one-vs-rest.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from partirvm.core.gains import HOPE, evidence_gain
from partirvm.core.laplace import LaplaceState, enter, init, trial_factors
from partirvm.core.link import LINKS, LogisticBlock, LogisticCross
from partirvm.core.newton import NewtonSearch, begin, receive, settle
from partirvm.core.priors import FLAT, Prior
from partirvm.core.termination import StopRule, Termination
from partirvm.core.updates import StepInfo
from partirvm.kernels.design import Design
from partirvm.likelihoods.base import (
    Begin,
    FitOptions,
    FitProblem,
    Likelihood,
    Pass,
    PassFit,
    labels_of,
    positions,
    survivors,
)
from partirvm.likelihoods.class_passes import GainPass, LogisticPass, LogisticScorePass, MisclassificationPass
from partirvm.model import ClassModel
from partirvm.types import Columns

Float = NDArray[np.float64]
Int = NDArray[np.int64]


@dataclass(frozen=True)
class Start:
    """Start of a fit: α and weights, (M, C), of the columns with these labels. Other columns are new."""

    labels: Int
    alpha: Float
    weights: Float

    @classmethod
    def of(cls, fit: LaplaceState) -> Start:
        """Return the start that continues this fit."""
        return cls(fit.labels, fit.alpha, fit.mean)

    def merge(self, other: Start, labels: Int) -> Start:
        """Return a start for the joined columns of two fits, restricted to ``labels``.

        The two fits explain the same data, so that columns start with half their weights. Their α is multiplied by
        ``HOPE``, as for new columns.
        """
        joined, first = np.unique(np.concatenate([self.labels, other.labels]), return_index=True)
        alpha = np.concatenate([self.alpha, other.alpha])[first]
        weights = np.concatenate([self.weights, other.weights])[first]
        kept = np.isin(joined, labels)
        return Start(joined[kept], HOPE * alpha[kept], 0.5 * weights[kept])

    def placed(self, labels: Int) -> Float:
        """Return the weights (M, C) of the columns with these labels, zero for new columns."""
        weights = np.zeros((len(labels), self.weights.shape[1]))
        known = np.flatnonzero(np.isin(labels, self.labels))
        weights[known] = self.weights[positions(labels[known], self.labels)]
        return weights


class LaplaceLikelihood(Likelihood[LaplaceState, Start]):
    """Base class of likelihoods that are fitted by Newton steps."""

    draws_pools: ClassVar[bool] = True
    early_rows: ClassVar[int] = 2000

    @abstractmethod
    def quadratic(self, design: Design, weights: Float, rows: Int | None) -> Pass:
        """Return the pass for the likelihood's quadratic at weights (M, C), a ``core.link.LogisticBlock``."""

    def n_likelihoods(self, outputs: int) -> int:
        """Return L, the number of log likelihoods of a block: one, or one per output if outputs are independent."""
        return 1

    def step_flops(self, problem: FitProblem, rows: int, columns: int) -> float:
        """Return the flops of one pass and of one factorisation for all outputs."""
        outputs = problem.n_outputs
        return float(rows * columns**2 * outputs * (outputs + 1) + (columns * outputs) ** 3)

    def start(self, problem: FitProblem) -> LaplaceState:
        """Return the fit without columns, whose linear predictors are zero."""
        outputs = problem.n_outputs
        none = np.zeros((0, outputs))
        block = LogisticBlock(np.zeros(self.n_likelihoods(outputs)), none, np.zeros((outputs, 0, 0)), 0, 0)
        return init(self.name, np.zeros(0, np.int64), none, none, block, problem.prior)

    def warm(self, fit: LaplaceState) -> Start:
        """Return α and weights of the fit."""
        return Start.of(fit)

    def fit(self, problem: FitProblem, options: FitOptions, design: Design, fit: LaplaceState, begin: Begin) -> PassFit:
        """Return a fit that needs a pass for each step; its iterations are passes."""
        return self.newton(problem, options, design, fit, begin)

    def newton(
        self, problem: FitProblem, options: FitOptions, design: Design, fit: LaplaceState, begin: Begin
    ) -> Newton:
        """Return the fit by Newton steps."""
        rule = replace(begin.rule, max_iterations=options.max_passes, guard=False)
        start = begin.warm or Start.of(fit)
        return Newton(design, self, start, rule, begin.candidates, begin.rows, problem.prior, begin.hold)

    def gains(self, fit: LaplaceState, statistic: LogisticCross) -> Float:
        """Return gains summed over outputs (Tipping & Faul 2003, eq. 27).

        A ``statistic`` from a sample is scaled up to the rows of the fit.
        """
        scale = fit.n / statistic.n if fit.n else 1.0
        cross, diagonal = scale * statistic.cross, scale * statistic.diagonal.T
        s, q = trial_factors(fit, cross, diagonal, scale * statistic.gradient)
        gains: Float = evidence_gain(s, q, fit.own_prior.alpha).sum(axis=1)
        return gains

    def record(self, problem: FitProblem, fit: LaplaceState, scores: Any) -> dict[str, Any]:
        """Return sizes and evidence; there is no noise variance."""
        return {
            "rows": fit.n,
            "vectors": fit.n_vectors,
            "iterations": fit.iteration,
            "log_evidence": fit.log_evidence,
            "noise_variance": None,
            "train_rmse": None,
        }


class ClassLikelihood(LaplaceLikelihood):
    """Base class of classification likelihoods; ``name`` is also the name of the link in ``core.link.LINKS``."""

    classifies: ClassVar[bool] = True

    def model(self, design: Design, fit: LaplaceState, columns: Columns, moderate: bool) -> ClassModel:
        """Return the model, which predicts class probabilities."""
        return ClassModel.from_fit(design, fit, columns, fit.likelihood, moderate)

    def n_outputs(self, n_classes: int) -> int:
        """Return the number of outputs of the link."""
        return LINKS[self.name].n_outputs(n_classes)

    def quadratic(self, design: Design, weights: Float, rows: Int | None) -> LogisticPass:
        """Return the logistic pass."""
        return LogisticPass(design, weights, self.name, rows)

    def errors(
        self,
        design: Design,
        fit: LaplaceState,
        count: int,
        used: Int,
        rows: Int | None,
        *,
        draw: tuple[int, int] | None = None,
        floor: float = 0.0,
    ) -> Pass:
        """Return the pass that finds the rows whose class has the smallest probability."""
        return MisclassificationPass(design, fit.mean, fit.likelihood, count, used, draw, floor, rows)

    def gain_pass(self, design: Design, fit: LaplaceState, pool: Design, rows: Int | None) -> Pass:
        """Return a pass for products of the pool's and the fit's columns, weighted by the curvature."""
        return GainPass(design, fit.weights, fit.likelihood, pool, rows)

    def score(self, design: Design, fit: LaplaceState, moderate: bool) -> LogisticScorePass:
        """Return the pass for log loss and wrongly classified rows."""
        return LogisticScorePass(design, fit.mean, fit.roots(), fit.likelihood, moderate)

    def record(self, problem: FitProblem, fit: LaplaceState, scores: Any) -> dict[str, Any]:
        """Return sizes, evidence, log loss and the fraction of wrongly classified rows."""
        n = max(fit.n, 1)
        return {
            **super().record(problem, fit, scores),
            "train_log_loss": fit.block.nll / n,
            "train_error": fit.block.wrong / n,
            "held_out_log_loss": None if scores is None else scores.log_loss,
            "held_out_error": None if scores is None else scores.error,
        }


@dataclass(frozen=True)
class Newton(PassFit):
    """A fit of the columns of ``design``: passes and Newton steps until ``rule`` ends the fit.

    The passes read the rows ``rows`` (row numbers, increasing), or all rows if None. ``candidates`` is for progress
    reports only. ``prior`` is the prior of each α. With ``hold`` α stays fixed, and only the mode is computed.
    """

    design: Design
    likelihood: LaplaceLikelihood
    start: Start
    rule: StopRule
    candidates: int
    rows: Int | None = None
    prior: Prior = FLAT
    hold: bool = False

    def begun(self) -> RunningNewton:
        """Return the running fit before its first pass."""
        return RunningNewton(self)


@dataclass(frozen=True)
class RunningNewton:
    """A running ``Newton`` fit; ``search`` is None until the first pass is finished."""

    task: Newton
    search: NewtonSearch | None = None
    reason: Termination | None = None

    @property
    def next_pass(self) -> Pass:
        """The next pass."""
        task = self.task
        if self.search is None:
            return task.likelihood.quadratic(task.design, task.start.placed(labels_of(task.design)), task.rows)
        trial = self.search.trial
        return task.likelihood.quadratic(survivors(task.design, trial), trial.weights, task.rows)

    def advance(self, block: LogisticBlock, poll: Callable[[], None] = lambda: None) -> RunningNewton:
        """Continue with the statistic of the pass; if the result has a ``reason``, the fit has ended.

        ``poll`` is called between dense iterations, and may raise an exception to stop the fit.
        """
        task = self.task
        if self.search is not None:
            search, reason = receive(self.search, block, task.rule, poll)
            return replace(self, search=search, reason=reason)
        labels, start = labels_of(task.design), task.start
        kept = np.isin(start.labels, labels)
        known = start.labels[kept], start.alpha[kept], start.weights[kept]
        first = enter(task.likelihood.name, labels, block, *known, task.prior)
        first = replace(first, passes=1)
        return replace(self, search=settle(first) if task.hold else begin(first, task.rule, poll))

    @property
    def info(self) -> StepInfo:
        """Information about the last step, for reports only."""
        fit = self.fit
        return StepInfo(fit.passes, fit.n_vectors, 0, fit.log_evidence, math.nan, math.nan)

    @property
    def fit(self) -> LaplaceState:
        """The current fit."""
        assert self.search is not None
        return self.search.current


def _extended(values: Float, pool: Design, other: float) -> Float:
    """Return the values (M, C) of the fit's columns, followed by ``other`` for each column of the pool."""
    return np.concatenate([values, np.full((len(pool.labels), values.shape[1]), other)])


@dataclass(frozen=True)
class BernoulliLikelihood(ClassLikelihood):
    """The likelihood of two classes, the same for every value of ``multi_class``."""

    name: ClassVar[str] = "bernoulli"
    words: ClassVar[tuple[str, ...]] = ("auto", "pooled", "multinomial", "ovr")

    def serves(self, n_classes: int, word: float | str) -> bool:
        """Return whether there are two classes; they need only one linear predictor."""
        return n_classes == 2 and word in self.words


@dataclass(frozen=True)
class SoftmaxLikelihood(ClassLikelihood):
    """p_k = exp f_k / Σ_l exp f_l (Tipping 2001, eq. 28); the K weights of a column share one α."""

    name: ClassVar[str] = "multinomial"
    words: ClassVar[tuple[str, ...]] = ("multinomial",)


@dataclass(frozen=True)
class OneVsRestLikelihood(ClassLikelihood):
    """A Bernoulli likelihood of each class against the rest; each linear predictor has separate α."""

    name: ClassVar[str] = "ovr"
    words: ClassVar[tuple[str, ...]] = ("ovr",)

    def n_likelihoods(self, outputs: int) -> int:
        """Return one log likelihood per output."""
        return outputs
