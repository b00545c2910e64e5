"""The fit of an input-dependent noise variance to left-out errors.

Errors e_n of left-out rows have variances v_n, from the uncertainty of the weights, plus a noise
variance whose logarithm is a sparse linear function of a few centres:

    e_n ~ N(0, v_n + c·exp g_n),   g = Φa,   a_m ~ N(0, 1/α_m),

with c the mean of e² − v. Each weight has its own precision, which maximises the evidence of the
Laplace approximation by MacKay's rule (Tipping 2001, eq. 16). The curvature is the Fisher
information, ½(E/V)² for a row with noise variance E and total variance V. Logarithms of squared
errors (Kersting et al. 2007) would need 2.5 times as many rows. The columns of the mean are then
refitted to weighted rows, which are left out again. Kernels compete by evidence.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack
from scipy.special import fdtrc

from partirvm.core.left_out import LeftOut
from partirvm.core.termination import Termination
from partirvm.core.updates import StepInfo
from partirvm.kernels import Categorical, Family, Gaussian, Kernel
from partirvm.kernels.design import Design, LocalNoise
from partirvm.likelihoods.base import DenseFit, OnStep
from partirvm.types import NOISE_CENTRES, Float, Int

CONSTANT = "constant"  # Values of the option `noise`; the third one is "auto"
LOCAL = "local"
FEWEST, MOST_ROWS, MOST_VALUES = 50, 8192, 1 << 20
"""Minimum and maximum number of left-out rows for local noise, and maximum number of their input
values."""

# Factors of the mean's gammas; equal gammas of all features, as multiples of "scale", 1/(features ×
# variance).
MULTIPLES = (4.0, 1.0, 0.25, 0.0625)
EQUAL = (4.0, 1.0, 0.25)
# With "auto", the p-value of the test of constant noise above which no log variance is fitted, the
# maximum number of centres in this test, and the minimum gain in log density of left-out rows, in
# standard errors.
DEPENDENT = 0.01
TESTED = 16
CLEAR = 1.0
LEAST_ALPHA, LARGEST_ALPHA = 0.3, 1e4
"""Minimum α, at which a weight of one prior standard deviation changes the log variance by ±1.8 at
most; and the α above which a column is deleted. Without the minimum, fits to a few hundred rows
predict a tenth of the error in places (concrete: NLPD 3.5; with it, 3.1)."""

STEEPEST = 30.0  # Maximum of |g|, so that exponentials stay finite
STEPS, UPDATES, TOLERANCE = 20, 100, 1e-3
"""Maximum numbers of Newton steps for each α, and of updates of α; change of objective and
evidence, in nats, at convergence."""

FOLDS = 4


@dataclass(frozen=True)
class FittedNoise:
    """A noise model; ``factors`` (n,) are the ratios of its variance at ``rows`` (n,) to that of a
    fit without the row (``LeftOut.scaled``)."""

    noise: LocalNoise
    rows: Int
    factors: Float


@dataclass(frozen=True)
class NoiseFit(DenseFit):
    """Fit of a log variance to left-out errors; ``design`` is that of the mean.

    ``points`` (n, d) are raw inputs. The result is None if constant noise is as good or, without
    ``always``, unless local noise is clearly better.
    """

    design: Design
    points: Float
    left_out: LeftOut
    always: bool

    def run(self, on_step: OnStep) -> tuple[FittedNoise | None, Termination]:
        errors, variances = self.left_out.expected()
        squares = errors**2
        rows = self.left_out.rows
        points = self.design.scaling.inputs(self.points)
        kernels = kernels_for(self.design, points)
        if not (
            squares.any()
            and kernels
            and (self.always or _depends(kernels, points, squares, variances))
        ):
            return None, Termination.CONVERGED
        centres = points[evenly(len(points), min(NOISE_CENTRES, len(points) // 4))]
        fits = []
        for number, kernel in enumerate(kernels):
            found = fit(kernel.values(points, centres), squares, variances)
            on_step(
                StepInfo(
                    number + 1,
                    int((found.weights != 0).sum()),
                    0,
                    found.log_evidence,
                    np.nan,
                    found.level,
                )
            )
            fits.append(found)
        kernel, found = max(zip(kernels, fits, strict=True), key=lambda each: each[1].log_evidence)
        block = kernel.values(points, centres)
        by_row = cross_fitted(block, squares, variances)
        row = variances + by_row
        all_rows = variances + found.level
        gains = 0.5 * (np.log(all_rows) + squares / all_rows - np.log(row) - squares / row)
        kept = found.weights != 0
        clear = gains.mean() > CLEAR * gains.std() / np.sqrt(len(gains))
        if not kept.any() or not (self.always or clear):
            return None, Termination.CONVERGED
        logs = block @ found.weights
        shift = float(np.log(np.mean(np.exp(logs))))
        noise = LocalNoise(kernel, centres[kept], found.weights[kept], shift)
        return FittedNoise(noise, rows, found.level * np.exp(logs) / by_row), Termination.CONVERGED


def noise_sample(left_out: LeftOut, n_features: int) -> LeftOut | None:
    """Return the rows for the fit of a log variance, a subset of the left-out rows; None if there
    are too few."""
    n = len(left_out.rows)
    return None if n < FEWEST else left_out.take(evenly(n, rows_of_fit(n, n_features)))


def rows_of_fit(n: int, n_features: int) -> int:
    """Return how many of ``n`` rows the log variance is fitted to."""
    return min(n, MOST_ROWS, max(MOST_VALUES // n_features, FEWEST))


def kernels_for(design: Design, points: Float) -> list[Kernel]:
    """Return the kernels that compete, given the design of the mean and points (n, d) in the
    kernel's coordinates."""
    found = [
        kernel.rescaled(multiple)
        for kernel in design.kernels[:1]
        if kernel.local
        for multiple in MULTIPLES
    ]
    if found and not (isinstance(found[0], Family) and not isinstance(found[0], Categorical)):
        return found  # equal widths are wrong for categories
    variance = points.var(axis=0)
    scale = np.divide(
        1.0, len(variance) * variance, out=np.zeros(len(variance)), where=variance > 0
    )
    return found + [
        Gaussian(tuple((multiple * scale).tolist())) for multiple in EQUAL if scale.any()
    ]


def _depends(kernels: list[Kernel], points: Float, squares: Float, variances: Float) -> bool:
    """Return whether the errors are unlikely under constant noise."""
    centres = points[evenly(len(points), min(TESTED, len(points) // 8))]
    columns = [kernels[number].values(points, centres) for number in sorted({1, len(kernels) - 2})]
    return any(
        dependence(block, squares, variances) < DEPENDENT / len(columns) for block in columns
    )


def evenly(n: int, count: int) -> Int:
    """Return at most ``count`` evenly spaced numbers below n."""
    count = min(n, count)
    return np.arange(count, dtype=np.int64) * n // max(count, 1)


@dataclass(frozen=True)
class LogVariance:
    """Weights ``a`` (M,), zero for deleted columns; ``level`` is c, ``log_evidence`` is in nats."""

    weights: Float
    level: float
    log_evidence: float


def fit(block: Float, squares: Float, variances: Float) -> LogVariance:
    """Return the log variance with the largest evidence, from basis functions (n, M) at n rows, e²
    (n,) and v (n,)."""
    level = overall_level(squares, variances)
    squares = squares / level
    variances = variances / level
    kept = np.arange(block.shape[1])
    weights = np.zeros(block.shape[1])
    alpha = np.ones(len(kept))
    evidence = -np.inf
    columns = block
    gram = _gram(columns, _likelihood(np.zeros(len(squares)), squares, variances)[2])
    for _ in range(UPDATES):
        mode, value, gram = _mode(columns, squares, variances, weights[kept], alpha, gram)
        factor = lapack.dpotrf(gram + np.diag(alpha), lower=1)[0]
        inverse = lapack.dtrtrs(factor, np.eye(len(kept)), lower=1)[0]
        determinedness = 1.0 - alpha * np.einsum("ij,ij->j", inverse, inverse)
        found = (
            value
            + 0.5 * (np.log(alpha).sum() - (alpha * mode**2).sum())
            - np.log(np.diagonal(factor)).sum()
        )
        weights[kept] = mode
        with np.errstate(divide="ignore", over="ignore"):
            alpha = np.maximum(determinedness / mode**2, LEAST_ALPHA)
        stay = alpha < LARGEST_ALPHA
        weights[kept[~stay]] = 0.0
        converged = stay.all() and abs(found - evidence) < TOLERANCE
        kept = kept[stay]
        alpha = alpha[stay]
        evidence = float(found)
        if converged or not len(kept):
            break
        if not stay.all():
            columns = columns[:, stay]
            gram = gram[np.ix_(stay, stay)]
    if not len(kept):
        evidence = float(_likelihood(np.zeros(len(squares)), squares, variances)[0])
    return LogVariance(weights, level, evidence - 0.5 * len(squares) * float(np.log(level)))


def overall_level(squares: Float, variances: Float) -> float:
    """Return c, the mean of e² − v, but at least a millionth of the mean of e²."""
    mean = float(np.mean(squares))
    return max(mean - float(np.mean(variances)), 1e-6 * mean)


def cross_fitted(block: Float, squares: Float, variances: Float) -> Float:
    """Return the noise variance of each row (n,) from a fit to the other ``FOLDS`` − 1 folds."""
    by_row = np.empty(len(squares))
    fold = np.arange(len(squares)) % FOLDS
    for number in range(FOLDS):
        rest = fold != number
        own = fold == number
        found = fit(block[rest], squares[rest], variances[rest])
        by_row[own] = found.level * np.exp(np.clip(block[own] @ found.weights, -STEEPEST, STEEPEST))
    return by_row


def dependence(block: Float, squares: Float, variances: Float) -> float:
    """Return the p-value of an F test that the log squares do not depend linearly on the columns.

    This is the test of Breusch & Pagan (1979) in the form of Koenker (1981), on logarithms because
    of heavy tails.
    """
    logs = np.log(np.maximum(squares / (variances + overall_level(squares, variances)), 1e-10))
    columns = block - block.mean(axis=0)
    logs -= logs.mean()
    coefficients, _, rank, _ = np.linalg.lstsq(columns, logs, rcond=1e-8)
    rest = float(np.sum((logs - columns @ coefficients) ** 2))
    total = float(np.sum(logs**2))
    freedom = len(block) - rank - 1
    if not rank or freedom < 1 or not rest:
        return 1.0
    return float(fdtrc(rank, freedom, (total - rest) / rank / (rest / freedom)))


def _mode(
    columns: Float, squares: Float, variances: Float, weights: Float, alpha: Float, gram: Float
) -> tuple[Float, float, Float]:
    """Return the weights' mode at this α, by Newton steps from ``weights``; log likelihood and
    ``_gram`` there."""

    def at(w: Float) -> tuple[float, tuple[float, Float, Float]]:
        g = columns @ w
        with np.errstate(over="ignore", invalid="ignore"):
            found = _likelihood(g, squares, variances)
        steep = np.abs(g).max(initial=0.0) > STEEPEST
        return -np.inf if steep else float(found[0] - 0.5 * (alpha * w**2).sum()), found

    best, (value, slope, curvature) = at(weights)
    for _ in range(STEPS):
        step = lapack.dposv(gram + np.diag(alpha), columns.T @ slope - alpha * weights)[1]
        density, found = at(weights + step)
        while density < best and np.abs(step).max() > TOLERANCE**2:
            step = step / 2
            density, found = at(weights + step)
        if density <= best:
            break
        weights = weights + step
        gain = density - best
        best = density
        (value, slope, curvature) = found
        if gain > 1.0:  # nearer to the mode, an older one will do
            gram = _gram(columns, curvature)
        if gain < TOLERANCE:
            break
    return weights, value, _gram(columns, curvature)


def _gram(columns: Float, curvature: Float) -> Float:
    """Return the likelihood's precision (M, M) of the weights; a product of one factor with itself
    halves the work."""
    root = columns * np.sqrt(curvature)[:, None]
    return np.asarray(root.T @ root)


def _likelihood(g: Float, squares: Float, variances: Float) -> tuple[float, Float, Float]:
    """Return the log likelihood without its constant, its derivative ∂/∂g (n,), and the expected
    curvature (n,)."""
    noise = np.exp(g)
    total = variances + noise
    share = noise / total
    ratio = squares / total
    return -0.5 * float(np.sum(np.log(total) + ratio)), 0.5 * share * (ratio - 1.0), 0.5 * share**2
