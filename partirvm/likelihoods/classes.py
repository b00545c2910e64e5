"""Class likelihoods, fitted by the Laplace approximation: a quadratic at the mode of the weights,
which is found pass by pass."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Self

import numpy as np

from partirvm.core.laplace import LaplaceState, init
from partirvm.core.link import LogisticBlock, targets
from partirvm.core.newton import NewtonSearch, begin, enter, receive
from partirvm.core.priors import FLAT, Prior
from partirvm.core.termination import StopRule, Termination
from partirvm.kernels.design import Design
from partirvm.likelihoods.passes import ErrorPass, LogisticPass
from partirvm.model import ClassModel
from partirvm.spec.panel_pass import Pass, positions
from partirvm.spec.problem import (
    Draw,
    Likelihood,
    Options,
    PassFit,
    Problem,
    RoundTraits,
    Start,
    WorkingTargets,
    survivors,
)
from partirvm.types import Columns, Float, Int

CLASS_GAIN = {"quick": 0.2, "balanced": 0.03, "thorough": 0.0}
"""Minimum gain of a classification in rounds, by ``effort``; see ``ClassRounds``."""

OF_CLASSES = frozenset({"class_weight"})
"""The options that class likelihoods accept."""


@dataclass(frozen=True)
class ClassRounds(RoundTraits):
    """Traits of a classification's rounds: the minimum gain is ``CLASS_GAIN`` times min(slope · log
    loss, most)."""

    slope: float = 1.0
    most: float = inf

    def least_gain(self, loss: float, effort: str) -> float:
        return min(self.slope * loss, self.most) * CLASS_GAIN[effort]


@dataclass(frozen=True)
class Indicators(WorkingTargets):
    """Class indicators with a shared noise variance."""

    search: str = "classes"
    first_share: float = 0.1
    shared_noise: bool = True

    def of_process(self, problem: Problem, t: Float) -> Float:
        """Return standardised indicators (n, C) for class codes (n, 1); for two classes, only the
        second class's indicator."""
        K = problem.n_classes
        counts = np.bincount(np.asarray(problem.codes), minlength=K)
        first = int(K == 2)
        shares = counts / counts.sum()
        indicators = (t == np.arange(K)) - shares
        return np.asarray(indicators[:, first:] / np.sqrt((shares * (1 - shares))[first:].mean()))

    def of_levels(self, problem: Problem, t: Float) -> Float:
        """Return indicators (n, C) for class codes (n, 1); for two classes, only the second class's
        indicator."""
        indicators = targets(t[:, 0], problem.n_classes)
        if problem.n_classes == 2:
            return indicators[:, 1:]
        return np.asarray(indicators - indicators.mean(axis=0))


INDICATORS = Indicators()
"""The working targets from which every class likelihood learns the kernel."""


@dataclass(frozen=True)
class ClassLikelihood(Likelihood):
    """A classification likelihood, fitted by Newton steps and named after its link."""

    name: str
    words: tuple[str, ...]
    binary: bool = False
    classifies: bool = True
    dense: bool = False  # stored in checkpoints of version 0.1
    at_once: int = 10**6

    working = INDICATORS
    loss_name = "log loss"
    rounds = ClassRounds(draws_errors=True)
    newton = True
    takes = OF_CLASSES
    prediction_without_vectors = "class frequencies"

    def model(
        self, design: Design, fit: LaplaceState, columns: Columns, moderate: bool
    ) -> ClassModel:
        parts = design, fit.mean, fit.roots(), fit.alpha, float(fit.log_evidence), fit.n, columns
        return ClassModel(*parts, likelihood=self.name, moderate=moderate)

    def start(self, problem: Problem) -> LaplaceState:
        outputs = problem.n_outputs
        none = np.zeros((0, outputs))
        block = LogisticBlock(0.0, none, np.zeros((outputs, 0, 0)), 0, 0)
        return init(np.zeros(0, np.int64), none[:, 0], none, block, problem.prior)

    def warm(self, fit: LaplaceState) -> Start:
        return Start(fit.labels, fit.alpha, weights=fit.mean)

    def fit(
        self,
        problem: Problem,
        options: Options,
        design: Design,
        fit: LaplaceState,
        rule: StopRule,
        rows: Int | None,
        warm: Start | None,
    ) -> PassFit:
        rule = replace(rule, max_iterations=options.max_passes, guard=False)
        return Newton(design, self.name, warm or self.warm(fit), rule, rows, problem.prior)

    def errors(
        self, design: Design, fit: Any, count: int, used: Int, rows: Int | None, draw: Draw = None
    ) -> Pass:
        return ErrorPass(design, fit.mean, count, used, self.name, draw, rows=rows)

    def record(self, problem: Problem, fit: LaplaceState, scores: Any) -> dict[str, Any]:
        n = max(fit.n, 1)
        return class_record(fit, fit.block.nll / n, fit.block.wrong / n, scores)


def class_record(fit: Any, log_loss: float, error: float, scores: Any) -> dict[str, Any]:
    """Return the history line's fields for a classification fit.

    Args:
        fit: the fit
        log_loss: log loss of the training rows, in nats
        error: error rate of the training rows
        scores: scores on the held-out rows, or None
    """
    facts = {
        "rows": fit.n,
        "vectors": fit.n_vectors,
        "iterations": fit.iteration,
        "log_evidence": fit.log_evidence,
        "train_log_loss": log_loss,
        "train_error": error,
    }
    if scores is not None:
        facts["held_out_log_loss"] = scores.loss
        facts["held_out_error"] = scores.wrong / scores.n
        facts["held_out_ece"] = scores.figures()["ece"]
    return facts


@dataclass(frozen=True)
class Newton(PassFit):
    """A fit of the columns of ``design`` by Newton steps, until ``rule`` ends it.

    Attributes:
        design: the columns
        likelihood: name of the link
        start: initial α and weights
        rule: determines when the fit ends
        rows: the fit's rows, None for all
        prior: the prior of α
        search: the current step, None before the first pass
        reason: the reason why the fit has ended, or None
    """

    design: Design
    likelihood: str
    start: Start
    rule: StopRule
    rows: Int | None = None
    prior: Prior = FLAT
    search: NewtonSearch | None = None
    reason: Termination | None = None

    def _first(self) -> tuple[Int, Float, Float]:
        """Return the labels of the columns, their initial α (M,), which is NaN for new columns, and
        their initial weights (M, C)."""
        labels = self.design.all_labels
        start = self.start
        assert start.weights is not None
        alpha = np.full(len(labels), np.nan)
        weights = np.zeros((len(labels), start.weights.shape[1]))
        known = np.isin(labels, start.labels)
        old = positions(labels[known], start.labels)
        alpha[known] = start.alpha[old]
        weights[known] = start.weights[old]
        return labels, alpha, weights

    @property
    def next_pass(self) -> Pass:
        if self.search is None:
            weights = self._first()[2]
            return LogisticPass(self.design, weights, self.likelihood, rows=self.rows)
        trial = self.search.trial
        design = survivors(self.design, trial)
        return LogisticPass(design, trial.weights, self.likelihood, rows=self.rows)

    @property
    def fit(self) -> LaplaceState:
        assert self.search is not None
        return self.search.current

    def advance(self, block: LogisticBlock, poll: Callable[[], None] = lambda: None) -> Self:
        if self.search is None:
            first = replace(enter(*self._first(), block, self.prior), iteration=1)
            return replace(self, search=begin(first, self.rule, poll))
        search, reason = receive(self.search, block, self.rule, poll)
        return replace(self, search=search, reason=reason)


BERNOULLI = ClassLikelihood("bernoulli", ("auto", "multinomial"), binary=True)
"""Two classes with one linear predictor, p = 1 / (1 + e⁻ᶠ) (Tipping 2001, eq. 23)."""

SOFTMAX = ClassLikelihood("multinomial", ("multinomial",))
"""p_k = exp f_k / Σ_l exp f_l (Tipping 2001, eq. 28); the K weights of a column share one α."""
