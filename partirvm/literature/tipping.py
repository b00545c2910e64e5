"""Regression as in Tipping (2001), and the same algorithm with the thresholds of Denœux's slides.

``TippingRegressor`` has MacKay's updates (eqs. 16, 18) or those of expectation maximisation, with
Gamma priors of α and β. ``DenoeuxRegressor`` is the algorithm of slide 32: columns whose α exceeds
τ are pruned, and for no other reason; a fit ends when α and β change by less than ε_α and ε_β.

The main path differs: it deletes columns that lower the evidence, and ends by the evidence.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from partirvm.core.priors import GammaDensity, Prior
from partirvm.core.statistics import GramStatistics
from partirvm.core.updates import HyperState
from partirvm.literature.dense import (
    DenseRegressor,
    Ending,
    log_settled,
    maximise,
    started,
    update,
)
from partirvm.options.constraints import Check
from partirvm.types import Float

MAX_ITER = {"mackay": 10_000, "em": 20_000}
"""Updates by name, and their default caps. EM raises the α of a column without use by about s − q²
a step, so that it needs far more steps; MacKay's updates multiply it."""


@dataclass(repr=False, eq=False)
class TippingRegressor(DenseRegressor):
    """Relevance vector regression by MacKay's updates or EM (Tipping 2001, §2.1–2.3, appendix A).

    A fit ends when neither log β nor any log α changes by more than ``tol``; a column with α > 1e9
    is deleted. The text of appendix A
    with the author's criteria was not available: the defaults are ours.

    Parameters
    ----------
    kernel : Kernel, default=None
        Kernel of ``partirvm.kernels``; None: Gaussian(1.0). A Gaussian's gamma is r⁻² of eq. 30.
    fit_intercept : bool, default=True
        True offers a bias, as in eq. 4.
    updates : {"mackay", "em"}, default="mackay"
        Updates of α and β.
    alpha_prior, noise_prior : tuple of two floats, default=(0, 0)
        Shape and rate of the Gamma priors: (a, b) of α and (c, d) of β (eqs. 6, 7).
    noise_variance : float, default=None
        Fixed σ²; None estimates it.
    tol : float, default=1e-3
        Largest change of log α and log β at the end.
    max_iter : int, default=None
        Maximum number of updates; None: 10,000 for MacKay, 20,000 for EM.

    Examples
    --------
    >>> import numpy as np
    >>> from partirvm.kernels import LinearSpline
    >>> from partirvm.literature.tipping import TippingRegressor
    >>> X = np.linspace(-10, 10, 100)[:, None]
    >>> y = np.sinc(X[:, 0] / np.pi)
    >>> model = TippingRegressor(LinearSpline(), noise_variance=1e-4).fit(X, y)
    >>> model.n_relevance_vectors_ < 15
    True
    """

    updates: str = "mackay"
    alpha_prior: tuple[float, float] = (0.0, 0.0)
    noise_prior: tuple[float, float] = (0.0, 0.0)
    noise_variance: float | None = None
    tol: float = 1e-3
    max_iter: int | None = None

    def _solve(self, statistics: GramStatistics) -> Ending:
        Check("word", tuple(MAX_ITER))("updates", self.updates)
        state = replace(
            started(statistics, noise=self.noise_variance),
            prior=Prior(GammaDensity(*self.alpha_prior), GammaDensity(*self.noise_prior)),
            fixed_noise=self.noise_variance is not None,
        )
        return maximise(
            state,
            partial(update, em=self.updates == "em"),
            log_settled(self.tol),
            max_iter=self.max_iter or MAX_ITER[self.updates],
        )


@dataclass(repr=False, eq=False)
class DenoeuxRegressor(DenseRegressor):
    """Relevance vector regression with absolute thresholds (Denœux's slides, p. 32).

    The slides print no values. The defaults suit targets and columns of about unit scale, and the
    first α and σ² are those of kernlab for one input.

    Parameters
    ----------
    kernel : Kernel, default=None
        Kernel of ``partirvm.kernels``; None: Gaussian(1.0).
    fit_intercept : bool, default=False
        True offers a bias; the slides have none.
    centres : array-like (m, d), default=None
        Candidates; None: all training rows.
    eps_alpha : float, default=1e-3
        ε_α: at the end every α changes by less than this.
    eps_beta : float, default=1e-3
        ε_β: at the end β changes by less than this.
    tau : float, default=1e9
        τ: a column whose α exceeds this is pruned.
    alpha_init : float, default=1.0
        First α.
    noise_init : float, default=0.1
        First σ².
    max_iter : int, default=10_000
        Maximum number of updates.

    Examples
    --------
    >>> import numpy as np
    >>> from partirvm.literature.tipping import DenoeuxRegressor
    >>> X = np.linspace(-3, 3, 60)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(60)
    >>> DenoeuxRegressor().fit(X, y).converged_
    True
    """

    fit_intercept: bool = False
    centres: Any = None
    eps_alpha: float = 1e-3
    eps_beta: float = 1e-3
    tau: float = 1e9
    alpha_init: float = 1.0
    noise_init: float = 0.1
    max_iter: int = 10_000

    def _centres(self, X: Float) -> Float:
        return X if self.centres is None else np.asarray(self.centres, dtype=np.float64)

    def _solve(self, statistics: GramStatistics) -> Ending:
        def ended(state: HyperState, alpha: Float, beta: float) -> bool:
            change = np.abs(alpha - state.alpha).max()
            return bool(change < self.eps_alpha and abs(beta - float(state.beta)) < self.eps_beta)

        state = started(statistics, self.alpha_init, self.noise_init)
        return maximise(state, update, ended, alpha_max=self.tau, max_iter=self.max_iter)
