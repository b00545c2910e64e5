"""Laplace's approximation of the marginal likelihood of a kernel regression or of two classes, with
exact slopes.

The predictor is f = Φw, with w_i ~ N(0, 1/α_i). With the errors' log likelihood ℓ(f), the joint log
likelihood is

    ψ(w) = ℓ(Φw) + ½ Σ_i (log α_i − log 2π − α_i w_i²),

and with its mode ŵ and H = ΦᵀBΦ + A, B = −ℓ''(f̂), the approximation (TMB paper, eq. 14; Tipping
2001, §3) is

    L = ψ(ŵ) + (M/2) log 2π − ½ log|H|.

The mode and L are those of ``literature.mode``. L is exact if the errors are normal. Slopes of L
include those of ŵ, which moves B if the errors are not normal. With e = ℓ'(f̂), Σ = H⁻¹,
s_n = φ_nᵀΣφ_n, g = −½ s ∘ B', u = ΣΦᵀg, they are

    ∂L/∂log α_i = ½ (1 − α_i Σ_ii − α_i ŵ_i²) − α_i ŵ_i u_i,
    ∂L/∂Φ       = e (ŵ + u)ᵀ − BΦΣ + (g − BΦu) ŵᵀ,
    ∂L/∂log τ   = ½ (N − τ‖t − f̂‖² − Σ_i (1 − α_i Σ_ii))          for normal errors with σ² = 1/τ.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy.special import expit

from partirvm.literature.base import quadratic
from partirvm.literature.mode import ModeSearch
from partirvm.types import Float


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
        probability = expit(predictor)
        curvature = probability * expit(-predictor)
        return ErrorTerms(
            log_likelihood=float(np.sum(self.targets * predictor - np.logaddexp(0.0, predictor))),
            slope=self.targets - probability,
            curvature=curvature,
            bend=curvature * (1.0 - 2.0 * probability),
        )


@dataclass(frozen=True)
class Marginal(ModeSearch):
    """The approximation at one design, α and noise.

    Attributes:
        errors: of the targets
        log_precision: log τ
    """

    errors: Errors
    log_precision: float = 0.0

    @cached_property
    def terms(self) -> ErrorTerms:
        """Of the errors at these weights."""
        return self.errors.terms(self.design @ self.weights, self.log_precision)

    @property
    def log_likelihood(self) -> float:
        return self.terms.log_likelihood

    @property
    def slopes(self) -> Float:
        return self.design.T @ self.terms.slope

    @property
    def hessian(self) -> Float:
        return np.asarray(self.design.T @ (self.terms.curvature[:, None] * self.design))

    @cached_property
    def bend_of_mode(self) -> tuple[Float, Float]:
        """g (N,) and u (M,): how L changes with f̂ and with ŵ through B."""
        spread = quadratic(self.design, self.covariance)
        by_predictor = -0.5 * spread * self.terms.bend
        return by_predictor, self.covariance @ (self.design.T @ by_predictor)

    def by_log_alpha(self) -> Float:
        """Return ∂L/∂log α (M,)."""
        through_mode = self.weights * (0.5 * self.weights + self.bend_of_mode[1])
        return 0.5 * self.solution.determinedness - self.alpha * through_mode

    def by_log_precision(self) -> float:
        """Return ∂L/∂log τ for normal errors."""
        return self.terms.by_log_precision - 0.5 * float(self.solution.determinedness.sum())

    def by_design(self) -> Float:
        """Return ∂L/∂Φ (N, M)."""
        by_predictor, shift = self.bend_of_mode
        B = self.terms.curvature
        through_mode = by_predictor - B * (self.design @ shift)
        return np.asarray(
            np.outer(self.terms.slope, self.weights + shift)
            - B[:, None] * (self.design @ self.covariance)
            + np.outer(through_mode, self.weights)
        )


def marginal(
    design: Float,
    alpha: Float,
    errors: Errors,
    log_precision: float = 0.0,
    start: Float | None = None,
) -> Marginal:
    """Return Laplace's approximation at the mode of the weights.

    Raises ``NumericalError`` if the mode is not found.

    Args:
        design: Φ (N, M)
        alpha: α (M,)
        errors: of the targets
        log_precision: log τ, ignored without a noise
        start: weights at which to begin (M,), unless zero is better: a start of another design may
            be far away
    """
    search = Marginal(design, alpha, np.zeros(len(alpha)), errors, log_precision)
    if start is not None:
        warm = replace(search, weights=start)
        search = max(search, warm, key=lambda state: state.log_joint)
    return search.at_mode()
