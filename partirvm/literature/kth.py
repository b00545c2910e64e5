"""The KTH report's fast RVM and RVM* (2019, §2).

**Fast RVM** (§2.1; Tipping & Faul 2003). Each choice is a random column φ_m of all. With θ = q² − s
(eq. 13) of this column (eq. 14), it is added, or its α estimated again, if θ > 0: α = s²/θ; it is
deleted if θ ≤ 0. Then σ² = ‖t − Φμ‖²/(N − M + Σ α_mΣ_mm) (eq. 15). A fit starts with the bias, or
without one with the first column.

The report states no criterion for the end: here a fit ends when neither an action nor a new σ²
gains more than ``tol`` nats. Choices of columns without such an action are left out, because
they change nothing. Σ and μ are updated by rank one; after one action per eight columns in the
model, everything is computed again with a new σ².

**RVM*** (§2.2, eq. 16; Rasmussen & Quiñonero-Candela 2005). Each new row x* adds the basis function
k(x, x*) to the model. With φ* its values at the N training rows, Φ the design of these rows and φ₀
that of x*,

    s = φ*ᵀC⁻¹φ*, C = σ² + ΦA⁻¹Φᵀ,    q = σ⁻²φ*ᵀ(t − Φμ),    e = k(x*, x*) − σ⁻²φ₀ᵀΣΦᵀφ*
    mean + e·q / (α† + s),    variance + e² / (α† + s).

The report calls α† the precision of t, 1/var(t), whatever the kernel. ``predict(augment=…)`` of the
main path has k(x*, x*)²/var(t), with which the prior variance of the extra function at x* is
var(t); the two agree for kernels with k(x, x) = 1.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from partirvm.core.fast import PART, Action, ActiveColumns, Greedy
from partirvm.core.posterior import own_factors
from partirvm.core.priors import DEPENDENT, log_contribution, optimal_alpha
from partirvm.core.statistics import GramStatistics
from partirvm.literature.dense import DenseRegressor, Ending, started
from partirvm.types import Float


def best_actions(active: ActiveColumns) -> tuple[Float, Float]:
    """Return the best α of each column, infinite where θ ≤ 0, and the gains in nats, (K,) each."""
    members = active.columns
    s = active.S.copy()
    q = active.Q.copy()
    copies = s < DEPENDENT * active.beta * active.diagonal
    copies[members] = False
    s[members], q[members] = own_factors(active, active.alpha)
    alpha = np.full(len(s), np.inf)
    alpha[members] = active.alpha
    best = optimal_alpha(s, q)
    # a copy of other columns has only rounding errors left
    best[copies] = np.inf
    return best, log_contribution(best, s, q) - log_contribution(alpha, s, q)


def random_action(
    active: ActiveColumns, least: float, generator: np.random.Generator
) -> Action | None:
    """Return the action of a random column that gains at least ``least`` nats; None without any.
    The last column stays."""
    alpha, gain = best_actions(active)
    if active.M == 1:
        gain[np.isinf(alpha)] = 0.0
    useful = np.flatnonzero(gain >= least)
    if not len(useful):
        return None
    column = int(generator.choice(useful))
    return Action(column, float(alpha[column]), float(gain[column]))


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
        Maximum number of actions and of updates of σ² without one.
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
        fit = Greedy(replace(start, entered=np.arange(len(start.alpha)) > 0))
        converged = False
        choices = 0
        while choices < self.max_iter and not converged:
            if self.random_order:
                action = random_action(fit.active, self.tol, generator)
            else:
                action = fit.best(self.tol, thin=False)
            if action:
                fit.do(action)
            done = fit.since
            if not action or done > fit.active.M // PART:
                converged = fit.is_settled(fit.refresh(), done, self.tol)
            choices += 1
        return Ending(fit.fit(), converged, choices)


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
