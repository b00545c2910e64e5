"""Hyperparameters of the systems of the TMB paper as one vector, and the marginal likelihood with
its slopes in this vector.

The vector θ holds, in this order,

    log α of the active columns    ≤ log ν
    log τ = −log σ²                ≤ log ν, only for regressions
    widths of the kernel           log γ ("rvm", eq. 3), or c_d ≥ 0 of each feature (eq. 4)
    log β_d                        ≤ log ν, only for "pfcvm"

Priors of α, σ² and γ are flat (§4.1–4.2). "pfcvm" has γ_d ~ 2 N(0, 1/β_d) for γ_d ≥ 0 (eq. 19),
whose log density is added to the marginal likelihood; β_d is estimated, like α. A γ_d above 1/√ν =
0.08 then costs log γ_d and a constant, because the best β_d is 1/γ_d².

The coordinate of γ_d is c_d = log(1 + γ_d/s), with s a tenth of γ_d at the start. Irrelevant
features reach γ_d = 0, which they could not by their logarithms. With γ_d itself as coordinate,
Boston needed thousands of quasi-Newton steps, and banana ended in a poor maximum.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from scipy.optimize import minimize

from partirvm.kernels import Gaussian
from partirvm.kernels.base import NEGLIGIBLE
from partirvm.literature.joint_laplace import Errors, Marginal, marginal
from partirvm.types import Bool, Float, Int

SYSTEMS = ("rvm", "krvm", "pfcvm")
"""A width for all features; one per feature; one per feature with a half-normal prior."""

LOWEST = -20.0
"""Lower bound of log α, log τ and log β_d, against overflow in line searches: e⁻²⁰ is 0 for
standardised data."""

HIGHEST = 50.0
"""Largest coordinate of a width that has an effect: at e⁵⁰, kernels of distinct rows are 0."""

LINEAR = 0.1
"""s, as a fraction of γ_d at the start: the coordinate of γ_d is linear below and logarithmic above
it."""

AT_BOUND = 1e-9
"""Distance from a bound up to which a coordinate is at the bound."""

MEMORY = 20
"""Number of corrections of the quasi-Newton method. With the usual 10, it needs more steps."""

FLAT = 1e-12
"""Relative change of the value at which the quasi-Newton method ends. At 1e-9, several α of near
copies of one row stay just below their bound, with weights of nearly 0."""


@dataclass(frozen=True)
class Hyperparameters:
    """A point θ, whose α belong to ``columns`` of the design: 0 the intercept, n + 1 row n.

    Attributes:
        columns: numbers of the active columns, increasing (M,)
        log_alpha: log α of these columns (M,)
        log_precision: log τ; 0 and fixed for classes
        widths: log γ (1,), or c_d (d,)
        log_beta: log β_d (d,), or (0,)
    """

    columns: Int
    log_alpha: Float
    log_precision: float
    widths: Float
    log_beta: Float

    def with_columns(self, columns: Int, log_alpha: float) -> Self:
        """Return the point with other active columns; new ones get ``log_alpha``."""
        alphas = dict(zip(self.columns.tolist(), self.log_alpha.tolist(), strict=True))
        values = [alphas.get(column, log_alpha) for column in columns.tolist()]
        return replace(self, columns=columns, log_alpha=np.array(values))


@dataclass(frozen=True)
class JointMarginal:
    """The marginal likelihood of the rows as a function of θ.

    Attributes:
        X: inputs, in the units of γ (N, d)
        errors: of the targets
        system: "rvm", "krvm" or "pfcvm"
        bound: ν, upper bound of α, τ and β_d
        start_gamma: γ, or every γ_d, of the first point
        start_log_alpha: log α of the first point, at most log ν
    """

    X: Float
    errors: Errors
    system: str
    bound: float
    start_gamma: float
    start_log_alpha: float

    @property
    def log_bound(self) -> float:
        """log ν."""
        return float(np.log(self.bound))

    @property
    def shared(self) -> bool:
        """Whether one log γ serves all features."""
        return self.system == "rvm"

    @cached_property
    def start(self) -> Hyperparameters:
        """The first point: all columns, σ² = β_d = 1."""
        n, d = self.X.shape
        single = np.array([np.log(self.start_gamma)])
        per_feature = np.full(d, np.log1p(1.0 / LINEAR))
        return Hyperparameters(
            columns=np.arange(n + 1),
            log_alpha=np.full(n + 1, self.start_log_alpha),
            log_precision=0.0,
            widths=single if self.shared else per_feature,
            log_beta=np.zeros(d if self.system == "pfcvm" else 0),
        )

    @property
    def offset(self) -> float:
        """s of the coordinates of the widths, or 0 for log γ: dγ/dc = γ + s."""
        return 0.0 if self.shared else LINEAR * self.start_gamma

    def gamma(self, widths: Float) -> Float:
        """Return γ_d of each feature (d,)."""
        widths = np.minimum(widths, HIGHEST)
        values = np.exp(widths) if self.shared else self.offset * np.expm1(widths)
        return np.broadcast_to(values, (self.X.shape[1],))

    def width_slopes(self, points: Float, columns: Int, widths: Float) -> list[Float]:
        """Return the derivative of the columns (n, M) by each coordinate of the widths.

        Args:
            points: inputs, in the units of γ (n, d)
            columns: numbers of the columns (M,)
            widths: log γ, or c_d
        """
        design = self.design(points, columns, widths)
        centres = np.zeros((len(columns), self.X.shape[1]))
        centres[columns > 0] = self.X[columns[columns > 0] - 1]
        design[:, columns == 0] = 0.0
        by_gamma = [
            -((x[:, None] - z) ** 2) * design for x, z in zip(points.T, centres.T, strict=True)
        ]
        if self.shared:
            by_gamma = [np.sum(by_gamma, axis=0)]
        rates = self.gamma(widths) + self.offset
        return [rate * change for rate, change in zip(rates, by_gamma, strict=False)]

    def design(self, points: Float, columns: Int, widths: Float) -> Float:
        """Return the columns (n, M) at points (n, d).

        Args:
            points: inputs, in the units of γ (n, d)
            columns: numbers of the columns (M,)
            widths: log γ, or c_d
        """
        # a kernel must not have only zeros
        kernel = Gaussian(tuple(np.maximum(self.gamma(widths), NEGLIGIBLE).tolist()))
        design = np.ones((len(points), len(columns)))
        rows = columns[columns > 0] - 1
        if len(rows):
            design[:, len(columns) - len(rows) :] = kernel.values(points, self.X[rows])
        return design

    def at(self, point: Hyperparameters, weights: Float | None = None) -> Marginal:
        """Return Laplace's approximation at θ, whose mode is sought from ``weights`` (M,)."""
        design = self.design(self.X, point.columns, point.widths)
        alpha = np.exp(point.log_alpha)
        return marginal(design, alpha, self.errors, point.log_precision, weights)

    def log_prior(self, point: Hyperparameters) -> float:
        """Return Σ_d log 2N(γ_d; 0, 1/β_d) of "pfcvm", in nats; otherwise 0."""
        if not len(point.log_beta):
            return 0.0
        squares = np.exp(point.log_beta) * self.gamma(point.widths) ** 2
        constant = len(squares) * np.log(2.0 / np.pi)
        return float(0.5 * (point.log_beta.sum() - squares.sum() + constant))

    def by_gamma(self, point: Hyperparameters, approximation: Marginal) -> Float:
        """Return ∂L/∂γ_d (d,), by the chain rule over the kernel's values."""
        kernels = approximation.design[:, point.columns > 0]
        weighted = approximation.by_design()[:, point.columns > 0] * kernels
        Z = self.X[point.columns[point.columns > 0] - 1]
        return -weighted_squares(self.X, Z, weighted)

    def slopes(self, point: Hyperparameters, approximation: Marginal) -> Float:
        """Return the slopes of L and of the log prior in θ, as one vector."""
        gamma = self.gamma(point.widths)
        by_gamma = self.by_gamma(point, approximation)
        by_log_beta = np.zeros(0)
        if len(point.log_beta):
            beta = np.exp(point.log_beta)
            by_gamma = by_gamma - beta * gamma
            by_log_beta = 0.5 * (1.0 - beta * gamma**2)
        by_widths = by_gamma * (gamma + self.offset)
        if self.shared:
            by_widths = by_widths.sum(keepdims=True)
        noise = [approximation.by_log_precision()] if self.errors.noisy else []
        return np.concatenate([approximation.by_log_alpha(), noise, by_widths, by_log_beta])

    def vector(self, point: Hyperparameters) -> Float:
        """Return θ as one vector."""
        noise = [point.log_precision] if self.errors.noisy else []
        return np.concatenate([point.log_alpha, noise, point.widths, point.log_beta])

    def point(self, vector: Float, like: Hyperparameters) -> Hyperparameters:
        """Return the point of a vector with the columns of ``like``."""
        M = len(like.columns)
        noisy = int(self.errors.noisy)
        alpha, noise, widths, beta = np.split(vector, [M, M + noisy, M + noisy + len(like.widths)])
        return Hyperparameters(
            columns=like.columns,
            log_alpha=alpha,
            log_precision=float(noise[0]) if noisy else 0.0,
            widths=widths,
            log_beta=beta,
        )

    def pruned(self, point: Hyperparameters) -> Bool:
        """Return which active columns (M,) have α at the bound ν; never the intercept."""
        at_bound = point.log_alpha >= self.log_bound - AT_BOUND
        return np.asarray(at_bound & (point.columns > 0))

    def bounds(self, point: Hyperparameters) -> tuple[Float, Float]:
        """Return lower and upper bounds of θ; widths have no upper bound.

        If all coordinates had two bounds, the first step of L-BFGS-B could reach the bounds,
        instead of having length 1, and banana ended in a poor maximum.
        """
        vector = self.vector(point)
        lower = np.full(len(vector), LOWEST)
        upper = np.full(len(vector), self.log_bound)
        first = len(point.columns) + int(self.errors.noisy)
        widths = slice(first, first + len(point.widths))
        lower[widths] = -np.inf if self.shared else 0.0
        upper[widths] = np.inf
        return lower, upper

    def maximise(self, start: Hyperparameters, weights: Float, max_iterations: int) -> "Maximum":
        """Maximise L and the log prior jointly in θ by L-BFGS-B within the bounds.

        Args:
            start: first point
            weights: of its active columns, from which the first mode is sought (M,)
            max_iterations: maximum number of quasi-Newton steps
        """
        latest = weights

        def negative(vector: Float) -> tuple[float, Float]:
            nonlocal latest
            point = self.point(vector, start)
            approximation = self.at(point, latest)
            latest = approximation.mean
            value = approximation.log_evidence + self.log_prior(point)
            return -value, -self.slopes(point, approximation)

        lower, upper = self.bounds(start)
        result = minimize(
            negative,
            self.vector(start),
            jac=True,
            method="L-BFGS-B",
            bounds=np.column_stack([lower, upper]),
            options={
                "maxiter": max_iterations,
                "maxfun": 4 * max_iterations,
                "maxcor": MEMORY,
                "ftol": FLAT,
                "gtol": 1e-6,
            },
        )
        point = self.point(result.x, start)
        return Maximum(point, self.at(point, latest), -float(result.fun), int(result.nit))


@dataclass(frozen=True)
class Maximum:
    """A maximum in θ at fixed columns.

    Attributes:
        point: θ
        approximation: Laplace's approximation there
        value: L and the log prior, in nats
        iterations: number of quasi-Newton steps
    """

    point: Hyperparameters
    approximation: Marginal
    value: float
    iterations: int


def weighted_squares(X: Float, Z: Float, weights: Float) -> Float:
    """Return Σ_nm weights[n, m] (x_nd − z_md)² of each feature (d,).

    Args:
        X: points (n, d)
        Z: centres (m, d)
        weights: (n, m)
    """
    of_points = weights.sum(axis=1) @ X**2
    of_centres = weights.sum(axis=0) @ Z**2
    return np.asarray(of_points + of_centres - 2.0 * np.sum((weights.T @ X) * Z, axis=0))
