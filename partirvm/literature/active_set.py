"""Algorithm 1 of the TMB paper (§3): candidates are the rows of large weight in a MAP solution over all rows.

The algorithm keeps an *active set* of basis functions, which begins with those B = 20 that have the largest MAP weights
if every α is the bound ν = e⁵. Each round adds the basis functions whose weight in the MAP solution over all candidates
is larger than δ = 0.5. The algorithm ends when no weight is larger than δ. The paper leaves some points open:

- The fit of each round is an RVM whose basis functions are the kernels at the active rows (``basis=`` and
  ``kernel=None`` of the estimators). Columns that it prunes, or in a regression those with α > ν, leave the active set
  for good. The width is given; the paper learns it, too.
- The α and σ² of this fit give MAP weights of the active columns and of *all* rows that were never candidates:

      w = β (βΦᵀΦ + A)⁻¹ Φᵀt.

  A holds the fitted α of each active column, and for every other column the bound ν if it is given, otherwise 1: δ is
  then half a prior standard deviation. With two classes, w is one Newton step from the mode of the active set,
  (ΦᵀBΦ + A)⁻¹ (ΦᵀBΦw₀ + Φᵀ(t − y)).
- Rows with |w| > δ join the active set, the largest first, at most ``most`` in one round. α and δ are in units of the
  target's standard deviation, with two classes of the linear predictor.

Each round needs a factorisation of an N × N matrix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.base import clone, is_classifier

from partirvm.types import Float, Int

NU = math.exp(5)
"""The paper's ν, α of all columns before the first fit."""

NOISE = 0.1
"""Noise variance before the first fit, as a fraction of the variance of the target."""


@dataclass(frozen=True)
class KernelColumns:
    """Gaussian kernels at ``centres`` (M, d) as explicit basis functions of standardised rows."""

    gamma: float
    centres: Float

    def __call__(self, points: Float) -> Float:
        """Return the columns at standardised rows (n, d), (n, M)."""
        return np.asarray(np.exp(-self.gamma * cdist(points, self.centres, "sqeuclidean")))


@dataclass(frozen=True)
class ActiveSet:
    """The last fit: an estimator, its ``active`` rows, and the number of ``candidates``."""

    estimator: Any
    active: Int
    candidates: int
    rounds: int


def active_set(
    estimator: Any,
    X: Float,
    y: Any,
    *,
    gamma: float,
    batch: int = 20,
    threshold: float = 0.5,
    bound: float | None = None,
    most: int = 50,
) -> ActiveSet:
    """Run the algorithm with clones of an ``RVMRegressor`` or, for two classes, an ``RVMClassifier``.

    ``gamma`` is the width on standardised features, ``batch`` B, ``threshold`` δ, and ``bound`` ν or None.
    """
    scale = X.std(axis=0)
    points = (X - X.mean(axis=0)) / np.where(scale > 0, scale, 1.0)
    columns = KernelColumns(gamma, points)
    N, numeric = len(X), not is_classifier(estimator)
    Phi = np.column_stack([np.ones(N), columns(points)])
    t = (y - y.mean()) / y.std() if numeric else (y == np.unique(y)[1]).astype(float)
    beta, used = 1 / NOISE if numeric else None, np.zeros(N, bool)
    active = np.argsort(-np.abs(_map(Phi, t, np.full(N + 1, NU), np.zeros(N + 1), beta))[1:], kind="stable")[:batch]
    outside, limit, rounds = 1.0 if bound is None else bound, bound if numeric and bound else np.inf, 0
    while True:
        used[active], rounds = True, rounds + 1
        fitted, active, own_alpha, own = _fit(estimator, X, y, columns, active, limit)
        alpha, w, places = np.full(N + 1, outside), np.zeros(N + 1), 1 + active
        if fitted.model_.design.bias:
            places = np.concatenate([[0], places])
        alpha[places], w[places] = own_alpha, own
        if numeric:
            beta = float((fitted.model_.design.scaling.t_scale**2)[0]) / float(fitted.model_.evidence_noise)
        sizes = np.where(used, 0.0, np.abs(_map(Phi, t, alpha, w, beta))[1:])
        best = np.argsort(-sizes, kind="stable")[:most]
        new = best[sizes[best] > threshold]
        if not len(new):
            return ActiveSet(fitted, active, int(used.sum()), rounds)
        active = np.concatenate([active, new])


def _fit(
    estimator: Any, X: Float, y: Any, columns: KernelColumns, active: Int, limit: float
) -> tuple[Any, Int, Float, Float]:
    """Return a fit of the active columns, the rows of those it keeps, and α and weights of the bias and of these.

    Columns with α > ``limit`` are deleted, and the others are fitted again.
    """
    while True:
        basis = replace(columns, centres=columns.centres[active])
        fitted = clone(estimator).set_params(kernel=None, basis=basis).fit(X, y)
        model, names = fitted.model_, fitted.model_.design.leading
        kept, alpha = active[-2 - names[names < -1]], np.ravel(model.alpha)
        within = kept[alpha[len(alpha) - len(kept) :] <= limit]
        if len(within) == len(kept):
            return fitted, kept, alpha, np.ravel(model.mean)
        active = within


def _map(Phi: Float, t: Float, alpha: Float, w: Float, beta: float | None) -> Float:
    """Return the MAP weights (M,) at these α; without β those of a Newton step from ``w`` of the logistic link."""
    if beta is not None:
        return np.asarray(np.linalg.solve(beta * Phi.T @ Phi + np.diag(alpha), beta * Phi.T @ t))
    f = Phi @ w
    p = 1 / (1 + np.exp(-f))
    heavy = Phi * (p * (1 - p))[:, None]
    return np.asarray(np.linalg.solve(Phi.T @ heavy + np.diag(alpha), heavy.T @ f + Phi.T @ (t - p)))
