"""The KTH report's fast RVM and RVM* (2019, §2).

**Fast RVM** (§2.1; Tipping & Faul 2003). Each choice is a random column φ_m of all. With θ = q² − s
(eq. 13) of this column (eq. 14), it is added, or its α estimated again, if θ > 0: α = s²/θ; it is
deleted if θ ≤ 0. Then σ² = ‖t − Φμ‖²/(N − M + Σ α_mΣ_mm) (eq. 15). A fit starts with the bias, or
without one with the column of the largest projection.

Where this differs from the report: everything is computed again after one action per eight columns
in the model, and updated by rank one between; and a fit ends when no action gains ``tol`` nats,
which is checked after as many choices as there are columns (the report states no criterion).

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

from partirvm.core.fast import PART, ActiveColumns
from partirvm.core.posterior import own_factors
from partirvm.core.priors import DEPENDENT, log_contribution, optimal_alpha
from partirvm.core.statistics import GramStatistics
from partirvm.core.updates import HyperState, noise_precision
from partirvm.literature.dense import DenseRegressor, Ending, started
from partirvm.types import Float


def best_actions(active: ActiveColumns) -> tuple[Float, Float]:
    """Return the best α of each column, infinite where θ ≤ 0, and the gains in nats, (K,) each."""
    members = active.columns
    s = np.maximum(active.S, 0.0)
    q = active.Q.copy()
    member_s, member_q = own_factors(active, active.alpha)
    s[members] = member_s
    q[members] = member_q
    alpha = np.full(len(s), np.inf)
    alpha[members] = active.alpha
    # a copy of other columns has only rounding errors left
    least = DEPENDENT * active.beta * active.diagonal
    copies = s < least
    copies[members] = False
    best = optimal_alpha(s, q)
    best[copies] = np.inf
    present = log_contribution(alpha, s, q)
    return best, log_contribution(best, s, q) - present


def act(active: ActiveColumns, column: int, alpha: float) -> None:
    """Add a column, change its α, or delete it if α is infinite."""
    if active.place[column] < 0:
        active.add(column, alpha)
    elif np.isinf(alpha):
        active.delete(column)
    else:
        active.change(column, alpha)


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
    noise_variance : float, default=None
        Fixed σ²; None estimates it.
    tol : float, default=1e-3
        Largest gain of an action at the end, in nats.
    max_iter : int, default=100_000
        Maximum number of choices.
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
    noise_variance: float | None = None
    tol: float = 1e-3
    max_iter: int = 100_000
    random_state: int = 0

    def _solve(self, statistics: GramStatistics) -> Ending:
        state = started(statistics, noise=self.noise_variance)
        first = np.zeros(1, dtype=np.int64)
        if not self.fit_intercept:
            first[0] = np.abs(statistics.projection[:, 0]).argmax()
        active = ActiveColumns(statistics, first, state.alpha[first], float(state.beta))
        choices, converged = self._climb(active, state)
        order = np.argsort(active.columns)
        last = state.restarted(
            statistics.take(active.columns[order]),
            active.alpha[order],
            active.beta,
            iteration=choices,
        )
        return last, converged

    def _climb(self, active: ActiveColumns, state: HyperState) -> tuple[int, bool]:
        """Apply actions, and return the number of choices, and True if at last no action gains
        ``tol`` nats."""
        generator = np.random.default_rng(self.random_state)
        width = len(active.place)
        waiting = 0
        for choice in range(self.max_iter):
            checked = choice % width == 0
            if checked or waiting > active.M // PART:
                beta = active.beta
                if self.noise_variance is None:
                    beta = float(noise_precision(state, active.now())[0])
                active.refresh(beta)
                waiting = 0
            alpha, gain = best_actions(active)
            if checked and gain.max() < self.tol:
                return choice, True
            column = int(gain.argmax())
            if self.random_order:
                column = int(generator.integers(width))
            last = active.M == 1 and np.isinf(alpha[column])
            if gain[column] >= self.tol and not last:
                act(active, column, alpha[column])
                waiting += 1
        return self.max_iter, False


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
    beta = 1.0 / model.noise_variance_
    extra = model._kernel.values(X, new)
    heights = model._kernel.diagonal(new)
    residual = y - model.predict(X)
    cross = beta * model._new_design(X).T @ extra
    spread = model.covariance_ @ cross
    s = beta * np.sum(extra**2, axis=0)
    s -= np.sum(cross * spread, axis=0)
    q = beta * extra.T @ residual
    explained = np.sum(model._new_design(new).T * spread, axis=0)
    e = heights - explained
    precision = 1.0 / np.var(y) + np.maximum(s, 0.0)
    variance = std**2 + e**2 / precision
    return mean + e * q / precision, np.sqrt(variance)
