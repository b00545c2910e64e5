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

from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from scipy.optimize import minimize

from partirvm.kernels import Gaussian
from partirvm.kernels.base import NEGLIGIBLE
from partirvm.kernels.design import Design
from partirvm.literature.base import columns_of
from partirvm.literature.joint_laplace import Errors, Marginal, marginal
from partirvm.types import BIAS, Bool, Float, Int

SYSTEMS = ("rvm", "krvm", "pfcvm")
"""A width for all features; one per feature; one per feature with a half-normal prior."""

BOUND = float(np.exp(5.0))
"""The paper's ν."""

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


@dataclass(repr=False, eq=False)
class JointOptions:
    """Parameters of the systems and of algorithm 1, with the paper's values as defaults (§5).

    Parameters
    ----------
    system : {"rvm", "krvm", "pfcvm"}
        "rvm" has one γ for all features (eq. 3); "krvm" has γ_d for each feature with a flat prior
        (eq. 4, §4.2); "pfcvm" has a half-normal prior of each γ_d, with an estimated precision β_d
        (eq. 19, §4.3).
    active_set : bool
        Whether algorithm 1 searches for a small active set. False optimises the α of all rows and
        keeps all weights: the starred versions of §5.
    batch : int
        B, number of rows of the first active set.
    active : {"largest", "random"}
        Whether these are the rows of the largest weights or random rows.
    threshold : float
        δ, size of a weight above which its row joins the active set.
    threshold_unit : {"prior-sd", "weight"}
        Whether δ is compared with the weight in prior standard deviations 1/√ν, or with the weight
        itself. The latter ends with what is left of the first rows (``algorithm_1``).
    bound : float
        ν, upper bound of α, σ⁻² and β_d, on the scale of the standardised data.
    start_log_alpha : float
        log α at the start; at most log ν.
    start_gamma : float or None
        γ or γ_d at the start; None is 1/d.
    tol : float
        Change of the log marginal likelihood, in nats, that ends the rounds.
    max_rounds : int
        Maximum number of rounds of algorithm 1.
    max_iterations : int
        Maximum number of quasi-Newton steps of one round.
    """

    system: str = "rvm"
    _: KW_ONLY
    active_set: bool = True
    batch: int = 20
    active: str = "largest"
    threshold: float = 0.5
    threshold_unit: str = "prior-sd"
    bound: float = BOUND
    start_log_alpha: float = 5.0
    start_gamma: float | None = None
    tol: float = 1e-6
    max_rounds: int = 50
    max_iterations: int = 300


@dataclass(frozen=True)
class Hyperparameters:
    """A point θ, whose α belong to the columns with these labels: −1 for the intercept, which comes
    first, otherwise the row number.

    Attributes:
        labels: of the active columns, increasing (M,)
        log_alpha: log α of these columns (M,)
        log_tau: log τ (1,), or (0,) for classes
        widths: log γ (1,), or c_d (d,)
        log_beta: log β_d (d,), or (0,)
    """

    labels: Int
    log_alpha: Float
    log_tau: Float
    widths: Float
    log_beta: Float

    @property
    def sections(self) -> list[Float]:
        """The sections of the vector."""
        return [self.log_alpha, self.log_tau, self.widths, self.log_beta]

    @property
    def sizes(self) -> list[int]:
        """Sizes of the sections."""
        return [len(section) for section in self.sections]

    @property
    def vector(self) -> Float:
        """θ (K,)."""
        return np.concatenate(self.sections)

    def moved(self, vector: Float) -> Self:
        """Return the point of a vector with the same columns."""
        return type(self)(self.labels, *np.split(vector, np.cumsum(self.sizes)[:-1]))

    def with_labels(self, labels: Int, log_alpha: float) -> Self:
        """Return the point with other active columns; new ones get ``log_alpha``."""
        alphas = dict(zip(self.labels, self.log_alpha, strict=True))
        values = [alphas.get(label, log_alpha) for label in labels]
        return replace(self, labels=labels, log_alpha=np.array(values))


@dataclass(frozen=True)
class JointMarginal:
    """The marginal likelihood of the rows as a function of θ.

    Attributes:
        X: inputs, in the units of γ (N, d)
        errors: of the targets
        options: parameters
    """

    X: Float
    errors: Errors
    options: JointOptions

    @property
    def log_bound(self) -> float:
        """log ν."""
        return float(np.log(self.options.bound))

    @property
    def shared(self) -> bool:
        """Whether one log γ serves all features."""
        return self.options.system == "rvm"

    @cached_property
    def start(self) -> Hyperparameters:
        """The first point: all columns, σ² = β_d = 1."""
        n, d = self.X.shape
        log_alpha = min(self.options.start_log_alpha, self.log_bound)
        widths = np.full(d, np.log1p(1.0 / LINEAR))
        return Hyperparameters(
            labels=np.arange(BIAS, n),
            log_alpha=np.full(n + 1, log_alpha),
            log_tau=np.zeros(int(self.errors.noisy)),
            widths=np.log([self.start_gamma]) if self.shared else widths,
            log_beta=np.zeros(d if self.options.system == "pfcvm" else 0),
        )

    @property
    def start_gamma(self) -> float:
        """γ, or every γ_d, of the first point."""
        return self.options.start_gamma or 1.0 / self.X.shape[1]

    @property
    def offset(self) -> float:
        """s of the coordinates of the widths, or 0 for log γ: dγ/dc = γ + s."""
        return 0.0 if self.shared else LINEAR * self.start_gamma

    def gamma(self, widths: Float) -> Float:
        """Return γ (1,), or γ_d of each feature (d,)."""
        widths = np.minimum(widths, HIGHEST)
        return np.exp(widths) if self.shared else self.offset * np.expm1(widths)

    def design(self, point: Hyperparameters) -> Design:
        """Return the columns at θ, with γ that are not exactly 0: a kernel must not have only
        zeros."""
        kernel = Gaussian(tuple(np.maximum(self.gamma(point.widths), NEGLIGIBLE).tolist()))
        return columns_of(kernel, self.X, point.labels[1:], bias=True)

    def at(self, point: Hyperparameters, weights: Float | None = None) -> Marginal:
        """Return Laplace's approximation at θ, whose mode is sought from ``weights`` (M,)."""
        block = self.design(point).block(self.X)
        log_tau = float(point.log_tau.sum())
        return marginal(block, np.exp(point.log_alpha), self.errors, log_tau, weights)

    def log_prior(self, point: Hyperparameters) -> float:
        """Return Σ_d log 2N(γ_d; 0, 1/β_d) of "pfcvm", in nats; otherwise 0."""
        if not len(point.log_beta):
            return 0.0
        squares = np.exp(point.log_beta) * self.gamma(point.widths) ** 2
        return 0.5 * float(np.sum(point.log_beta - squares + np.log(2.0 / np.pi)))

    def slopes(self, point: Hyperparameters, approximation: Marginal) -> Float:
        """Return the slopes of L and of the log prior in θ, as one vector."""
        gamma = self.gamma(point.widths)
        design = self.design(point)
        by_log_gamma = design.gradient(self.X, approximation.design, approximation.by_design())
        by_gamma = by_log_gamma / np.maximum(gamma, NEGLIGIBLE)
        by_log_beta = np.zeros(0)
        if len(point.log_beta):
            beta = np.exp(point.log_beta)
            by_gamma = by_gamma - beta * gamma
            by_log_beta = 0.5 * (1.0 - beta * gamma**2)
        noise = [approximation.by_log_precision()] * len(point.log_tau)
        by_widths = by_gamma * (gamma + self.offset)
        return np.concatenate([approximation.by_log_alpha(), noise, by_widths, by_log_beta])

    def pruned(self, point: Hyperparameters) -> Bool:
        """Return which active columns (M,) have α at the bound ν; never the intercept."""
        at_bound = point.log_alpha >= self.log_bound - AT_BOUND
        return np.asarray(at_bound & (point.labels != BIAS))

    def bounds(self, point: Hyperparameters) -> tuple[Float, Float]:
        """Return lower and upper bounds of θ; widths have no upper bound.

        If all coordinates had two bounds, the first step of L-BFGS-B could reach the bounds,
        instead of having length 1, and banana ended in a poor maximum.
        """
        least_width = -np.inf if self.shared else 0.0
        lower = np.repeat([LOWEST, LOWEST, least_width, LOWEST], point.sizes)
        upper = np.repeat([self.log_bound, self.log_bound, np.inf, self.log_bound], point.sizes)
        return lower, upper

    def maximise(self, start: Hyperparameters) -> "Maximum":
        """Maximise L and the log prior jointly in θ by L-BFGS-B within the bounds, from a first
        point."""
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
                "maxiter": self.options.max_iterations,
                "maxfun": 4 * self.options.max_iterations,
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
