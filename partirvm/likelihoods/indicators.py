"""Classification by least squares: a Gaussian likelihood for class indicators, which share α, β and
hence Σ.

The K indicators of a row are 1 for its class and 0 otherwise. One Gram matrix and one factor serve
all indicators, so that a dense fit of K classes costs as much as a fit of one numeric target
(``core.updates``). Left-out errors choose the ramp that turns predictors into probabilities
(``core.ramp``), in one pass over at most ``ROWS`` rows after each fit. With three or more classes,
another pass follows the last fit, for a correction (``core.class_correction``).

Unlike Newton steps on a softmax, least squares also fits rows that are already far on the correct
side. On digits and pendigits, it makes a third fewer errors than Newton steps with the same kernel,
at half the log loss (``benchmarks/classification``).
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from partirvm.core.held_back import sampled_rows
from partirvm.core.ramp import LeftOutClasses
from partirvm.core.statistics import GramStatistics
from partirvm.core.termination import StopRule
from partirvm.core.updates import HyperState
from partirvm.kernels.design import Design
from partirvm.likelihoods.classes import INDICATORS, OF_CLASSES, ClassRounds, class_record
from partirvm.likelihoods.gaussian import FIRST_NOISE, GaussianLikelihood, Solve
from partirvm.likelihoods.passes import LeftOutClassesPass, ResidualPass
from partirvm.model import ClassModel
from partirvm.spec.panel_pass import Pass
from partirvm.spec.problem import Options, Problem, Start
from partirvm.types import Columns, Int

ROWS = 5000
"""Maximum number of left-out rows used to choose a ramp."""

VALUES = 500_000
"""Maximum number of these rows' predictors."""

LOOSE = 100.0
"""Tolerance per output, as a multiple of the usual tolerance: tighter fits take ten times as long
and gain nothing on left-out rows."""

LEAST_FALL = 10.0
"""Doubling the number of vectors must lower the log loss of left-out rows by ``CLASS_GAIN`` nats,
or relatively by this multiple of ``CLASS_GAIN``."""


@dataclass(frozen=True)
class IndicatorLikelihood(GaussianLikelihood):
    """Least squares on class indicators."""

    name: str = "pooled"
    words: tuple[str, ...] = ("auto", "pooled")
    classifies: bool = True
    at_once: int = 600**2

    working = INDICATORS
    has_noise = False
    has_ramp = True
    loss_name = "log loss"
    rounds = ClassRounds(ranks_gains=True, draws_errors=True, slope=LEAST_FALL, most=1.0)
    takes = OF_CLASSES
    prediction_without_vectors = "class frequencies"

    def model(
        self, design: Design, fit: HyperState, columns: Columns, moderate: bool
    ) -> ClassModel:
        current = fit.posterior
        evidence = float(fit.log_evidence)
        parts = design, current.mean, current.root()[None], fit.alpha, evidence, fit.n, columns
        link = "multinomial" if fit.n_classes > 2 else "bernoulli"
        return ClassModel(*parts, likelihood=link, moderate=False, ramp=fit.ramp)

    def start(self, problem: Problem) -> HyperState:
        K = problem.n_classes
        variance = (K - 1.0) / K**2
        empty = GramStatistics.empty(K)
        beta = 1 / (FIRST_NOISE * variance)
        prior = problem.prior.shared(K)
        return HyperState(
            empty, np.zeros(0), beta, target_variance=variance, prior=prior, n_classes=K
        )

    def fit(
        self,
        problem: Problem,
        options: Options,
        design: Design,
        fit: HyperState,
        rule: StopRule,
        rows: Int | None,
        warm: Start | None,
    ) -> Solve:
        rule = replace(rule, tol=LOOSE * problem.n_classes * rule.tol)
        return super().fit(problem, options, design, fit, rule, rows, warm)

    def settling(
        self,
        problem: Problem,
        design: Design,
        fit: HyperState,
        rows: Int | None,
        *,
        last: bool,
        left_out: bool,
        corrected: bool = False,
    ) -> tuple[Pass, ...]:
        """Return the residual pass for a fit that lost digits, or else the pass for left-out rows,
        from which a last fit of several classes learns a correction of the probabilities."""
        if last and (not left_out or fit.n_classes < 3 or problem.groups is not None):
            return ()
        current = fit.posterior
        if not left_out:
            return (ResidualPass(design, current.mean, fit.n_classes, rows=rows),)
        limit = most_left_out(fit)
        sample = sampled_rows(problem.n_rows, rows, limit, shuffled=problem.shuffled)
        root = current.root()
        return (LeftOutClassesPass(design, current.mean, root, float(fit.beta), rows=sample),)

    def settle(self, fit: HyperState, *statistics: Any, last: bool) -> HyperState:
        if statistics and isinstance(statistics[0], LeftOutClasses):
            left_out = statistics[0]
            return replace(
                fit, ramp=left_out.corrected(fit.ramp) if last else left_out.ramp(fit.ramp)
            )
        return super().settle(fit, *statistics, last=False)

    def record(self, problem: Problem, fit: HyperState, scores: Any) -> dict[str, Any]:
        return class_record(fit, fit.ramp.loss, fit.ramp.wrong, scores)

    def objective(self, fit: HyperState) -> float:
        """Return the total log density of left-out rows in nats."""
        return float(-fit.ramp.loss * fit.n)


def most_left_out(fit: HyperState) -> int:
    """Return the maximum number of left-out rows from which the ramp of a fit is chosen."""
    return min(ROWS, VALUES // fit.n_classes)
