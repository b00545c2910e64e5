"""Fits of an input-dependent noise variance to left-out errors.

The variance of a left-out row's error e_n is v_n, due to the uncertainty of the weights, plus a
noise variance whose logarithm is a sparse linear function of kernels at a few centres:

    e_n ~ N(0, v_n + c·exp g_n),   g = Φa,   a_m ~ N(0, 1/α_m),

with c the mean of e² − v. Each weight has a separate precision, which maximises the evidence of the
Laplace approximation by MacKay's rule (Tipping 2001, eq. 16). The curvature is the Fisher
information, ½(E/V)² for a row with noise variance E and total variance V. Logarithms of squared
errors (Kersting et al. 2007) would need 2.5 times as many rows. The columns of the mean are then
refitted to weighted rows, and left-out errors are computed again. Kernels are chosen by evidence.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack
from scipy.special import fdtrc

from partirvm.core.left_out import LeftOut
from partirvm.core.termination import Termination
from partirvm.core.updates import StepInfo
from partirvm.kernels import Categorical, Family, Gaussian, Kernel
from partirvm.kernels.design import Design, LocalNoise
from partirvm.spec.problem import DenseFit, OnStep
from partirvm.types import NOISE_CENTRES, Float, Int

CONSTANT = "constant"
"""Value of the option `noise`: one noise variance for all rows."""

LOCAL = "local"
"""Value of the option `noise`: a variance that depends on the inputs. The third value is "auto"."""

FEWEST = 50
"""Minimum number of left-out rows for local noise."""

MOST_ROWS = 8192
"""Maximum number of left-out rows for local noise."""

MOST_VALUES = 1 << 20
"""Maximum number of these rows' input values."""

MULTIPLES = (4.0, 1.0, 0.25, 0.0625)
"""Factors applied to the mean's gammas."""

EQUAL = (4.0, 1.0, 0.25)
"""Equal gammas of all features, as multiples of "scale", 1/(features × variance)."""

DEPENDENT = 0.01
"""With "auto", the p-value in the test for constant noise above which no log variance is fitted."""

TESTED = 16
"""Maximum number of centres in this test."""

CLEAR = 1.0
"""With "auto", the minimum gain in the log density of left-out rows, in standard errors."""

LEAST_ALPHA = 0.3
"""Minimum α, at which a weight of one prior standard deviation changes the log variance by at most
±1.8. Without this limit, fits to a few hundred rows predict a tenth of the error in places
(concrete: NLPD 3.5; with the limit, 3.1)."""

LARGEST_ALPHA = 1e4
"""The α above which a column is deleted."""

STEEPEST = 30.0
"""Maximum of |g|, so that exponentials remain finite."""

STEPS = 20
"""Maximum number of Newton steps for each α."""

UPDATES = 100
"""Maximum number of updates of α."""

TOLERANCE = 1e-3
"""Change in the objective and in the evidence, in nats, at convergence."""

FOLDS = 4
"""Number of folds by which local and constant noise are compared."""


@dataclass(frozen=True)
class FittedNoise:
    """A noise model and its variances at the left-out rows.

    Attributes:
        noise: the model
        rows: the left-out row numbers (n,)
        factors: the noise variance at each row ÷ its value from a fit without the row, as in
            ``LeftOut.scaled`` (n,)
    """

    noise: LocalNoise
    rows: Int
    factors: Float


@dataclass(frozen=True)
class NoiseFit(DenseFit):
    """A fit of a log variance to left-out errors.

    The result is None if constant noise is as good or, without ``always``, unless local noise is
    clearly better.

    Attributes:
        design: the design of the mean
        points: raw inputs (n, d)
        left_out: the left-out errors at these points
        always: True if local noise was requested
    """

    design: Design
    points: Float
    left_out: LeftOut
    always: bool

    def run(self, on_step: OnStep) -> tuple[FittedNoise | None, Termination]:
        return self._fitted(on_step), Termination.CONVERGED

    def _fitted(self, on_step: OnStep) -> FittedNoise | None:
        """Return the noise model, or None."""
        errors, variances = self.left_out.expected()
        squares = errors**2
        points = self.design.scaling.inputs(self.points)
        kernels = kernels_for(self.design, points)
        if not squares.any() or not kernels:
            return None
        if not (self.always or _depends(kernels, points, squares, variances)):
            return None
        centres = points[evenly(len(points), min(NOISE_CENTRES, len(points) // 4))]
        blocks = (kernel.values(points, centres) for kernel in kernels)
        number, fitted = _best_fit(blocks, squares, variances, on_step)
        block = kernels[number].values(points, centres)
        by_row = cross_fitted(block, squares, variances)
        used = fitted.weights != 0
        if not used.any():
            return None
        if not (self.always or _clearly_better(by_row, fitted.level, squares, variances)):
            return None
        ratios = np.exp(block @ fitted.weights)
        noise = LocalNoise(
            kernels[number], centres[used], fitted.weights[used], float(np.log(np.mean(ratios)))
        )
        return FittedNoise(noise, self.left_out.rows, fitted.level * ratios / by_row)


def _best_fit(
    blocks: Iterable[Float], squares: Float, variances: Float, on_step: OnStep
) -> tuple[int, "LogVariance"]:
    """Return the number of the block with the largest evidence, and its fit.

    Args:
        blocks: alternative blocks of basis functions, (n, M) each
        squares: e² (n,)
        variances: v (n,)
        on_step: called after each fit
    """
    fits = []
    for number, block in enumerate(blocks):
        fitted = fit(block, squares, variances)
        vectors = int((fitted.weights != 0).sum())
        on_step(StepInfo(number + 1, vectors, 0, fitted.log_evidence, np.nan, fitted.level))
        fits.append((number, fitted))
    return max(fits, key=lambda pair: pair[1].log_evidence)


def _clearly_better(by_row: Float, level: float, squares: Float, variances: Float) -> bool:
    """Return True if local noise raises the log density of left-out rows by ``CLEAR`` standard
    errors.

    Args:
        by_row: local noise variance at each row, from fits without the row (n,)
        level: constant noise variance
        squares: e² (n,)
        variances: v (n,)
    """
    local = variances + by_row
    constant = variances + level
    gains = 0.5 * (np.log(constant) + squares / constant - np.log(local) - squares / local)
    return bool(gains.mean() > CLEAR * gains.std() / np.sqrt(len(gains)))


def noise_sample(left_out: LeftOut, n_features: int) -> LeftOut | None:
    """Return the subset of the left-out rows to which a log variance is fitted; None if there are
    too few."""
    n = len(left_out.rows)
    return None if n < FEWEST else left_out.take(evenly(n, rows_of_fit(n, n_features)))


def rows_of_fit(n: int, n_features: int) -> int:
    """Return to how many of ``n`` rows the log variance is fitted."""
    return min(n, MOST_ROWS, max(MOST_VALUES // n_features, FEWEST))


def kernels_for(design: Design, points: Float) -> list[Kernel]:
    """Return the candidate kernels, given the design of the mean and points (n, d) in the kernel's
    coordinates."""
    kernels: list[Kernel] = []
    first = design.kernels[0] if design.kernels else None
    if first is not None and first.local:
        kernels += [first.rescaled(multiple) for multiple in MULTIPLES]
        if not isinstance(kernels[0], Family) or isinstance(kernels[0], Categorical):
            return kernels  # equal widths do not suit categories
    variance = points.var(axis=0)
    scale = np.zeros(len(variance))
    np.divide(1.0, len(variance) * variance, out=scale, where=variance > 0)
    if scale.any():
        kernels += [Gaussian(tuple((multiple * scale).tolist())) for multiple in EQUAL]
    return kernels


def _depends(kernels: list[Kernel], points: Float, squares: Float, variances: Float) -> bool:
    """Return True if the errors are unlikely under constant noise.

    Args:
        kernels: the candidate kernels; one of each kind is tested
        points: inputs in the kernels' coordinates (n, d)
        squares: e² (n,)
        variances: v (n,)
    """
    centres = points[evenly(len(points), min(TESTED, len(points) // 8))]
    numbers = sorted({1, len(kernels) - 2})
    blocks = [kernels[number].values(points, centres) for number in numbers]
    level = DEPENDENT / len(blocks)
    return any(dependence(block, squares, variances) < level for block in blocks)


def evenly(n: int, count: int) -> Int:
    """Return at most ``count`` evenly spaced integers below n."""
    count = min(n, count)
    return np.arange(count, dtype=np.int64) * n // max(count, 1)


@dataclass(frozen=True)
class LogVariance:
    """A log variance g = Φa.

    Attributes:
        weights: a (M,), 0 for deleted columns
        level: c
        log_evidence: the log evidence in nats
    """

    weights: Float
    level: float
    log_evidence: float


def fit(block: Float, squares: Float, variances: Float) -> LogVariance:
    """Return the log variance with the largest evidence, from basis functions (n, M) at n rows, e²
    (n,) and v (n,)."""
    level = overall_level(squares, variances)
    squares = squares / level
    variances = variances / level
    constant = _likelihood(np.zeros(len(squares)), squares, variances)
    weights = np.zeros(block.shape[1])
    remaining = np.arange(block.shape[1])
    columns = block
    alpha = np.ones(len(remaining))
    gram = _gram(columns, constant.curvature)
    evidence = -np.inf
    for _ in range(UPDATES):
        before = evidence
        mode, value, gram = _mode(columns, squares, variances, weights[remaining], alpha, gram)
        evidence, alpha = _evidence(mode, value, alpha, gram)
        weights[remaining] = mode
        finite = alpha < LARGEST_ALPHA
        if not finite.all():
            weights[remaining[~finite]] = 0.0
            remaining = remaining[finite]
            columns = columns[:, finite]
            alpha = alpha[finite]
            gram = gram[np.ix_(finite, finite)]
        elif abs(evidence - before) < TOLERANCE:
            break
        if not len(remaining):
            evidence = constant.value
            break
    return LogVariance(weights, level, evidence - 0.5 * len(squares) * float(np.log(level)))


def _evidence(mode: Float, value: float, alpha: Float, gram: Float) -> tuple[float, Float]:
    """Return the log evidence of the Laplace approximation, and the next α (M,).

    Args:
        mode: mode of the weights (M,)
        value: log likelihood at the mode
        alpha: α (M,)
        gram: the likelihood's precision of the weights at the mode (M, M)
    """
    factor = lapack.dpotrf(gram + np.diag(alpha), lower=1)[0]
    inverse = lapack.dtrtrs(factor, np.eye(len(mode)), lower=1)[0]
    prior = 0.5 * (np.log(alpha).sum() - (alpha * mode**2).sum())
    evidence = value + prior - np.log(np.diagonal(factor)).sum()
    determinedness = 1.0 - alpha * np.einsum("ij,ij->j", inverse, inverse)
    with np.errstate(divide="ignore", over="ignore"):
        return float(evidence), np.maximum(determinedness / mode**2, LEAST_ALPHA)


def overall_level(squares: Float, variances: Float) -> float:
    """Return c, the mean of e² − v, bounded below by a millionth of the mean of e²."""
    mean = float(np.mean(squares))
    return max(mean - float(np.mean(variances)), 1e-6 * mean)


def cross_fitted(block: Float, squares: Float, variances: Float) -> Float:
    """Return the noise variance at each row (n,) from a fit to the other ``FOLDS`` − 1 folds."""
    by_row = np.empty(len(squares))
    fold = np.arange(len(squares)) % FOLDS
    for number in range(FOLDS):
        inside = fold == number
        outside = ~inside
        fitted = fit(block[outside], squares[outside], variances[outside])
        logs = np.clip(block[inside] @ fitted.weights, -STEEPEST, STEEPEST)
        by_row[inside] = fitted.level * np.exp(logs)
    return by_row


def dependence(block: Float, squares: Float, variances: Float) -> float:
    """Return the p-value of an F test of the hypothesis that the log squares do not depend linearly
    on the columns.

    This is the test of Breusch & Pagan (1979) in the form of Koenker (1981), applied to logarithms
    because of heavy tails.
    """
    logs = np.log(np.maximum(squares / (variances + overall_level(squares, variances)), 1e-10))
    logs -= logs.mean()
    columns = block - block.mean(axis=0)
    coefficients, _, rank, _ = np.linalg.lstsq(columns, logs, rcond=1e-8)
    unexplained = float(np.sum((logs - columns @ coefficients) ** 2))
    total = float(np.sum(logs**2))
    freedom = len(block) - rank - 1
    if not rank or freedom < 1 or not unexplained:
        return 1.0
    ratio = (total - unexplained) / rank / (unexplained / freedom)
    return float(fdtrc(rank, freedom, ratio))


class LogLikelihood(NamedTuple):
    """The log likelihood of log variances g.

    Attributes:
        value: the log likelihood in nats, up to a constant
        slope: the derivative with respect to g (n,)
        curvature: the expected curvature (n,)
    """

    value: float
    slope: Float
    curvature: Float


def _mode(
    columns: Float, squares: Float, variances: Float, weights: Float, alpha: Float, gram: Float
) -> tuple[Float, float, Float]:
    """Return the weights' mode at this α, found by Newton steps, and the log likelihood and
    ``_gram`` at the mode.

    Args:
        columns: basis functions (n, M)
        squares: e² (n,)
        variances: v (n,)
        weights: initial weights (M,)
        alpha: α (M,)
        gram: the likelihood's precision of the weights near the initial weights (M, M)
    """

    def at(w: Float) -> tuple[float, LogLikelihood]:
        g = columns @ w
        with np.errstate(over="ignore", invalid="ignore"):
            point = _likelihood(g, squares, variances)
        if np.abs(g).max(initial=0.0) > STEEPEST:
            return -np.inf, point
        return float(point.value - 0.5 * (alpha * w**2).sum()), point

    best, likelihood = at(weights)
    for _ in range(STEPS):
        slope = columns.T @ likelihood.slope - alpha * weights
        step = lapack.dposv(gram + np.diag(alpha), slope)[1]
        density, trial = at(weights + step)
        while density < best and np.abs(step).max() > TOLERANCE**2:
            step = step / 2
            density, trial = at(weights + step)
        if density <= best:
            break
        gain = density - best
        best = density
        weights = weights + step
        likelihood = trial
        if gain > 1.0:  # nearer to the mode, an older ``gram`` suffices
            gram = _gram(columns, likelihood.curvature)
        if gain < TOLERANCE:
            break
    return weights, likelihood.value, _gram(columns, likelihood.curvature)


def _gram(columns: Float, curvature: Float) -> Float:
    """Return the likelihood's precision (M, M) of the weights; a symmetric product takes half the
    work."""
    root = columns * np.sqrt(curvature)[:, None]
    return np.asarray(root.T @ root)


def _likelihood(g: Float, squares: Float, variances: Float) -> LogLikelihood:
    """Return the log likelihood of g (n,), given e² (n,) and v (n,)."""
    noise = np.exp(g)
    total = variances + noise
    share = noise / total
    ratio = squares / total
    value = -0.5 * float(np.sum(np.log(total) + ratio))
    return LogLikelihood(value, 0.5 * share * (ratio - 1.0), 0.5 * share**2)
