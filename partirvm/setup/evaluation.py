"""Evaluate a kernel on a sample: the evidence and its slopes in the kernel's log parameters.

The evidence is that of a tied RVM (``core.tied``; for classes that of their indicators, ``core.tied_indicators``), or
that of a given fit with its α and β held constant. An evaluation takes two passes: Gram and slopes. Both use the same
kernel blocks, which may be kept in memory between them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from partirvm.core import tied_indicators
from partirvm.core.posterior import AnyPosterior, any_posterior
from partirvm.core.statistics import GramStatistics
from partirvm.core.tied import NoiseBounds, Tied, updates
from partirvm.core.tied_indicators import Indicators
from partirvm.core.updates import HyperState
from partirvm.kernels.design import NONE, Design
from partirvm.likelihoods.columns import labels_of
from partirvm.likelihoods.gaussian import FIRST_NOISE
from partirvm.likelihoods.gaussian_passes import GramPass
from partirvm.likelihoods.indicator_passes import IndicatorGramPass, IndicatorLossPass, IndicatorSlopePass
from partirvm.likelihoods.laplace_passes import LogisticPass
from partirvm.likelihoods.slope_passes import SlopePass
from partirvm.setup.sample import SampledRows
from partirvm.strategies.problem import Problem

Float = NDArray[np.float64]

FIRST_UPDATES, UPDATES = 10, 5
"""Number of updates of α and β at the first evaluation of a search, and at later evaluations (warm starts)."""

INDICATOR_VARIANCE = 0.1
"""Variance of a class indicator, to begin with: that of a class with a ninth of the rows."""


@dataclass(frozen=True)
class EvidencePoint:
    """The result of one evaluation over ``rows`` rows of positive weight.

    ``value`` is the evidence in nats, and ``slope`` (p,) its slopes in the log parameters. ``weights`` (M, C) are the
    posterior mean. ``tied`` holds α and β for a warm start of the next
    evaluation. ``determined`` is the mean γ of the kernel columns over all outputs. ``residual`` (T,) is ‖t − Φμ‖²,
    for classes (1,) summed over their indicators, and ``wrong`` is the number of misclassified rows.
    """

    value: float
    slope: Float
    tied: Tied
    rows: int
    determined: float
    weights: Float
    residual: Float = field(default_factory=lambda: np.zeros(1))
    wrong: int = 0


def evaluate(
    sample: SampledRows, problem: Problem, design: Design, last: EvidencePoint | None, *, fresh: bool
) -> EvidencePoint:
    """Compute evidence and slopes of a design; α and β start from the evaluation ``last``.

    With ``fresh`` α and β get the number of updates of a first evaluation. Centres that are new since ``last`` stand
    at the end of the design.
    """
    sample.keep(design)
    if problem.classifies:
        tied, statistics, shared = _indicators(sample, problem, design, last, fresh=fresh)
        slopes, errors = IndicatorSlopePass(design, shared, float(tied.beta)), IndicatorLossPass(design, shared.mean)
        slope, sums = sample.run(slopes, errors)
        labels = statistics.labels
        determined = float(shared.determinedness(tied.alphas(labels))[labels >= 0].mean())
        value, wrong = shared.log_evidence, int(sums[1])
        return EvidencePoint(value, slope, tied, statistics.n, determined, shared.mean, residual=sums[:1], wrong=wrong)
    tied, statistics, found = _tied_fit(sample, problem, design, last, fresh=fresh)
    (slope,) = sample.run(SlopePass(design, found.means, found.covariances, tied.beta))
    determined = float(found.determinedness[statistics.labels >= 0].mean())
    residual = np.atleast_1d(found.residual)
    return EvidencePoint(found.log_evidence, slope, tied, statistics.n, determined, found.means, residual=residual)


def evaluate_fit(sample: SampledRows, design: Design, fit: HyperState) -> tuple[float, Float, int]:
    """Compute evidence, slopes and number of rows for ``design`` at the constant α and β of ``fit``."""
    sample.keep(design)
    statistics = _gram(sample, design, len(design.scaling.t_shift))
    found = any_posterior(statistics, fit.alpha, fit.beta)
    (slope,) = sample.run(SlopePass(design, found.means, found.covariances, fit.beta))
    return found.log_evidence, slope, statistics.n


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


def _gram(sample: SampledRows, design: Design, n_targets: int) -> GramStatistics:
    offset = np.zeros((0, len(design.scaling.t_shift)))
    (block,) = sample.run(GramPass(design.take(NONE, leading=NONE), design, offset))
    return GramStatistics.empty(design.basis, n_targets).extend(labels_of(design), block, design.basis)


def _tied_fit(
    sample: SampledRows, problem: Problem, design: Design, last: EvidencePoint | None, *, fresh: bool
) -> tuple[Tied, GramStatistics, AnyPosterior]:
    """Update α and β of a regression; return them with the Gram statistics and the posterior."""
    statistics = _gram(sample, design, problem.n_targets)
    target_variance, variance = (
        problem.target_variance if problem.target_variances is None else problem.target_variances,
        problem.noise_variance,
    )
    noise = NoiseBounds(target_variance, None if variance is None else 1 / variance)
    tied = first_tied(problem) if last is None else last.tied
    tied, found = updates(statistics, tied, FIRST_UPDATES if fresh else UPDATES, noise)
    return tied, statistics, found


def _indicators(
    sample: SampledRows, problem: Problem, design: Design, last: EvidencePoint | None, *, fresh: bool
) -> tuple[Tied, GramStatistics, Indicators]:
    """Update α and β of the class indicators; return them with the Gram statistics and the posterior."""
    (block,) = sample.run(IndicatorGramPass(design, problem.n_classes))
    empty = GramStatistics.empty(design.basis, problem.n_classes)
    statistics = empty.extend(labels_of(design), block, design.basis)
    tied = first_tied(problem) if last is None else last.tied
    tied, found = tied_indicators.updates(statistics, tied, FIRST_UPDATES if fresh else UPDATES)
    return tied, statistics, found
