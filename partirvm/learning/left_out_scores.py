"""How well a kernel predicts left-out rows, in the terms of a finished fit.

An exact Gaussian process with the kernel predicts new rows from known ones. A fit adjusts its
intervals to its left-out errors, so that all variances are multiplied by one factor, and it may
correct predictions by local residuals. Indicators of classes become probabilities by the ramp with
the lowest loss.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack, solve_triangular
from scipy.special import softmax

from partirvm.core.ramp import LeftOutClasses, Ramp
from partirvm.learning.class_losses import class_indicators
from partirvm.learning.exact_process import ProcessFit, ProcessRows
from partirvm.learning.left_out_judge import NEIGHBOURS
from partirvm.learning.sample import SampledRows
from partirvm.spec.problem import Problem
from partirvm.types import Float, Int

LEVEL_ROWS = 400
"""Maximum number of rows that determine the ratio of noise and signal."""


@dataclass(frozen=True)
class LeftOutScores:
    """Predictions of left-out rows and their losses.

    Attributes:
        predictions: scaled targets (n, T), or probabilities of the classes (n, K)
        squares: weighted squared errors (n,), for classes of the indicators
        losses: minus log densities in nats, for classes of the observed class (n,)
        groups: groups of the rows (n,), or None
    """

    predictions: Float
    squares: Float
    losses: Float
    groups: Int | None


def left_out_scores(
    sample: SampledRows, problem: Problem, known: Int, new: Int, *, residuals: bool
) -> LeftOutScores:
    """Predict rows with the problem's kernel and the noise that has the most evidence.

    Args:
        sample: the sample of rows
        problem: the problem with its kernel
        known: numbers of the rows used for prediction (n,), in increasing order
        new: numbers of the left-out rows (m,), in increasing order
        residuals: whether the fit may use local residuals

    Raises ``LinAlgError`` if the covariance is not positive definite.
    """
    known_rows = ProcessRows.of(sample, problem, known)
    new_rows = ProcessRows.of(sample, problem, new)
    fit = known_rows.first(LEVEL_ROWS).with_best_noise()
    sample.check_interrupted()
    errors, variances = known_rows.moments(fit, new_rows)
    weights = 1 / new_rows.inverse
    squares = weights * (errors**2).mean(axis=1)
    groups = sample.groups_of(new)
    if problem.n_classes:
        codes = sample.rows.gather(new).t[:, 0]
        classes = LeftOutClasses(class_indicators(problem, new_rows.t - errors), codes, weights)
        ramp = classes.ramp(Ramp())
        probabilities = np.asarray(softmax(ramp.logits(classes.f), axis=1))
        losses = -weights * classes.log_probability(ramp)
        return LeftOutScores(probabilities, squares, losses, groups)
    if residuals:
        errors = errors - corrections(known_rows, new_rows, fit)
        squares = weights * (errors**2).mean(axis=1)
    losses = adjusted_losses((errors**2).sum(axis=1), variances, errors.shape[1])
    return LeftOutScores(new_rows.t - errors, squares, losses, groups)


def adjusted_losses(squares: Float, variances: Float, T: int) -> Float:
    """Return minus the log densities (n,) of T errors with variances (n,), after multiplying all
    variances by the factor with the highest density.

    Args:
        squares: sums of the T squared errors (n,)
        variances: predicted variances (n,)
        T: number of targets
    """
    ratios = squares / variances
    factor = max(float(ratios.mean()) / T, np.finfo(float).tiny)
    return np.asarray(0.5 * (T * np.log(2 * np.pi * factor * variances) + ratios / factor))


def corrections(known: ProcessRows, new: ProcessRows, fit: ProcessFit) -> Float:
    """Return corrections (m, T) of new rows by local residuals: a multiple of the mean left-out
    error of the most similar known rows, which minimises the squared errors of the known rows.

    Args:
        known: the known rows
        new: the new rows
        fit: kernel and variances
    """
    similar = fit.kernel.values(known.X, known.X)
    covariance = known.covariance(lapack.dtrttp(similar.T, uplo="L")[0], fit)
    factor = np.linalg.cholesky(covariance)
    inverse = lapack.dtrtri(factor, lower=1)[0]
    half = solve_triangular(factor, known.t, lower=True, check_finite=False)
    left_out = inverse.T @ half / (inverse**2).sum(axis=0)[:, None]
    np.fill_diagonal(similar, -np.inf)
    means = left_out[nearest(similar)].mean(axis=1)
    square = np.maximum((means**2).sum(axis=0), np.finfo(float).tiny)
    multiple = np.clip((means * left_out).sum(axis=0) / square, 0.0, 1.0)
    near = nearest(fit.kernel.values(new.X, known.X))
    return np.asarray(multiple * left_out[near].mean(axis=1))


def nearest(similar: Float) -> Int:
    """Return the positions (n, k) of the most similar rows for kernel values (n, m)."""
    return np.asarray(np.argpartition(-similar, NEIGHBOURS, axis=1)[:, :NEIGHBOURS])
