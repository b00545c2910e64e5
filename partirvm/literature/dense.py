"""Basic relevance vector machines in memory, as the sources write them: a column per candidate and
a bias, nothing centred, nothing scaled.

The posterior, the marginal likelihood and Gamma priors are those of ``core.posterior`` and
``core.updates`` (Tipping 2001, eqs. 12, 13, 15). The updates here delete a column for one reason
only: its α exceeds a threshold.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from partirvm.core.statistics import GramBlock, GramStatistics
from partirvm.core.updates import HyperState, noise_precision
from partirvm.kernels import Gaussian, Kernel
from partirvm.types import BIAS, Float, Int

UNDETERMINED = 1e-13
"""Determinedness γ up to this is rounding: the next α is infinite."""

UNIT = Gaussian(1.0)
"""Default kernel."""

FIRST_NOISE = 0.1
"""First σ², in units of the mean square of the target."""


def statistics_of(labels: Int, design: Float, target: Float) -> GramStatistics:
    """Return the statistics of all columns (M,) of a design Φ (N, M), for a target (N,)."""
    block = GramBlock.of(np.zeros((len(target), 0)), design, target[:, None])
    return GramStatistics.of(labels, block)


def started(
    statistics: GramStatistics, alpha: float | None = None, noise: float | None = None
) -> HyperState:
    """Return the start of a fit: all columns with one α.

    Args:
        statistics: their statistics
        alpha: α; None: the prior variance of Φw is the mean square of the target
        noise: σ²; None: a tenth of the mean square of the target
    """
    squares = float(statistics.sum_squares[0]) or 1.0
    variance = squares / statistics.n
    if noise is None:
        noise = FIRST_NOISE * variance
    if alpha is None:
        alpha = float(np.trace(statistics.gram)) / squares
    precisions = np.full(len(statistics.labels), alpha)
    return HyperState(statistics, precisions, 1.0 / noise, variance)


Step = Callable[[HyperState], tuple[Float, float]]
"""Returns the next α (M,), infinite for deleted columns, and β of a state."""

Criterion = Callable[[HyperState, Float, float], bool]
"""True if a fit ends with its next α (M,) and β."""

Ending = tuple[HyperState, bool]
"""The last state, and True if the fit converged."""


def maximise(
    state: HyperState,
    step: Step,
    ended: Criterion,
    *,
    alpha_max: float,
    max_iter: int,
    fewest: float = 0.0,
) -> Ending:
    """Repeat updates; the column with the smallest α always stays.

    Args:
        state: the first state
        step: the updates
        ended: asked whenever no column is deleted
        alpha_max: a column whose α exceeds this is deleted
        max_iter: maximum number of updates
        fewest: the fit ends, too, with fewer columns
    """
    converged = False
    while state.iteration < max_iter and not converged and len(state.alpha) >= fewest:
        alpha, beta = step(state)
        relevant = alpha <= alpha_max
        relevant[alpha.argmin()] = True
        converged = bool(relevant.all()) and ended(state, alpha, beta)
        columns = np.flatnonzero(relevant)
        statistics = state.statistics.take(columns)
        alpha = np.minimum(alpha[columns], alpha_max)
        state = state.restarted(statistics, alpha, beta, iteration=state.iteration + 1)
        state = replace(state, found=state.posterior)
    return state, converged


def update(state: HyperState, em: bool = False) -> tuple[Float, float]:
    """Return the next α and β, with the state's priors.

    MacKay's updates (Tipping 2001, eqs. 16 and 18) are zeros of the slopes at fixed γ and μ. Those
    of expectation maximisation (appendix A) have E[w²] instead of μ²/γ, and E‖t − Φw‖²; they never
    lower the marginal likelihood.
    """
    fit = state.posterior
    determinedness = fit.determinedness
    total = float(determinedness.sum())
    square = fit.mean**2
    if em:
        one = np.ones(len(square))
        alpha = state.prior.alpha_update(one, square + fit.variance)
        noise = 0.0, fit.residual + total / float(state.beta)
    else:
        alpha = state.prior.alpha_update(determinedness, square)
        undetermined = determinedness + state.prior.alpha.shape <= UNDETERMINED
        alpha[undetermined] = np.inf
        noise = total, fit.residual
    if state.fixed_noise:
        return alpha, float(state.beta)
    beta, _ = noise_precision(state, noise)
    return alpha, float(beta)


def log_settled(tol: float) -> Criterion:
    """Return the criterion that neither log β nor any log α changes by more than ``tol``."""

    def ended(state: HyperState, alpha: Float, beta: float) -> bool:
        ratios = np.append(alpha / state.alpha, beta / state.beta)
        return bool(np.abs(np.log(ratios)).max() <= tol)

    return ended


@dataclass(repr=False, eq=False)
class DenseModel(BaseEstimator):  # type: ignore[misc]
    """Base class of estimators with a column per candidate and a bias."""

    kernel: Kernel | None = None
    fit_intercept: bool = True

    @property
    def _kernel(self) -> Kernel:
        return self.kernel or UNIT

    def _design(self, X: Float, centres: Float, labels: Int) -> Float:
        """Return Φ (n, M): a first column of ones if the bias is among the labels.

        Args:
            X: rows (n, d)
            centres: centres of the kernel (m, d)
            labels: labels of the columns
        """
        bias = np.ones((len(X), int(BIAS in labels)))
        return np.hstack([bias, self._kernel.values(X, centres)])

    def _labels(self, rows: int) -> Int:
        """Return the labels of the bias and of all rows."""
        return np.arange(BIAS if self.fit_intercept else 0, rows)

    def _keep(self, centres: Float, labels: Int) -> None:
        """Store the columns of the model, in order of their labels."""
        self.labels_ = labels
        self.candidates_ = labels[labels >= 0]
        self.relevance_vectors_ = centres[self.candidates_]
        self.n_relevance_vectors_ = len(self.candidates_)

    def _new_design(self, X: Any) -> Float:
        """Check new rows, and return the columns of the model at them."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        return self._design(X, self.relevance_vectors_, self.labels_)


class DenseRegressor(RegressorMixin, DenseModel):  # type: ignore[misc]
    """Base class of regressors, which define ``_solve``.

    Attributes
    ----------
    relevance_vectors_ : ndarray (m, d)
    candidates_ : ndarray (m,)
        Row numbers of the vectors among the candidates.
    n_relevance_vectors_ : int
    labels_ : ndarray (M,)
        −1 for the bias, otherwise the row number.
    weights_, alpha_ : ndarray (M,)
    covariance_ : ndarray (M, M)
    noise_variance_, log_evidence_ : float
    n_iter_ : int
    converged_ : bool
    """

    def _solve(self, statistics: GramStatistics) -> Ending:
        """Fit the model to the statistics of all candidates."""
        raise NotImplementedError

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like (n, d)
        y : array-like (n,)
        """
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        y = np.asarray(y, dtype=np.float64)
        centres = X
        if getattr(self, "centres", None) is not None:
            centres = np.asarray(self.centres, dtype=np.float64)
        labels = self._labels(len(centres))
        design = self._design(X, centres, labels)
        statistics = statistics_of(labels, design, y)
        return self._store(self._solve(statistics), centres)

    def _store(self, ending: Ending, centres: Float) -> Self:
        """Set the fitted attributes."""
        state, self.converged_ = ending
        self._keep(centres, state.labels)
        self.weights_ = state.posterior.mean
        self.covariance_ = state.posterior.covariances[0]
        self.alpha_ = state.alpha
        self.noise_variance_ = 1.0 / float(state.beta)
        self.log_evidence_ = state.log_evidence
        self.n_iter_ = state.iteration
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the mean of new targets, and their standard deviation (Tipping 2001, eqs. 21, 22).

        Parameters
        ----------
        X : array-like (n, d)
        return_std : bool, default=False
        """
        design = self._new_design(X)
        mean = design @ self.weights_
        if not return_std:
            return mean
        spread = np.sum(design @ self.covariance_ * design, axis=1)
        return mean, np.sqrt(self.noise_variance_ + spread)
