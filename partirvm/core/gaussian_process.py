"""An exact Gaussian process of given covariance: evidence, its derivative in the covariance, and predictions.

    L = −½ Σ_t [ tᵀK⁻¹t + log|K| + n log 2π ],    ∂L/∂K = ½ (AAᵀ − T K⁻¹),    A = K⁻¹t

for T targets t (n,) with mean 0 that share the covariance K (n, n) (Rasmussen & Williams 2006, *Gaussian Processes for
Machine Learning*, eqs. 5.8 and 5.9). All rows are centres, so that the evidence sees detail that a few hundred columns
cannot express. One evaluation is one Cholesky factor and its inverse.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack, solve_triangular

Float = NDArray[np.float64]


@dataclass(frozen=True)
class ProcessEvidence:
    """The evidence ``value`` in nats, its derivative ``slopes`` (n, n) in the covariance, and ``weights`` A (n, T)."""

    value: float
    slopes: Float
    weights: Float


def process_evidence(covariance: Float, targets: Float) -> ProcessEvidence | None:
    """Return the evidence of targets (n, T), or None if the covariance (n, n) is not positive definite."""
    n, T = targets.shape
    factor, failed = lapack.dpotrf(covariance, lower=1)
    if failed:
        return None
    weights = lapack.dpotrs(factor, targets, lower=1)[0]
    log_determinant = 2.0 * float(np.log(factor.diagonal()).sum())
    value = -0.5 * (float((targets * weights).sum()) + T * (log_determinant + n * np.log(2 * np.pi)))
    inverse, _ = lapack.dpotri(factor, lower=1, overwrite_c=1)
    slopes = np.tril(inverse, -1)
    slopes += slopes.T
    slopes[np.diag_indices(n)] = inverse.diagonal()
    slopes *= -0.5 * T
    slopes += 0.5 * weights @ weights.T
    return ProcessEvidence(value, slopes, weights)


@dataclass(frozen=True)
class Predicted:
    """Errors (m, T) of predictions of T targets, and their variance (m,), noise included."""

    errors: Float
    variances: Float

    @property
    def log_densities(self) -> Float:
        """The log density of the targets, summed over the T targets, (m,)."""
        normal = np.log(2 * np.pi * self.variances)
        density: Float = -0.5 * (self.errors.shape[1] * normal + (self.errors**2).sum(axis=1) / self.variances)
        return density


def predicted(covariance: Float, targets: Float, cross: Float, variance: Float, new: Float) -> Predicted:
    """Predict new targets (m, T) from targets (n, T).

    ``cross`` (m, n) is the covariance of new rows and rows, and ``variance`` (m,) that of new rows, noise included
    (ibid. eqs. 2.23 and 2.24). Raises ``LinAlgError`` if the covariance is not positive definite.
    """
    factor = np.linalg.cholesky(covariance)
    half = solve_triangular(factor, cross.T, lower=True)
    errors = new - half.T @ solve_triangular(factor, targets, lower=True)
    return Predicted(errors, variance - (half**2).sum(axis=0))
