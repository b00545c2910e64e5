"""Likelihoods of classes, fitted by Laplace's approximation: a quadratic at the mode of the weights.

A fit needs a pass for each step, since the quadratic changes with the weights. The driver therefore performs a
``Newton`` instruction pass by pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.laplace import LaplaceState, init
from partirvm.core.link import LINKS, LogisticBlock
from partirvm.core.newton import NewtonSearch, begin, enter, receive, settle
from partirvm.core.priors import FLAT, JOINING, Prior
from partirvm.core.termination import StopRule, Termination
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
        ``JOINING``, as for new columns.
        """
        joined, first = np.unique(np.concatenate([self.labels, other.labels]), return_index=True)
        alpha = np.concatenate([self.alpha, other.alpha])[first]
        weights = np.concatenate([self.weights, other.weights])[first]
        kept = np.isin(joined, labels)
        return Start(joined[kept], JOINING * alpha[kept], 0.5 * weights[kept])

    def placed(self, labels: Int) -> Float:
        """Return the weights (M, C) of the columns with these labels, zero for new columns."""
        weights = np.zeros((len(labels), self.weights.shape[1]))
        known = np.flatnonzero(np.isin(labels, self.labels))
        weights[known] = self.weights[positions(labels[known], self.labels)]
        return weights


@dataclass(frozen=True)
class ClassLikelihood(Likelihood[LaplaceState, Start]):
    """A likelihood of classes, fitted by Newton steps; ``name`` is also that of its link (``core.link.LINKS``)."""

    name: str
    words: tuple[str, ...]
    binary: bool = False
    classifies: bool = True
    draws_pools: bool = True
    early_rows: int = 2000

    def model(self, design: Design, fit: LaplaceState, columns: Columns, moderate: bool) -> ClassModel:
        """Return the model, which predicts class probabilities."""
        return ClassModel.from_fit(design, fit, columns, moderate)

    def start(self, problem: FitProblem) -> LaplaceState:
        """Return the fit without columns, whose linear predictors are zero."""
        outputs = problem.n_outputs
        none = np.zeros((0, outputs))
        logs = np.zeros(1 if LINKS[self.name].coupled else outputs)
        block = LogisticBlock(logs, none, np.zeros((outputs, 0, 0)), 0, 0)
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
        rule, start = replace(begin.rule, max_iterations=options.max_passes, guard=False), begin.warm or Start.of(fit)
        return Newton(design, self.name, start, rule, begin.candidates, begin.rows, problem.prior, begin.hold)

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
        """Return sizes, evidence, log loss and the fraction of wrongly classified rows; there is no noise variance."""
        n = max(fit.n, 1)
        return {
            "rows": fit.n,
            "vectors": fit.n_vectors,
            "iterations": fit.iteration,
            "log_evidence": fit.log_evidence,
            "noise_variance": None,
            "train_rmse": None,
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
    ``search`` is None until the first pass is finished.
    """

    design: Design
    likelihood: str
    start: Start
    rule: StopRule
    candidates: int
    rows: Int | None = None
    prior: Prior = FLAT
    hold: bool = False
    search: NewtonSearch | None = None
    reason: Termination | None = None

    @property
    def next_pass(self) -> Pass:
        """The next pass."""
        if self.search is None:
            weights = self.start.placed(labels_of(self.design))
            return LogisticPass(self.design, weights, self.likelihood, self.rows)
        trial = self.search.trial
        return LogisticPass(survivors(self.design, trial), trial.weights, self.likelihood, self.rows)

    @property
    def fit(self) -> LaplaceState:
        """The current fit."""
        assert self.search is not None
        return self.search.current

    def advance(self, block: LogisticBlock, poll: Callable[[], None] = lambda: None) -> Newton:
        """Return the fit after the statistic of the pass; ``poll`` is called between dense iterations."""
        if self.search is not None:
            search, reason = receive(self.search, block, self.rule, poll)
            return replace(self, search=search, reason=reason)
        labels, start = labels_of(self.design), self.start
        kept = np.isin(start.labels, labels)
        known = start.labels[kept], start.alpha[kept], start.weights[kept]
        first = replace(enter(self.likelihood, labels, block, *known, self.prior), passes=1)
        return replace(self, search=settle(first) if self.hold else begin(first, self.rule, poll))


BERNOULLI = ClassLikelihood("bernoulli", ("auto", "pooled", "multinomial", "ovr"), binary=True)
"""Two classes with one linear predictor, p = 1 / (1 + e⁻ᶠ) (Tipping 2001, eq. 23)."""

SOFTMAX = ClassLikelihood("multinomial", ("multinomial",))
"""p_k = exp f_k / Σ_l exp f_l (Tipping 2001, eq. 28); the K weights of a column share one α."""

ONE_VS_REST = ClassLikelihood("ovr", ("ovr",))
"""A Bernoulli likelihood of each class against the rest; each linear predictor has separate α."""
