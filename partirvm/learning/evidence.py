"""How a kernel is scored on a sample: the evidence and its slopes in the kernel's log parameters, or a held-out loss.

The evidence is that of a tied RVM (``core.tied``; for classes, of their indicators), or that of a given fit with its
α and β held constant. An evaluation takes two passes: Gram and slopes. Both use the same
kernel blocks, which may be kept in memory between them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from partirvm.core.posterior import any_posterior
from partirvm.core.statistics import GramStatistics
from partirvm.core.tied import NoiseBounds, Tied, indicator_updates, updates
from partirvm.core.updates import HyperState
from partirvm.kernels.design import NONE, Design
from partirvm.learning.sample import SampledRows
from partirvm.likelihoods.base import labels_of
from partirvm.likelihoods.class_passes import IndicatorLossPass, LogisticPass
from partirvm.likelihoods.gaussian import FIRST_NOISE
from partirvm.likelihoods.passes import GramPass, SlopePass
from partirvm.strategies.problem import Problem

Float = NDArray[np.float64]

FIRST_UPDATES, UPDATES = 10, 5
"""Number of updates of α and β at the first evaluation of a search, and at later evaluations (warm starts)."""

INDICATOR_VARIANCE = 0.1
"""Variance of a class indicator, to begin with: that of a class with a ninth of the rows."""


@dataclass(frozen=True)
class EvidencePoint:
    """The result of one evaluation over ``rows`` rows of positive weight.

    ``value`` is the evidence in nats, and ``slope`` (p,) its slopes in the log parameters. ``tied`` holds α and β for a
    warm start of the next evaluation, and ``weights`` (M, C) are the posterior mean. ``determined`` is the mean γ of
    the kernel columns over all outputs. ``residual`` (T,) is ‖t − Φμ‖², for classes (1,) summed over their indicators,
    and ``wrong`` is the number of misclassified rows. At a given α and β only the first three are known.
    """

    value: float
    slope: Float
    rows: int
    tied: Tied | None = None
    weights: Float = field(default_factory=lambda: np.zeros((0, 1)))
    determined: float = 0.0
    residual: Float = field(default_factory=lambda: np.zeros(1))
    wrong: int = 0


def evaluate(
    sample: SampledRows, problem: Problem, design: Design, last: EvidencePoint | None, *, fresh: bool
) -> EvidencePoint:
    """Compute evidence and slopes of a design; α and β start from the evaluation ``last``.

    With ``fresh`` α and β get the number of updates of a first evaluation. Centres that are new since ``last`` stand
    at the end of the design.
    """
    sample.drop_blocks()
    tied = first_tied(problem) if last is None or last.tied is None else last.tied
    count = FIRST_UPDATES if fresh else UPDATES
    if problem.classifies:
        statistics = _statistics(sample, design, problem.n_classes, problem.n_classes)
        tied, shared = indicator_updates(statistics, tied, count)
        beta, n_classes = float(tied.beta), problem.n_classes
        slopes = SlopePass(design, shared.mean, shared.covariance[None], beta, n_classes=n_classes)
        slope, sums = sample.run(slopes, IndicatorLossPass(design, shared.mean))
        value, mean, residual, wrong = shared.log_evidence, shared.mean, sums[:1], int(sums[1])
        gamma = shared.determinedness(tied.alphas(statistics.labels))
    else:
        statistics = _statistics(sample, design, problem.n_targets)
        target_variance = problem.target_variance if problem.target_variances is None else problem.target_variances
        fixed = None if problem.noise_variance is None else 1 / problem.noise_variance
        tied, found = updates(statistics, tied, count, NoiseBounds(target_variance, fixed))
        (slope,) = sample.run(SlopePass(design, found.means, found.covariances, tied.beta))
        value, mean, residual, wrong = found.log_evidence, found.means, np.atleast_1d(found.residual), 0
        gamma = found.determinedness
    determined = float(gamma[statistics.labels >= 0].mean())
    return EvidencePoint(value, slope, statistics.n, tied, mean, determined, residual, wrong)


def evaluate_fit(sample: SampledRows, design: Design, fit: HyperState) -> EvidencePoint:
    """Compute evidence and slopes for ``design`` at the constant α and β of ``fit``."""
    sample.drop_blocks()
    statistics = _statistics(sample, design, len(design.scaling.t_shift))
    found = any_posterior(statistics, fit.alpha, fit.beta)
    (slope,) = sample.run(SlopePass(design, found.means, found.covariances, fit.beta))
    return EvidencePoint(found.log_evidence, slope, statistics.n)


def losses(held_out: SampledRows, problem: Problem, fits: list[tuple[Design, Float]]) -> list[float]:
    """Compute the loss of each fit of classes on held-out rows, with one reading of the rows.

    A fit is a design and its weights (M, C). The loss is the sum of squared errors of the class indicators, or for two
    classes the sum of −log p of the true classes.
    """
    if fits[0][1].shape[1] == problem.n_classes:
        return [float(sums[0]) for sums in held_out.run(*(IndicatorLossPass(design, mean) for design, mean in fits))]
    name = problem.likelihood.name
    return [float(block.nll) for block in held_out.run(*(LogisticPass(design, mean, name) for design, mean in fits))]


def first_tied(problem: Problem) -> Tied:
    """Return the initial α and β of a search: the target variance as prior variance, and the usual first noise."""
    if problem.classifies:
        return Tied(1.0, 1.0, 1.0 / (FIRST_NOISE * INDICATOR_VARIANCE))
    target_variance = problem.target_variance if problem.target_variances is None else problem.target_variances
    variance = FIRST_NOISE * target_variance if problem.noise_variance is None else problem.noise_variance
    return Tied(1 / problem.target_variance, 1 / problem.target_variance, 1 / variance)


def _statistics(sample: SampledRows, design: Design, n_targets: int, n_classes: int = 0) -> GramStatistics:
    """Return the statistics of the columns of a design and their targets, which are indicators of classes if given."""
    nothing, offset = design.take(NONE, leading=NONE), np.zeros((0, n_targets))
    (block,) = sample.run(GramPass(nothing, design, offset, n_classes=n_classes))
    return GramStatistics.empty(design.basis, n_targets).extend(labels_of(design), block, design.basis)
