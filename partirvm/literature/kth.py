"""The KTH report's fast RVM and RVM* (2019, §2).

**Fast RVM** (§2.1; Tipping & Faul 2003). Each choice is a random column φ_m of all. With θ = q² − s
(eq. 13) of this column (eq. 14), it is added, or its α estimated again, if θ > 0: α = s²/θ; it is
deleted if θ ≤ 0. Then σ² = ‖t − Φμ‖²/(N − M + Σ α_mΣ_mm) (eq. 15). A fit starts with the bias, or
without one with the first column.

The report states no criterion for the end: here a fit ends when no action gains ``tol`` nats and
log σ² changes by at most ``tol``. Choices of columns without such an action are left out, because
they change nothing.

**RVM*** (§2.2, eq. 16; Rasmussen & Quiñonero-Candela 2005). Each new row x* adds the basis function
k(x, x*) to the model. With φ* its values at the N training rows, Φ the design of these rows and φ₀
that of x*,

    s = φ*ᵀC⁻¹φ*, C = σ² + ΦA⁻¹Φᵀ,    q = σ⁻²φ*ᵀ(t − Φμ),    e = k(x*, x*) − σ⁻²φ₀ᵀΣΦᵀφ*
    mean + e·q / (α† + s),    variance + e² / (α† + s).

The report calls α† the precision of t, 1/var(t), whatever the kernel. ``predict(augment=…)`` of the
main path has k(x*, x*)²/var(t), with which the prior variance of the extra function at x* is
var(t); the two agree for kernels with k(x, x) = 1.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from partirvm.core.posterior import own_factors
from partirvm.core.priors import DEPENDENT, log_contribution, optimal_alpha
from partirvm.core.statistics import GramStatistics
from partirvm.core.updates import HyperState, noise_precision
from partirvm.literature.dense import DenseRegressor, Ending, started, taken
from partirvm.types import Float


def best_actions(state: HyperState, statistics: GramStatistics) -> tuple[Float, Float]:
    """Return the best α of each column of ``statistics``, infinite where θ ≤ 0, and the gains in
    nats, (K,) each; ``state`` has the columns of the model."""
    members = np.searchsorted(statistics.labels, state.labels)
    diagonal = statistics.gram.diagonal()
    s, q = state.factors(statistics.gram[members], diagonal, statistics.projection)
    copies = s < DEPENDENT * state.beta * diagonal
    copies[members] = False
    s[members], q[members] = own_factors(state.posterior, state.alpha)
    alpha = np.full(len(s), np.inf)
    alpha[members] = state.alpha
    best = optimal_alpha(s, q)
    # a copy of other columns has only rounding errors left
    best[copies] = np.inf
    return best, log_contribution(best, s, q) - log_contribution(alpha, s, q)


@dataclass(repr=False, eq=False)
class FastRegressor(DenseRegressor):
    """Fast relevance vector regression with columns in random order (KTH report, §2.1).

    Parameters
    ----------
    kernel : Kernel, default=None
        Kernel of ``partirvm.kernels``; None: Gaussian(1.0).
    fit_intercept : bool, default=True
        True offers a bias, with which the model starts.
    random_order : bool, default=True
        True chooses columns at random, False the one with the largest gain.
    tol : float, default=1e-3
        Largest gain of an action at the end, in nats.
    max_iter : int, default=10_000
        Maximum number of actions.
    random_state : int, default=0
        Seed of the random order.

    Examples
    --------
    >>> import numpy as np
    >>> from partirvm.literature.kth import FastRegressor
    >>> X = np.linspace(-3, 3, 60)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(60)
    >>> FastRegressor().fit(X, y).converged_
    True
    """

    random_order: bool = True
    tol: float = 1e-3
    max_iter: int = 10_000
    random_state: int = 0

    def _solve(self, statistics: GramStatistics) -> Ending:
        generator = np.random.default_rng(self.random_state)
        start = started(statistics)
        alpha = np.where(np.arange(len(start.alpha)) > 0, np.inf, start.alpha)
        state = taken(start, np.array([0]), alpha[:1], float(start.beta))
        for choice in range(self.max_iter):
            best, gain = best_actions(state, statistics)
            beta = float(noise_precision(state)[0])
            useful = np.flatnonzero(gain >= self.tol)
            if len(useful):
                column = generator.choice(useful) if self.random_order else gain.argmax()
                alpha[column] = best[column]
            elif abs(np.log(beta / state.beta)) <= self.tol:
                return Ending(state, True, choice)
            members = np.flatnonzero(np.isfinite(alpha))
            state = taken(start, members, alpha[members], beta)
        return Ending(state, False, self.max_iter)


def rvm_star(model: DenseRegressor, X: Float, y: Float, X_new: Any) -> tuple[Float, Float]:
    """Return the mean and the standard deviation of new targets by RVM* (eq. 16), (n,) each.

    Parameters
    ----------
    model : DenseRegressor
        Fitted regressor of this package.
    X : ndarray (N, d)
        Its training rows.
    y : ndarray (N,)
        Their targets.
    X_new : array-like (n, d)
        New rows.
    """
    mean, std = model.predict(X_new, return_std=True)
    new = np.asarray(X_new, dtype=np.float64)
    kernel = model.design_.kernel
    extra = kernel.values(X, new)
    cross = model.design_.block(X).T @ extra
    s, q = model.state_.factors(cross, np.sum(extra**2, axis=0), extra.T @ y)
    explained = np.sum(model.design_.block(new).T * (model.covariance_ @ cross), axis=0)
    e = kernel.diagonal(new) - explained / model.noise_variance_
    precision = 1.0 / np.var(y) + s
    return mean + e * q / precision, np.sqrt(std**2 + e**2 / precision)
