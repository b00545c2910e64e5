"""Laplace's approximation, shared by all likelihoods whose posterior is that of a quadratic about the mode.

A fit needs a pass for each step, since the quadratic changes with the weights: a ``Newton`` instruction is performed
pass by pass. A likelihood says by which passes its quadratic, its errors and its gains are measured.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from partirvm.core.laplace import LaplaceState, enter, init, trial_factors
from partirvm.core.link import LINKS
from partirvm.core.logistic import LogisticBlock, LogisticCross
from partirvm.core.newton import Search, begin, receive, settle
from partirvm.core.priors import FLAT, Prior
from partirvm.core.residuals import LargestErrors
from partirvm.core.termination import Termination
from partirvm.core.updates import HOPE, StepInfo, StopRule, evidence_gain
from partirvm.kernels.design import Design
from partirvm.likelihoods.base import Begin, FitOptions, FitProblem, Likelihood, PassFit
from partirvm.likelihoods.columns import labels_of, positions, survivors
from partirvm.likelihoods.laplace_passes import GainPass, LogisticPass, LogisticScorePass, MisclassificationPass
from partirvm.likelihoods.packing import Packed, named, pack_laplace, unpack_laplace
from partirvm.likelihoods.passes import Pass
from partirvm.model import ClassModel
from partirvm.types import Columns

Float = NDArray[np.float64]
Int = NDArray[np.int64]


@dataclass(frozen=True)
class Start:
    """Start of a fit: α and weights, (M, C), of the columns with these labels; other columns are new."""

    labels: Int
    alpha: Float
    weights: Float

    @classmethod
    def of(cls, fit: LaplaceState) -> Start:
        """The start that continues this fit."""
        return cls(fit.labels, fit.alpha, fit.mean)

    def merge(self, other: Start, labels: Int) -> Start:
        """A start for the columns of two fits together, restricted to ``labels``.

        Both explain the same data, so each begins with half its weights, and with ``HOPE`` × α, as columns that enter
        do.
        """
        both, first = np.unique(np.concatenate([self.labels, other.labels]), return_index=True)
        alpha = np.concatenate([self.alpha, other.alpha])[first]
        weights = np.concatenate([self.weights, other.weights])[first]
        there = np.isin(both, labels)
        return Start(both[there], HOPE * alpha[there], 0.5 * weights[there])

    def placed(self, labels: Int) -> Float:
        """Weights (M, C) of the columns with these labels, zero for those that are new."""
        weights = np.zeros((len(labels), self.weights.shape[1]))
        known = np.flatnonzero(np.isin(labels, self.labels))
        weights[known] = self.weights[positions(labels[known], self.labels)]
        return weights


class LaplaceLikelihood(Likelihood[LaplaceState, Start]):
    """A likelihood of the linear predictors whose fits are found by Newton steps."""

    draws_pools: ClassVar[bool] = True
    early_rows: ClassVar[int] = 2000

    @abstractmethod
    def quadratic(self, design: Design, weights: Float, rows: Int | None) -> Pass:
        """The pass at weights (M, C) for the likelihood's quadratic there, a ``core.logistic.LogisticBlock``."""

    def n_likelihoods(self, outputs: int) -> int:
        """L, the number of log likelihoods of a block: one, or one per output if outputs are independent."""
        return 1

    def step_flops(self, problem: FitProblem, rows: int, columns: int) -> float:
        """Those of a pass and of a factorisation for each output."""
        outputs = problem.n_outputs
        return float(rows * columns**2 * outputs * (outputs + 1) + (columns * outputs) ** 3)

    def start(self, problem: FitProblem) -> LaplaceState:
        """The fit of no column: all linear predictors are zero."""
        outputs = problem.n_outputs
        none = np.zeros((0, outputs))
        block = LogisticBlock(np.zeros(self.n_likelihoods(outputs)), none, np.zeros((outputs, 0, 0)), 0, 0)
        return init(self.name, np.zeros(0, np.int64), none, none, block, problem.prior)

    def warm(self, fit: LaplaceState) -> Start:
        """Its α and weights."""
        return Start.of(fit)

    def merge(self, left: Start, right: Start, labels: Int) -> Start:
        """See ``Start.merge``."""
        return left.merge(right, labels)

    def fit(self, problem: FitProblem, options: FitOptions, design: Design, fit: LaplaceState, begin: Begin) -> Newton:
        """A fit pass by pass, whose iterations are passes."""
        rule = replace(begin.rule, max_iterations=options.max_passes, guard=False)
        start, solver = begin.warm or Start.of(fit), options.solver
        return Newton(design, self, start, rule, begin.candidates, begin.rows, problem.prior, solver, begin.hold)

    def gains(self, fit: LaplaceState, statistic: LogisticCross) -> Float:
        """Summed over outputs (Tipping & Faul 2003, eq. 27); ``statistic`` is scaled up to all rows of the fit."""
        scale = fit.n / statistic.n if fit.n else 1.0
        cross, diagonal = scale * statistic.cross, scale * statistic.diagonal.T
        s, q = trial_factors(fit, cross, diagonal, scale * statistic.gradient)
        gains: Float = evidence_gain(s, q, fit.own_prior.alpha).sum(axis=1)
        return gains

    def size_pass(self, design: Design, fit: LaplaceState, pool: Design, rows: Int | None) -> Pass:
        """The quadratic of all columns together, about the fit's mode."""
        return self.quadratic(design.join(pool), _extended(fit.mean, pool, 0.0), rows)

    def sizes(self, fit: LaplaceState, pool: Design, statistic: LogisticBlock, alpha: float) -> Float:
        """One Newton step from the fit's mode; the largest over outputs."""
        labels = np.concatenate([fit.labels, pool.labels])
        together, weights = _extended(fit.alpha, pool, alpha), _extended(fit.mean, pool, 0.0)
        moved = init(fit.likelihood, labels, together, weights, statistic).mean
        found: Float = np.abs(moved[len(fit.labels) :]).max(axis=1)
        return found

    def record(self, problem: FitProblem, fit: LaplaceState, scores: Any) -> dict[str, Any]:
        """The evidence; there is no noise."""
        return {
            "rows": fit.n,
            "vectors": fit.n_vectors,
            "iterations": fit.iteration,
            "log_evidence": fit.log_evidence,
            "noise_variance": None,
            "train_rmse": None,
        }

    def pack(self, fit: LaplaceState) -> Packed:
        """α and weights, the quadratic, and the posteriors at the mode."""
        return pack_laplace(fit)

    def unpack(self, problem: FitProblem, design: Design, packed: Packed) -> LaplaceState:
        """The prior is the problem's."""
        return unpack_laplace(packed, self.name, problem.prior)

    def pack_warm(self, warm: Start) -> Packed:
        """α and weights by labels."""
        return named(warm, ("labels", "alpha", "weights"))

    def unpack_warm(self, problem: FitProblem, packed: Packed) -> Start:
        """A start says all by itself."""
        return Start(**packed)


class ClassLikelihood(LaplaceLikelihood):
    """A likelihood of classes by the link of its name in ``core.link.LINKS``."""

    of_classes: ClassVar[bool] = True

    def model(self, design: Design, fit: LaplaceState, columns: Columns, moderate: bool) -> ClassModel:
        """Probabilities of classes."""
        return ClassModel.from_fit(design, fit, columns, self.name, moderate)

    def n_outputs(self, n_classes: int) -> int:
        """The number of outputs of its link."""
        return LINKS[self.name].n_outputs(n_classes)

    def quadratic(self, design: Design, weights: Float, rows: Int | None) -> LogisticPass:
        """The logistic pass."""
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
        """By the improbability of a row's class."""
        return MisclassificationPass(design, fit.mean, self.name, count, used, draw, floor, rows)

    def largest(self, statistic: LargestErrors) -> LargestErrors:
        """The statistic itself."""
        return statistic

    def gain_pass(self, design: Design, fit: LaplaceState, pool: Design, rows: Int | None) -> Pass:
        """Products of the pool's columns with the fit's, weighted by the curvature."""
        return GainPass(design, fit.weights, self.name, pool, rows)

    def score(self, design: Design, fit: LaplaceState, moderate: bool) -> LogisticScorePass:
        """Log loss and wrong classes."""
        return LogisticScorePass(design, fit.mean, fit.roots(), fit.likelihood, moderate)

    def record(self, problem: FitProblem, fit: LaplaceState, scores: Any) -> dict[str, Any]:
        """With log loss and the fraction of wrong classes."""
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
    """A fit of the columns of ``design``: passes and Newton steps until ``rule`` ends it.

    Over all rows, or over those of ``rows`` (row numbers, increasing). ``candidates`` is for the watcher. ``prior`` is
    that of each α; with the ``solver`` "fast" columns that are new wait to be added (``core.fast_laplace``). With
    ``hold`` α stays as it is, and only the mode is sought.
    """

    design: Design
    likelihood: LaplaceLikelihood
    start: Start
    rule: StopRule
    candidates: int
    rows: Int | None = None
    prior: Prior = FLAT
    solver: str = "fixed-point"
    hold: bool = False

    def begun(self) -> NewtonCourse:
        """The fit before its first pass."""
        return NewtonCourse(self)


@dataclass(frozen=True)
class NewtonCourse:
    """A ``Newton`` under way; ``search`` is None before its first pass is back."""

    task: Newton
    search: Search | None = None
    reason: Termination | None = None

    @property
    def wanted(self) -> Pass:
        """The pass that comes next."""
        task = self.task
        if self.search is None:
            return task.likelihood.quadratic(task.design, task.start.placed(labels_of(task.design)), task.rows)
        trial = self.search.trial
        return task.likelihood.quadratic(survivors(task.design, trial), trial.weights, task.rows)

    def heard(self, block: LogisticBlock, look: Callable[[], None] = lambda: None) -> NewtonCourse:
        """Go on with the statistic of the pass; with a ``reason`` it is over, and ``fit`` is where it ended.

        ``look`` is called between dense iterations, and may raise.
        """
        task = self.task
        if self.search is not None:
            search, reason = receive(self.search, block, self.rule, look)
            return replace(self, search=search, reason=reason)
        labels, start = labels_of(task.design), task.start
        there = np.isin(start.labels, labels)
        known = start.labels[there], start.alpha[there], start.weights[there]
        first = enter(task.likelihood.name, labels, block, *known, task.prior, wait=self.fast)
        first = replace(first, passes=1)
        return replace(self, search=settle(first) if task.hold else begin(first, self.rule, look, fast=self.fast))

    @property
    def fast(self) -> bool:
        """True for ``solver="fast"``; ``auto`` is the fixed point."""
        return self.task.solver == "fast"

    @property
    def rule(self) -> StopRule:
        """When it ends: a fit by actions that begins with few vectors has nothing to prune, and converges."""
        rule, start = self.task.rule, self.task.start
        begun = np.isin(self.task.design.labels, start.labels).sum()
        return replace(rule, vectors=None) if self.fast and rule.vectors is not None and begun <= rule.vectors else rule

    @property
    def info(self) -> StepInfo:
        """The last step, for reports only."""
        fit = self.fit
        return StepInfo(fit.passes, fit.n_vectors, 0, fit.log_evidence, math.nan, math.nan)

    @property
    def fit(self) -> LaplaceState:
        """The current fit."""
        assert self.search is not None
        return self.search.current


def _extended(values: Float, pool: Design, other: float) -> Float:
    """Values (M, C) of the fit's columns, and after them this one for each of the pool's."""
    return np.concatenate([values, np.full((len(pool.labels), values.shape[1]), other)])
