"""How much larger the errors of left-out groups are than those of left-out rows, from an exact
Gaussian process with the kernel of a fit.

A sparse fit is left out of at its columns and α (``core.left_out_groups``), which were chosen with
the group: forty columns can be chosen so that they agree with the effects of forty stations, and
then each station seems to be predicted from the others. A process has a column for every row and
chooses none. With C = s²K + σ²(W⁻¹ + E) + v Σ_l φ_lφ_lᵀ for its kernel values K, row weights W, the
covariance σ²E of groups' effects, and leading columns φ_l, the errors of a left-out block B are

    e_B = ([C⁻¹]_BB)⁻¹ [C⁻¹t]_B

(Rasmussen & Williams 2006, §5.4.2, for a row), where s² and σ² maximise the evidence. The
difference of the mean squares over groups and over rows is that between groups, whatever the
number of rows.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from partirvm.types import Float, Int

LOG_RATIOS = (-18.0, 5.0)
"""Range of the log of σ² ÷ s², if the mean of the kernel's values at the rows is 1."""

LEADING = 100.0
"""Variance of the weight of a leading column with mean square 1, in units of s²."""


@dataclass(frozen=True)
class ProcessErrors:
    """Errors of a process, in the units of the targets.

    Attributes:
        of_rows: errors of rows that were left out alone (n,)
        of_groups: errors of rows that were left out with their group (n,)
    """

    of_rows: Float
    of_groups: Float

    @property
    def excess(self) -> float:
        """The mean square over groups minus that over rows, at least 0."""
        difference = np.mean(self.of_groups**2) - np.mean(self.of_rows**2)
        return max(float(difference), 0.0)


def process_errors(
    kernel: Float, leading: Float, target: Float, weights: Float, groups: Int, effects: Float
) -> ProcessErrors | None:
    """Return the errors of a process with this kernel; None if its values are all 0.

    Args:
        kernel: kernel values between the rows (n, n)
        leading: leading columns (n, L)
        target: targets (n,)
        weights: row weights, above 0 (n,)
        groups: groups of the rows (n,)
        effects: E (n, n)
    """
    mean = float(kernel.diagonal().mean())
    if not mean > 0:
        return None
    factor = np.linalg.cholesky(np.diag(1.0 / weights) + effects)
    columns = leading * np.sqrt(LEADING / np.maximum((leading**2).mean(axis=0), 1e-300))
    covariance = 0.5 / mean * (kernel + kernel.T) + columns @ columns.T
    white = solve_triangular(factor, np.column_stack([covariance, target]), lower=True)
    values, vectors = np.linalg.eigh(solve_triangular(factor, white[:, :-1].T, lower=True))
    inner = _inverse(np.maximum(values, 0.0), vectors, white[:, -1])
    half = solve_triangular(factor, inner, lower=True, trans="T")
    inverse = solve_triangular(factor, half.T, lower=True, trans="T")
    solved = inverse @ target
    of_groups = np.empty(len(target))
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        of_groups[rows] = np.linalg.solve(inverse[np.ix_(rows, rows)], solved[rows])
    return ProcessErrors(solved / inverse.diagonal(), of_groups)


def _inverse(values: Float, vectors: Float, target: Float) -> Float:
    """Return C⁻¹ (n, n), up to a factor, at the ratio of the highest evidence.

    Args:
        values: eigenvalues of C − σ² for s² = 1 (n,)
        vectors: their eigenvectors (n, n)
        target: targets (n,)
    """
    from scipy.optimize import minimize_scalar  # importing it takes megabytes

    squares = (vectors.T @ target) ** 2
    n = len(target)

    def loss(log_ratio: float) -> float:
        """Return minus the log evidence at the best s², up to a constant."""
        variances = values + np.exp(log_ratio)
        least = np.finfo(float).tiny
        square = max(float(np.sum(squares / variances)), least)
        return 0.5 * (n * float(np.log(square)) + float(np.log(variances).sum()))

    best = minimize_scalar(loss, bounds=LOG_RATIOS, method="bounded")
    scaled = vectors / np.sqrt(values + np.exp(best.x))
    return np.asarray(scaled @ scaled.T)
