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
    """A point θ, whose α belong to ``columns`` of the design: 0 the intercept, which comes first,
    and n + 1 row n.

    Attributes:
        columns: numbers of the active columns, increasing (M,)
        vector: θ (K,)
        n_noises: 1, or 0 for classes
        n_widths: number of widths
    """

    columns: Int
    vector: Float
    n_noises: int
    n_widths: int

    @property
    def sections(self) -> list[Float]:
        """log α (M,), log τ (1,) or (0,), log γ (1,) or c_d (d,), and log β_d (d,) or (0,)."""
        sizes = [len(self.columns), self.n_noises, self.n_widths]
        return np.split(self.vector, np.cumsum(sizes))

    @property
    def log_alpha(self) -> Float:
        return self.sections[0]

    @property
    def log_precision(self) -> float:
        """log τ; 0 for classes."""
        return float(self.sections[1].sum())

    @property
    def widths(self) -> Float:
        return self.sections[2]

    @property
    def log_beta(self) -> Float:
        return self.sections[3]

    @property
    def rows(self) -> Int:
        """Numbers of the rows of the active columns (M − 1,)."""
        return self.columns[1:] - 1

    def moved(self, vector: Float) -> Self:
        """Return the point of a vector with the same columns."""
        return replace(self, vector=vector)

    def with_columns(self, columns: Int, log_alpha: float) -> Self:
        """Return the point with other active columns; new ones get ``log_alpha``."""
        alphas = dict(zip(self.columns, self.log_alpha, strict=True))
        values = [alphas.get(column, log_alpha) for column in columns]
        vector = np.concatenate([values, *self.sections[1:]])
        return replace(self, columns=columns, vector=vector)


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
        widths = np.full(d, np.log1p(1.0 / LINEAR))
        if self.shared:
            widths = np.array([np.log(self.start_gamma)])
        noise = np.zeros(int(self.errors.noisy))
        beta = np.zeros(d if self.system == "pfcvm" else 0)
        alpha = np.full(n + 1, self.start_log_alpha)
        vector = np.concatenate([alpha, noise, widths, beta])
        return Hyperparameters(np.arange(n + 1), vector, len(noise), len(widths))

    @property
    def offset(self) -> float:
        """s of the coordinates of the widths, or 0 for log γ: dγ/dc = γ + s."""
        return 0.0 if self.shared else LINEAR * self.start_gamma

    def gamma(self, widths: Float) -> Float:
        """Return γ (1,), or γ_d of each feature (d,)."""
        widths = np.minimum(widths, HIGHEST)
        return np.exp(widths) if self.shared else self.offset * np.expm1(widths)

    def kernel(self, point: Hyperparameters) -> Gaussian:
        """Return the kernel at θ, with γ that are not exactly 0: a kernel must not have only
        zeros."""
        return Gaussian(tuple(np.maximum(self.gamma(point.widths), NEGLIGIBLE).tolist()))

    def design(self, points: Float, point: Hyperparameters) -> Float:
        """Return the columns (n, M) of θ at points (n, d), in the units of γ."""
        kernels = self.kernel(point).values(points, self.X[point.rows])
        return np.column_stack([np.ones(len(points)), kernels])

    def at(self, point: Hyperparameters, weights: Float | None = None) -> Marginal:
        """Return Laplace's approximation at θ, whose mode is sought from ``weights`` (M,)."""
        design = self.design(self.X, point)
        alpha = np.exp(point.log_alpha)
        return marginal(design, alpha, self.errors, point.log_precision, weights)

    def log_prior(self, point: Hyperparameters) -> float:
        """Return Σ_d log 2N(γ_d; 0, 1/β_d) of "pfcvm", in nats; otherwise 0."""
        if not len(point.log_beta):
            return 0.0
        squares = np.exp(point.log_beta) * self.gamma(point.widths) ** 2
        return 0.5 * float(np.sum(point.log_beta - squares + np.log(2.0 / np.pi)))

    def slopes(self, point: Hyperparameters, approximation: Marginal) -> Float:
        """Return the slopes of L and of the log prior in θ, as one vector."""
        gamma = self.gamma(point.widths)
        kernels = approximation.design[:, 1:]
        by_kernels = approximation.by_design()[:, 1:]
        prepared = self.kernel(point).prepare(self.X[point.rows])
        by_log_gamma = prepared.gradient(self.X, kernels, by_kernels)
        by_gamma = by_log_gamma / np.maximum(gamma, NEGLIGIBLE)
        by_log_beta = np.zeros(0)
        if len(point.log_beta):
            beta = np.exp(point.log_beta)
            by_gamma = by_gamma - beta * gamma
            by_log_beta = 0.5 * (1.0 - beta * gamma**2)
        noise = [approximation.by_log_precision()] * point.n_noises
        by_widths = by_gamma * (gamma + self.offset)
        return np.concatenate([approximation.by_log_alpha(), noise, by_widths, by_log_beta])

    def pruned(self, point: Hyperparameters) -> Bool:
        """Return which active columns (M,) have α at the bound ν; never the intercept."""
        at_bound = point.log_alpha >= self.log_bound - AT_BOUND
        return np.asarray(at_bound & (point.columns > 0))

    def bounds(self, point: Hyperparameters) -> tuple[Float, Float]:
        """Return lower and upper bounds of θ; widths have no upper bound.

        If all coordinates had two bounds, the first step of L-BFGS-B could reach the bounds,
        instead of having length 1, and banana ended in a poor maximum.
        """
        first = len(point.columns) + point.n_noises
        widths = slice(first, first + point.n_widths)
        lower = np.full(len(point.vector), LOWEST)
        upper = np.full(len(point.vector), self.log_bound)
        lower[widths] = -np.inf if self.shared else 0.0
        upper[widths] = np.inf
        return lower, upper

    def maximise(self, start: Hyperparameters, max_iterations: int) -> "Maximum":
        """Maximise L and the log prior jointly in θ by L-BFGS-B within the bounds.

        Args:
            start: first point
            max_iterations: maximum number of quasi-Newton steps
        """
        weights = None

        def negative(vector: Float) -> tuple[float, Float]:
            nonlocal weights
            point = start.moved(vector)
            approximation = self.at(point, weights)
            weights = approximation.weights
            value = approximation.log_evidence + self.log_prior(point)
            return -value, -self.slopes(point, approximation)

        result = minimize(
            negative,
            start.vector,
            jac=True,
            method="L-BFGS-B",
            bounds=np.column_stack(self.bounds(start)),
            options={
                "maxiter": max_iterations,
                "maxfun": 4 * max_iterations,
                "maxcor": MEMORY,
                "ftol": FLAT,
                "gtol": 1e-6,
            },
        )
        return Maximum(start.moved(result.x), -float(result.fun), int(result.nit))


@dataclass(frozen=True)
class Maximum:
    """A maximum in θ at fixed columns.

    Attributes:
        point: θ
        value: L and the log prior, in nats
        iterations: number of quasi-Newton steps
    """

    point: Hyperparameters
    value: float
    iterations: int
