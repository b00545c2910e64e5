"""Basic relevance vector machines in memory, as the sources write them: a column per candidate and
a bias, nothing centred, nothing scaled.

The posterior, the marginal likelihood and Gamma priors are those of ``core.posterior`` and
``core.updates`` (Tipping 2001, eqs. 12, 13, 15). The updates here delete a column for one reason
only: its α exceeds a threshold.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from partirvm.core.priors import FLAT, Prior
from partirvm.core.statistics import GramBlock, GramStatistics
from partirvm.core.updates import HyperState, noise_precision
from partirvm.kernels import Gaussian, Kernel
from partirvm.kernels.design import Design
from partirvm.literature.base import Estimator, Regressor, columns_of, quadratic
from partirvm.types import BIAS, Float, Int

UNDETERMINED = 1e-13
"""Determinedness γ up to this is rounding: the next α is infinite."""

UNIT = Gaussian(1.0)
"""Default kernel."""

ALPHA_MAX = 1e9
"""A column whose α exceeds this is deleted, where a source prints no threshold."""

FIRST_NOISE = 0.1
"""First σ², in units of the mean square of the target."""


def statistics_of(labels: Int, block: Float, target: Float) -> GramStatistics:
    """Return the statistics of all columns (M,) of Φ (N, M), for a target (N,)."""
    return GramStatistics.of(labels, GramBlock.of(block[:, :0], block, target[:, None]))


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
    precisions = np.full(len(statistics.labels), alpha or np.trace(statistics.gram) / squares)
    return HyperState(statistics, precisions, 1.0 / (noise or FIRST_NOISE * variance), variance)


Step = Callable[[Any], tuple[Float, float]]
"""Returns the next α (M,), infinite for deleted columns, and β of a state."""

Criterion = Callable[[Any, Float, float], bool]
"""True if a fit ends with its next α (M,) and β."""


class Ending(NamedTuple):
    """How a fit ended.

    Attributes:
        state: the last state
        converged: True if the criterion ended the fit
        iterations: number of updates
    """

    state: Any
    converged: bool
    iterations: int


def taken(state: HyperState, columns: Int, alpha: Float, beta: float) -> HyperState:
    """Return the state of some columns, with new α and β.

    Args:
        state: the state of all columns
        columns: (m,), positions of the columns
        alpha: (m,), their new α
        beta: the new β
    """
    moved = state.restarted(
        state.statistics.take(columns), alpha, beta, iteration=state.iteration + 1
    )
    return replace(moved, found=moved.posterior)


def maximise(
    state: Any,
    step: Step,
    ended: Criterion,
    *,
    max_iter: int,
    alpha_max: float = ALPHA_MAX,
    fewest: float = 0.0,
    taken: Callable[[Any, Int, Float, float], Any] = taken,
) -> Ending:
    """Repeat updates; the column with the smallest α always stays.

    Args:
        state: the first state
        step: the updates
        ended: asked whenever no column is deleted
        max_iter: maximum number of updates
        alpha_max: a column whose α exceeds this is deleted
        fewest: the fit ends, too, with fewer columns
        taken: returns the next state from columns, α and β
    """
    iterations = 0
    converged = False
    while iterations < max_iter and not converged and len(state.alpha) >= fewest:
        alpha, beta = step(state)
        relevant = alpha <= alpha_max
        relevant[alpha.argmin()] = True
        converged = bool(relevant.all()) and ended(state, alpha, beta)
        columns = np.flatnonzero(relevant)
        state = taken(state, columns, np.minimum(alpha[columns], alpha_max), beta)
        iterations += 1
    return Ending(state, converged, iterations)


def mackay_alpha(determinedness: Float, square: Float, prior: Prior = FLAT) -> Float:
    """Return the next α, γ/μ² with a flat prior (Tipping 2001, eq. 16)."""
    alpha = prior.alpha_update(determinedness, square)
    alpha[determinedness + prior.alpha.shape <= UNDETERMINED] = np.inf
    return alpha


def update(state: HyperState, em: bool = False) -> tuple[Float, float]:
    """Return the next α and β, with the state's priors.

    MacKay's updates (Tipping 2001, eqs. 16 and 18) are zeros of the slopes at fixed γ and μ. Those
    of expectation maximisation (appendix A) have E[w²] instead of μ²/γ, and E‖t − Φw‖²; they never
    lower the marginal likelihood.
    """
    fit = state.posterior
    square = fit.mean**2
    if em:
        alpha = state.prior.alpha_update(np.ones(len(square)), square + fit.variance)
        noise = 0.0, fit.residual + fit.determinedness.sum() / state.beta
    else:
        alpha = mackay_alpha(fit.determinedness, square, state.prior)
        noise = fit.determinedness.sum(), fit.residual
    beta = state.beta if state.fixed_noise else noise_precision(state, noise)[0]
    return alpha, float(beta)


def log_settled(tol: float) -> Criterion:
    """Return the criterion that neither log β nor any log α changes by more than ``tol``."""

    def ended(state: Any, alpha: Float, beta: float) -> bool:
        ratios = np.append(alpha / state.alpha, beta / state.beta)
        return bool(np.abs(np.log(ratios)).max() <= tol)

    return ended


@dataclass(repr=False, eq=False)
class DenseModel(Estimator):
    """Base class of estimators with a column per candidate and a bias."""

    kernel: Kernel | None = None
    fit_intercept: bool = True

    def _columns(self, X: Float, rows: Int) -> Design:
        """Return the bias, if any, and the candidates with these numbers among X (N, d)."""
        return columns_of(self.kernel or UNIT, X, rows, self.fit_intercept)

    def _ended(self, ending: Ending) -> Any:
        """Store how a fit ended, and return its last state."""
        self.converged_ = ending.converged
        self.n_iter_ = ending.iterations
        self.alpha_ = ending.state.alpha
        self.log_evidence_ = ending.state.log_evidence
        return ending.state

    def _keep(self, centres: Float, labels: Int) -> None:
        """Store the columns of the model, in order of their labels."""
        self.labels_ = labels
        self.candidates_ = labels[labels >= 0]
        columns = self._columns(centres, self.candidates_)
        self.design_ = replace(columns, bias=BIAS in labels)
        self.relevance_vectors_ = columns.centres
        self.n_relevance_vectors_ = len(self.candidates_)

    def _block(self, X: Any) -> Float:
        """Check new rows, and return the columns of the model at them."""
        X = self._rows(X)
        return self.design_.block(X)


class DenseRegressor(Regressor, DenseModel):
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
    state_ : HyperState
        The end of the fit.
    n_iter_ : int
    converged_ : bool
    """

    def _solve(self, statistics: GramStatistics) -> Ending:
        """Fit the model to the statistics of all candidates."""
        raise NotImplementedError

    def _centres(self, X: Float) -> Float:
        """Return the candidates (m, d) of training rows."""
        return X

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like (n, d)
        y : array-like (n,)
        """
        X, y = self._training(X, y)
        centres = self._centres(X)
        columns = self._columns(centres, np.arange(len(centres)))
        statistics = statistics_of(columns.all_labels, columns.block(X), y)
        return self._store(self._solve(statistics), centres)

    def _store(self, ending: Ending, centres: Float) -> Self:
        """Set the fitted attributes."""
        self.state_ = self._ended(ending)
        self._keep(centres, self.state_.labels)
        self.weights_ = self.state_.posterior.mean
        self.covariance_ = self.state_.posterior.covariances[0]
        self.noise_variance_ = 1.0 / float(self.state_.beta)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the mean of new targets, and their standard deviation (Tipping 2001, eqs. 21, 22).

        Parameters
        ----------
        X : array-like (n, d)
        return_std : bool, default=False
        """
        block = self._block(X)
        mean = block @ self.weights_
        if not return_std:
            return mean
        spread = quadratic(block, self.covariance_)
        return mean, np.sqrt(self.noise_variance_ + spread)
