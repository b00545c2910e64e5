"""An exact Gaussian process on a few hundred rows, and the maximisation of its evidence over the
kernel parameters.

    L = −½ Σ_t [ tᵀK⁻¹t + log|K| + n log 2π ],    ∂L/∂K = ½ (AAᵀ − T K⁻¹),    A = K⁻¹t

for T targets t (n,) of mean 0 that share the covariance K (n, n) (Rasmussen & Williams 2006,
*Gaussian Processes for Machine Learning*, eqs. 5.8 and 5.9). All rows are centres. One evaluation
requires one Cholesky factor and its inverse: .3 ms for 100 rows and 8 features, 3.5 ms for 400, 26
ms for 900.

The covariance is s² k(X, X) + σ² W⁻¹ + Σ_l v φ_l φ_lᵀ, with signal variance s², noise variance σ²,
row weights W, and a large prior variance v for the weight of each leading column φ_l. Two weak
priors are added, since the evidence overfits with many widths and few rows: a half-normal prior on
each log parameter above its value at half of gamma="scale", and one on log σ² below a tenth of the
target variance.

If the rows of a regression have groups, the rows of a group share an effect, which is linear in the
d inputs: an intercept with variance τ², and d slopes whose variances sum to υ² (random effects,
Laird & Ware 1982, "Random-effects models for longitudinal data"). Without it, narrow widths of
features that tell groups apart, such as coordinates of stations, would explain these effects, and
predictions for new groups would be those of the mean.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy.linalg import blas, lapack, solve_triangular

from partirvm.core.ascent import Pairs, ascend
from partirvm.core.updates import NOISE_FLOOR
from partirvm.kernels import Anova, Directions, Kernel
from partirvm.kernels.anova_values import AnovaTriangle
from partirvm.kernels.design import NONE
from partirvm.kernels.radial import RadialKernel, RadialTriangle
from partirvm.learning.sample import SampledRows
from partirvm.process import in_threads, unlocked
from partirvm.spec.problem import Problem
from partirvm.types import Bool, Float, Int

NARROW_SD = 2.0
"""Prior standard deviation of a log parameter above its value at half of gamma="scale"; the prior
is flat below."""

NOISE_SHARE = 0.1
"""Noise variance ÷ target variance below which the prior falls."""

NOISE_SD = 2.0
"""Prior standard deviation of the log noise variance below this level."""

LEADING = 100.0
"""Prior variance of a leading column with mean square 1, relative to the target variance."""

NOISE_RATIOS = np.log(10.0) * np.arange(-4.0, 4.0, 0.5)
"""Logarithms of noise ÷ signal variance that are tried for a given kernel."""

FIRST_EFFECT = 0.1
"""Initial variance of intercepts of groups ÷ target variance, and of their slopes."""

LEAST_EFFECT = -14.0
"""Minimum of the logarithm of these variances ÷ target variance."""

TIED_SHARES = 10.0 ** np.arange(-6, 3)
"""Weight precisions tried for a tied RVM, relative to the mean eigenvalue of its Gram matrix."""


def process_evidence(covariance: Float, targets: Float) -> tuple[float, Float] | None:
    """Return the evidence of targets (n, T) and its derivative with respect to the covariance; None
    if the covariance is not positive definite.

    Only the lower triangle of the covariance (in Fortran order) is read, and the array is
    overwritten. The derivative is returned as the columns of its lower triangle, folded: elements
    below the diagonal are doubled.
    """
    (n, T) = targets.shape
    factor = covariance
    info = np.zeros(1, dtype=np.intc)
    unlocked("dpotrf", "L", n, factor, n, info)
    if info[0]:
        return None
    weights = lapack.dpotrs(factor, targets, lower=1)[0]
    log_determinant = 2.0 * float(np.log(factor.diagonal()).sum())
    value = -0.5 * (
        float(np.vdot(targets, weights)) + T * (log_determinant + n * np.log(2 * np.pi))
    )
    unlocked("dpotri", "L", n, factor, n, info)
    slopes = blas.dsyrk(1.0, weights, beta=-float(T), c=factor, lower=1, overwrite_c=1)
    slopes.T.flat[:: n + 1] *= 0.5
    return value, lapack.dtrttp(slopes, uplo="L")[0]


class AnyTriangle:
    """Values of a kernel between n points (n, d), as in a ``RadialTriangle``."""

    def __init__(self, kernel: Kernel, points: Float) -> None:
        self.prepared, self.points, self.whole = (
            kernel.prepare(points),
            points,
            kernel.values(points, points),
        )
        self.values: Float = lapack.dtrttp(self.whole, uplo="L")[0]

    def gradient(self, weights: Float) -> Float:
        """Return Σ weights ∂k/∂ log parameter for weights in the form of ``values``."""
        return self.prepared.gradient(
            self.points, self.whole, lapack.dtpttr(len(self.points), weights, uplo="L")[0]
        )


def triangle(kernel: Kernel, points: Float) -> AnyTriangle | AnovaTriangle | RadialTriangle:
    """Return the values of the kernel between all points."""
    if isinstance(kernel, Anova):
        return AnovaTriangle(kernel, points)
    if isinstance(kernel, Directions) and not kernel.free:
        return RadialTriangle(kernel.kernel, points @ kernel.matrix.T)
    return (
        RadialTriangle(kernel, points)
        if isinstance(kernel, RadialKernel)
        else AnyTriangle(kernel, points)
    )


def is_share(name: str) -> bool:
    """Return True if a parameter of a kernel is a share of an ANOVA kernel."""
    return "shares" in name


@dataclass(frozen=True)
class ProcessFit:
    """A kernel with log s², log σ² and, for rows in groups, log τ² and log υ² in ``effects``, its
    log posterior in nats (−∞ if unknown), and the number of evaluations so far.

    Without ``effects``, groups have none. ``pairs`` hold the curvature measured by the search; a
    later search over the same parameters starts from it.
    """

    kernel: Kernel
    signal: float
    noise: float
    value: float = -np.inf
    evaluations: int = 0
    pairs: Pairs = field(default_factory=list, repr=False, compare=False)
    effects: tuple[float, ...] = ()


@dataclass(frozen=True)
class ProcessRows:
    """The rows of a process: scaled inputs (n, d) and targets (n, T), and the terms that their
    covariance requires.

    ``inverse`` (n,) is 1 ÷ row weight. ``columns`` (n, L) are the leading columns times their prior
    standard deviations, ``scales`` (L,). ``groups`` (n,) are the rows' groups, if they have any.
    """

    sample: SampledRows
    problem: Problem
    X: Float
    t: Float
    inverse: Float
    columns: Float
    scales: Float
    groups: Int | None = None

    @classmethod
    def of(cls, sample: SampledRows, problem: Problem, numbers: Int) -> "ProcessRows":
        """Take the rows with these numbers, which have positive weights, from a sample."""
        rows = sample.rows.gather(np.sort(numbers))
        scaling = problem.empty.scaling
        columns = problem.empty.take(NONE, leading=problem.leading).block(rows.X)
        square = (columns**2).mean(axis=0)
        square = np.where(square > np.finfo(float).tiny, square, 1.0)  # zero in these rows
        scales = np.sqrt(LEADING * problem.target_variance / square)
        inverse = scaling.noise_factor(rows.X)
        if rows.weights is not None:
            inverse = inverse / rows.weights
        targets = problem.likelihood.working.of_process(problem, rows.t)
        X = scaling.inputs(rows.X)
        groups = rows.groups if problem.group_effects else None
        return cls(sample, problem, X, targets, inverse, columns * scales, scales, groups)

    @property
    def n_features(self) -> int:
        """The number of inputs that are features, which come first."""
        return self.problem.empty.scaling.n_features

    @property
    def n_effects(self) -> int:
        """The number of variances of groups' effects."""
        return 0 if self.groups is None else 2

    def first(self, count: int) -> "ProcessRows":
        """Return the first rows, at most ``count``."""
        return self.part(slice(0, count))

    def part(self, places: slice | Bool) -> "ProcessRows":
        """Return some of the rows."""
        return replace(
            self,
            X=self.X[places],
            t=self.t[places],
            inverse=self.inverse[places],
            columns=self.columns[places],
            groups=None if self.groups is None else self.groups[places],
        )

    @cached_property
    def _of_columns(self) -> Float:
        return np.asarray(lapack.dtrttp((self.columns @ self.columns.T).T, uplo="L")[0])

    def shared(self, new: "ProcessRows") -> tuple[Float, ...]:
        """Return the covariances (m, n) of the effects at new rows and at these, for τ² = 1 and for
        υ² = 1; none for rows without groups."""
        if self.groups is None or new.groups is None:
            return ()
        is_shared = new.groups[:, None] == self.groups
        d = self.n_features
        products = new.X[:, :d] @ self.X[:, :d].T / d
        return is_shared.astype(np.float64), np.where(is_shared, products, 0.0)

    @cached_property
    def _of_groups(self) -> tuple[Float, ...]:
        return tuple(lapack.dtrttp(part, uplo="L")[0] for part in self.shared(self))

    def covariance(self, values: Float, fit: ProcessFit) -> Float:
        """Return the lower triangle of the covariance (n, n) for kernel values and the variances of
        ``fit``."""
        n = len(self.X)
        packed = np.exp(fit.signal) * values + self._of_columns
        for effect, part in zip(fit.effects, self._of_groups, strict=False):
            packed += np.exp(effect) * part
        covariance: Float = lapack.dtpttr(n, packed, uplo="L")[0]
        covariance.T.flat[:: n + 1] += self.noise_of(fit) * self.inverse
        return covariance

    def noise_of(self, fit: ProcessFit) -> float:
        """Return the noise variance: the given value or, without one, the value of ``fit``."""
        noise_variance = self.problem.noise_variance
        return float(np.exp(fit.noise) if noise_variance is None else np.mean(noise_variance))

    def evaluate(self, fit: ProcessFit) -> tuple[float, Float] | None:
        """Return the evidence and its slopes in the log parameters (p,), the effects of groups, log
        s² and log σ²; None if the covariance is not positive definite."""
        kernel = triangle(fit.kernel, self.X)
        evidence = process_evidence(self.covariance(kernel.values, fit), self.t)
        if evidence is None:
            return None
        (value, slopes) = evidence
        signal = np.exp(fit.signal)
        n = len(self.X)
        diagonal = slopes[np.arange(n) * (2 * n + 1 - np.arange(n)) // 2]
        of_noise = (
            0.0
            if self.problem.noise_variance is not None
            else np.exp(fit.noise) * (diagonal @ self.inverse)
        )
        of_effects = [
            np.exp(effect) * (slopes @ part)
            for effect, part in zip(fit.effects, self._of_groups, strict=False)
        ]
        of_signal = signal * (slopes @ kernel.values)
        return value, np.concatenate(
            [signal * kernel.gradient(slopes), of_effects, [of_signal, of_noise]]
        )

    def profile(self, fit: ProcessFit) -> tuple[float, float]:
        """Return the evidence, up to constants, after multiplying all variances by the best factor
        c, and log c.

        With K = cK₁, the evidence is −½ T [n log(Σ_t tᵀK₁⁻¹t) + log|K₁|], and c = Σ_t tᵀK₁⁻¹t/(nT);
        the result is −∞ and 0 if K₁ is not positive definite.
        """
        covariance = self.covariance(triangle(fit.kernel, self.X).values, fit)
        factor, weights, failed = lapack.dposv(covariance, self.t, lower=1, overwrite_a=1)
        if failed:
            return -np.inf, 0.0
        (n, T) = self.t.shape
        square = float(np.vdot(self.t, weights))
        value = -0.5 * T * (n * np.log(square) + 2 * float(np.log(factor.diagonal()).sum()))
        return value, float(np.log(square / (n * T)))

    def levelled(self, fit: ProcessFit) -> ProcessFit:
        """Return the fit with both variances multiplied by the best factor, unless the noise
        variance is given."""
        more = 0.0 if self.problem.noise_variance is not None else self.profile(fit)[1]
        effects = tuple(effect + more for effect in fit.effects)
        return replace(fit, signal=fit.signal + more, noise=fit.noise + more, effects=effects)

    def log_prior(self, theta: Float, shares: Bool | bool = False) -> tuple[float, Float]:
        """Return the log prior, up to constants, of log parameters, log s² and log σ² (p + 2,), and
        its slopes.

        The prior of the parameters that ``shares`` (p + 2,) marks is flat. An ANOVA kernel compares
        each feature on its own, so that widths are √d times narrower.
        """
        parameters = self.problem.empty.kernel.learnable()
        logs = np.array([log for name, log in parameters.items() if not is_share(name)])
        middle = np.full(len(theta), logs[np.isfinite(logs)].mean() - np.log(2.0))
        if np.any(shares) and not any(map(is_share, parameters)):
            middle += np.log(self.X.shape[1])
        middle[-1] = np.log(NOISE_SHARE * self.problem.target_variance)
        move = np.where(shares, 0.0, np.maximum(theta - middle, 0.0) / NARROW_SD**2)
        move[-2:] = 0.0, min(theta[-1] - middle[-1], 0.0) / NOISE_SD**2
        return -0.5 * float(move @ (theta - middle)), -move

    def outer_product(self, fit: ProcessFit) -> Float:
        """Return Σ_n ∇f(x_n)∇f(x_n)ᵀ (d, d) for the process mean f, summed over the targets."""
        prepared = fit.kernel.prepare(self.X)
        values = fit.kernel.values(self.X, self.X)
        covariance = self.covariance(lapack.dtrttp(values, uplo="L")[0], fit)
        d = self.X.shape[1]
        _, found, failed = lapack.dposv(covariance, self.t, lower=1, overwrite_a=1)
        total = np.zeros((d, d))
        for weights in () if failed else found.T:
            slope = prepared.input_gradient(self.X, values, np.broadcast_to(weights, values.shape))
            total += slope.T @ slope
        return total

    def columns_of(self, new: "ProcessRows") -> Float:
        """Return the leading columns (m, L) of new rows times the prior standard deviations of
        these rows, which depend on their mean squares."""
        return new.columns * (self.scales / new.scales)

    def whitened(self, fit: ProcessFit, new: "ProcessRows") -> tuple[Float, Float]:
        """Return the factor L (n, n) of the covariance, LLᵀ, and the covariances (m, n) of new rows
        times L⁻ᵀ.

        Raises ``LinAlgError`` if the covariance is not positive definite.
        """
        cross = np.exp(fit.signal) * fit.kernel.values(new.X, self.X)
        cross += self.columns_of(new) @ self.columns.T
        for effect, part in zip(fit.effects, self.shared(new), strict=False):
            cross += np.exp(effect) * part
        covariance = self.covariance(triangle(fit.kernel, self.X).values, fit)
        factor = np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
        return factor, solve_triangular(factor, cross.T, lower=True, check_finite=False).T

    def with_best_noise(self) -> ProcessFit:
        """Return the problem's kernel with the variances of signal and noise that have the most
        evidence."""
        problem = self.problem
        level = float(np.log(problem.target_variance))
        fits = [ProcessFit(problem.empty.kernel, level, level + ratio) for ratio in NOISE_RATIOS]
        profiles = in_threads(self.profile, fits)
        best = int(np.argmax([value for value, _ in profiles]))
        factor = 0.0 if problem.noise_variance is not None else profiles[best][1]
        fit = fits[best]
        return replace(fit, signal=fit.signal + factor, noise=fit.noise + factor)

    def predicted(self, fit: ProcessFit, new: "ProcessRows") -> tuple[Float, Float]:
        """Return the errors (m, T) and the log densities (m,), including noise, at new rows."""
        errors, variance = self.moments(fit, new)
        normal = np.log(2 * np.pi * variance)
        return errors, -0.5 * (errors.shape[1] * normal + (errors**2).sum(axis=1) / variance)

    def moments(self, fit: ProcessFit, new: "ProcessRows") -> tuple[Float, Float]:
        """Return the errors (m, T) and the variances (m,), including noise, at new rows (ibid. eqs.
        2.23 and 2.24)."""
        variance = np.exp(fit.signal) * fit.kernel.diagonal(new.X)
        variance += (self.columns_of(new) ** 2).sum(axis=1)
        variance += self.noise_of(fit) * new.inverse
        features = new.X[:, : self.n_features]
        squares = np.ones(len(features)), (features**2).mean(axis=1)
        for effect, square in zip(fit.effects, squares, strict=False):
            variance += np.exp(effect) * square
        factor, white = self.whitened(fit, new)
        errors = new.t - white @ solve_triangular(factor, self.t, lower=True, check_finite=False)
        return errors, variance - (white.T**2).sum(axis=0)


@dataclass
class ProcessSearch:
    """The log posterior of a process as a function of the kernel's log parameters, log s² and log
    σ².

    Attributes:
        rows: the rows of the process.
        start: the fit from which the search starts.
        best: the fit with the highest log posterior so far.
    """

    rows: ProcessRows
    start: ProcessFit
    best: ProcessFit

    def per_row(self, theta: Float) -> tuple[float, Float]:
        """Return the log posterior at ``theta``, ordered as the slopes of ``evaluate``, in nats per
        row, and its slopes."""
        self.rows.sample.check_interrupted()
        self.rows.sample.on_step("")
        p = len(self.start.kernel.logs)
        kernel = self.start.kernel.with_logs(theta[:p])
        effects = tuple(theta[p:-2].tolist())
        fit = ProcessFit(kernel, float(theta[-2]), float(theta[-1]), effects=effects)
        evaluated = self.rows.evaluate(fit)
        if evaluated is None:
            return -np.inf, np.zeros(len(theta))  # makes the next step smaller
        evidence, slopes = evaluated
        free = np.zeros(len(theta), dtype=bool)  # effects have a flat prior
        free[:p] = np.isfinite(self.start.kernel.logs)
        free[-2:] = True
        shares = np.zeros(len(theta), dtype=bool)
        shares[:p] = [*map(is_share, self.start.kernel.parameters)]
        log_prior, rise = self.rows.log_prior(theta[free], shares[free])
        slopes[free] += rise
        value = evidence + log_prior
        if value > self.best.value:
            self.best = replace(fit, value=value)
        n = len(self.rows.X)
        return value / n, slopes / n

    def per_row_together(self, theta: Float) -> tuple[float, Float]:
        """Return the log posterior and its slopes in a number added to all log parameters, and in
        the logs of the variances."""
        logs = self.start.kernel.logs + theta[0]
        value, slopes = self.per_row(np.append(logs, theta[1:]))
        p = len(logs)
        return value, np.append(slopes[:p].sum(), slopes[p:])


def climb(
    rows: ProcessRows, start: ProcessFit, steps: int, *, together: bool = False
) -> ProcessFit:
    """Raise the log posterior by L-BFGS steps; parameters of 0 (log −∞) remain 0.

    Args:
        rows: the rows of the process
        start: the fit from which the search starts, with previously measured curvature
        steps: maximum number of steps
        together: whether to search over a single number added to all log parameters of the kernel
    """
    logs = start.kernel.logs
    level = np.log(rows.problem.target_variance)
    widths = np.zeros(1) if together else logs
    if not start.effects:
        start = replace(start, effects=(level + float(np.log(FIRST_EFFECT)),) * rows.n_effects)
    effects = start.effects
    lowest = [level + LEAST_EFFECT] * len(effects)
    highest = [level + np.log(2.0)] * len(effects)
    search = ProcessSearch(rows, start, replace(start, value=-np.inf))
    pairs = [] if together else list(start.pairs)
    _, evaluations = ascend(
        search.per_row_together if together else search.per_row,
        np.concatenate([widths, effects, [start.signal, start.noise]]),
        np.concatenate([widths + np.log(1e-6), lowest, [level - 7.0, level + np.log(NOISE_FLOOR)]]),
        np.concatenate([widths + np.log(1e3), highest, [level + 7.0, level + np.log(2.0)]]),
        most=steps + 1,
        pairs=pairs,
    )
    curvature = [] if together else pairs
    return replace(search.best, evaluations=start.evaluations + evaluations, pairs=curvature)


def from_starts(
    rows: ProcessRows, starts: Sequence[Float], noise: float, steps: int, count: int
) -> list[ProcessFit]:
    """Return the best fits, at most ``count``, after a few steps from each start; repeated optima
    count once.

    rows : a small number of rows, so that each start is cheap
    starts : log parameters (p,) of the problem's kernel
    noise : initial noise variance ÷ target variance
    steps : maximum number of steps from each start
    count : maximum number of fits
    """
    kernel = rows.problem.empty.kernel
    level = np.log(rows.problem.target_variance)
    levelled = [
        rows.levelled(ProcessFit(kernel.with_logs(start), level, level + np.log(noise)))
        for start in starts
    ]
    climbed: list[ProcessFit] = in_threads(lambda fit: climb(rows, fit, steps), levelled)
    distinct = {float(np.round(fit.value)): fit for fit in climbed}
    return [distinct[value] for value in sorted(distinct, reverse=True)[:count]]


def tied_gain(rows: ProcessRows, kernel: Kernel) -> float:
    """Return the gain in evidence, in nats per row, of a kernel over the leading columns alone.

    The model is an RVM with few centres and one precision for all weights, at its best precision
    and noise variance, so that thousands of rows can screen kernels. Let s be the eigenvalues of
    ΦᵀΦ, c the squared projections of t on the eigenvectors, and λ = α σ². Then σ² is (tᵀt − Σ c/(s
    + λ))/N and the evidence is −½ [N log σ² + Σ log(1 + s/λ)].
    """
    root = 1 / np.sqrt(rows.inverse[:, None])
    centres = rows.X[:: -(-len(rows.X) // 60)]  # enough for ten waves of one input
    design = kernel.values(rows.X, centres, rows.problem.empty.origin)
    leading = np.linalg.qr(root * rows.columns)[0]
    design, t = (root * each - leading @ (leading.T @ (root * each)) for each in (design, rows.t))
    s, axes = np.linalg.eigh(design.T @ design)
    s = np.maximum(s, 0.0)
    square = float((t**2).sum())
    (n, T) = t.shape
    c = ((axes.T @ (design.T @ t)) ** 2).sum(axis=1)
    shares = TIED_SHARES[:, None] * max(float(s.mean()), np.finfo(float).tiny)
    left = np.maximum(square - (c / (s + shares)).sum(axis=1), NOISE_FLOOR * square)
    gains = -0.5 * T * (n * np.log(left / square) + np.log1p(s / shares).sum(axis=1))
    return float(gains.max() / n)
