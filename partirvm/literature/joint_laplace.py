"""Laplace's approximation of the marginal likelihood of a kernel regression or of two classes, with
exact slopes.

The predictor is f = Φw, with w_i ~ N(0, 1/α_i). With the errors' log likelihood ℓ(f), the joint log
likelihood is

    ψ(w) = ℓ(Φw) + ½ Σ_i (log α_i − log 2π − α_i w_i²),

and with its mode ŵ and H = ΦᵀBΦ + A, B = −ℓ''(f̂), the approximation (TMB paper, eq. 14; Tipping
2001, §3) is

    L = ψ(ŵ) + (M/2) log 2π − ½ log|H|.

It is exact if the errors are normal. Slopes of L include those of ŵ, which moves B if the errors
are not normal. With e = ℓ'(f̂), Σ = H⁻¹, s_n = φ_nᵀΣφ_n, g = −½ s ∘ B', u = ΣΦᵀg, they are

    ∂L/∂log α_i = ½ (1 − α_i Σ_ii − α_i ŵ_i²) − α_i ŵ_i u_i,
    ∂L/∂Φ       = e (ŵ + u)ᵀ − BΦΣ + (g − BΦu) ŵᵀ,
    ∂L/∂log τ   = ½ (N − τ‖t − f̂‖² − Σ_i (1 − α_i Σ_ii))          for normal errors with σ² = 1/τ.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from partirvm.core.link import LINKS
from partirvm.core.posterior import factorise, root_of
from partirvm.errors import NumericalError
from partirvm.types import Float

NEWTON_STEPS = 100
"""Maximum number of Newton steps to a mode; from zero weights about eight are needed."""

HALVINGS = 30
"""Maximum number of times that one Newton step is halved."""

DECREMENT = 1e-16
"""Predicted increase of ψ by a Newton step, in nats, below which the mode is reached. It is then
1e-8 posterior standard deviations away or, because convergence is quadratic, less."""

ROUNDING = 1e-10
"""Predicted increase below which steps that do not get smaller are rounding errors."""


@dataclass(frozen=True)
class ErrorTerms:
    """The log likelihood of the errors at a predictor f (N,), and its derivatives.

    Attributes:
        log_likelihood: ℓ, in nats
        slope: e = ℓ'(f) (N,)
        curvature: B = −ℓ''(f) ≥ 0 (N,)
        bend: B' = dB/df (N,)
        by_log_precision: ∂ℓ/∂log τ; 0 without a noise
    """

    log_likelihood: float
    slope: Float
    curvature: Float
    bend: Float
    by_log_precision: float = 0.0


class Errors(Protocol):
    """The distribution of targets about the predictor."""

    noisy: bool
    """Whether there is a noise precision τ to estimate."""

    def terms(self, predictor: Float, log_precision: float) -> ErrorTerms:
        """Return the log likelihood at a predictor (N,) and log τ."""


@dataclass(frozen=True)
class NormalErrors(Errors):
    """Targets (N,) with normal errors of variance σ² = 1/τ."""

    targets: Float
    noisy = True

    def terms(self, predictor: Float, log_precision: float) -> ErrorTerms:
        tau = np.exp(log_precision)
        residual = self.targets - predictor
        n = len(residual)
        misfit = tau * float(residual @ residual)
        return ErrorTerms(
            log_likelihood=0.5 * (n * (log_precision - np.log(2 * np.pi)) - misfit),
            slope=tau * residual,
            curvature=np.full(n, tau),
            bend=np.zeros(n),
            by_log_precision=0.5 * (n - misfit),
        )


@dataclass(frozen=True)
class LogisticErrors(Errors):
    """Targets (N,) of 0 and 1 with P(1) = 1/(1 + e⁻ᶠ)."""

    targets: Float
    noisy = False

    def terms(self, predictor: Float, log_precision: float) -> ErrorTerms:
        derivatives = LINKS["bernoulli"].derivatives(predictor[:, None], self.targets[:, None])
        log_likelihood, slope, curvature = (values[:, 0] for values in derivatives)
        probability = self.targets - slope
        bend = curvature * (1.0 - 2.0 * probability)
        return ErrorTerms(float(log_likelihood.sum()), slope, curvature, bend)


@dataclass(frozen=True)
class Marginal:
    """The approximation at one design, α and noise.

    Attributes:
        design: Φ (N, M)
        alpha: α (M,)
        terms: of the errors at the mode
        mean: the mode ŵ (M,)
        root: R (M, M) with Σ = RRᵀ
        log_evidence: L, in nats
    """

    design: Float
    alpha: Float
    terms: ErrorTerms
    mean: Float
    root: Float
    log_evidence: float

    @cached_property
    def covariance(self) -> Float:
        """Σ (M, M)."""
        return np.asarray(self.root @ self.root.T)

    @cached_property
    def bend_of_mode(self) -> tuple[Float, Float]:
        """g (N,) and u (M,): how L changes with f̂ and with ŵ through B."""
        spread = np.einsum("nm,nm->n", self.design @ self.root, self.design @ self.root)
        by_predictor = -0.5 * spread * self.terms.bend
        return by_predictor, self.covariance @ (self.design.T @ by_predictor)

    def by_log_alpha(self) -> Float:
        """Return ∂L/∂log α (M,)."""
        shrinkage = self.alpha * (np.diagonal(self.covariance) + self.mean**2)
        return 0.5 * (1.0 - shrinkage) - self.alpha * self.mean * self.bend_of_mode[1]

    def by_log_precision(self) -> float:
        """Return ∂L/∂log τ for normal errors."""
        determined = np.sum(1.0 - self.alpha * np.diagonal(self.covariance))
        return float(self.terms.by_log_precision - 0.5 * determined)

    def by_design(self) -> Float:
        """Return ∂L/∂Φ (N, M)."""
        by_predictor, shift = self.bend_of_mode
        B = self.terms.curvature
        through_mode = by_predictor - B * (self.design @ shift)
        return np.asarray(
            np.outer(self.terms.slope, self.mean + shift)
            - B[:, None] * (self.design @ self.covariance)
            + np.outer(through_mode, self.mean)
        )

    def mode_by_log_alpha(self) -> Float:
        """Return ∂ŵ/∂log α (M, M), a column for each α."""
        return -self.covariance * (self.alpha * self.mean)

    def mode_by_log_precision(self) -> Float:
        """Return ∂ŵ/∂log τ (M,) for normal errors."""
        return np.asarray(self.covariance @ (self.design.T @ self.terms.slope))

    def mode_by_design(self, change: Float) -> Float:
        """Return the derivative of ŵ (M,) if Φ moves along ``change`` (N, M)."""
        by_predictor = self.terms.curvature * (change @ self.mean)
        moved = change.T @ self.terms.slope - self.design.T @ by_predictor
        return np.asarray(self.covariance @ moved)


@dataclass(frozen=True)
class State:
    """Weights on the way to the mode.

    Attributes:
        weights: w (M,)
        terms: of the errors at Φw
        joint: ℓ(Φw) − ½ Σ α_i w_i², in nats
    """

    weights: Float
    terms: ErrorTerms
    joint: float


@dataclass(frozen=True)
class JointDensity:
    """ψ as a function of the weights.

    Attributes:
        design: Φ (N, M)
        alpha: α (M,)
        errors: of the targets
        log_precision: log τ
    """

    design: Float
    alpha: Float
    errors: Errors
    log_precision: float

    def at(self, weights: Float) -> State:
        """Return the state of weights (M,)."""
        terms = self.errors.terms(self.design @ weights, self.log_precision)
        penalty = 0.5 * float(self.alpha @ weights**2)
        return State(weights, terms, terms.log_likelihood - penalty)

    def first(self, start: Float | None) -> State:
        """Return the start, or zero weights if these are better: a start of another design may be
        far away."""
        zero = self.at(np.zeros(len(self.alpha)))
        if start is None:
            return zero
        state = self.at(start)
        return state if state.joint > zero.joint else zero

    def uphill(self, state: State, step: Float) -> State:
        """Return the state after the step, halved until ψ does not fall."""
        for _ in range(HALVINGS):
            moved = self.at(state.weights + step)
            if moved.joint >= state.joint - 1e-12 * abs(state.joint):
                break
            step = 0.5 * step
        return moved

    def factors(self, curvature: Float) -> tuple[Float, float]:
        """Return R with Σ = RRᵀ, and log|H|, at the curvature B (N,)."""
        factor, scale = factorise(self.design.T @ (curvature[:, None] * self.design), self.alpha)
        log_determinant = 2.0 * float(np.log(np.diagonal(factor) / scale).sum())
        return root_of(factor, scale), log_determinant


def marginal(
    design: Float,
    alpha: Float,
    errors: Errors,
    log_precision: float = 0.0,
    start: Float | None = None,
) -> Marginal:
    """Find the mode by Newton's method and return Laplace's approximation there.

    Raises ``NumericalError`` if the steps do not converge.

    Args:
        design: Φ (N, M)
        alpha: α (M,)
        errors: of the targets
        log_precision: log τ, ignored without a noise
        start: weights at which to begin (M,), by default zero
    """
    density = JointDensity(design, alpha, errors, log_precision)
    state = density.first(start)
    curvature = None
    last = np.inf
    for _ in range(NEWTON_STEPS):
        if curvature is None or not np.array_equal(curvature, state.terms.curvature):
            curvature = state.terms.curvature
            root, log_determinant = density.factors(curvature)
        slope = design.T @ state.terms.slope - alpha * state.weights
        step = root @ (root.T @ slope)
        decrement = 0.5 * float(slope @ step)
        if decrement <= DECREMENT or last / 2 < decrement < ROUNDING:
            evidence = state.joint + 0.5 * (float(np.log(alpha).sum()) - log_determinant)
            return Marginal(design, alpha, state.terms, state.weights, root, evidence)
        last = decrement
        state = density.uphill(state, step)
    raise NumericalError(f"no mode of the weights after {NEWTON_STEPS} Newton steps")
