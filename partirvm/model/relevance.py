"""How much each feature matters to a model's predictions, measured on the model itself.

The relevance of feature j is its total Sobol index, the share of the variance of the predictions
f(x) that is lost if all features but j are known (Sobol 1993). Jansen's estimator (1999; Saltelli
et al. 2010, table 2) compares the predictions of n rows with those of the same rows with the value
of feature j taken from another row:

    S_j = Σ_i (f(x_i) − f(x_i with x_πj))² / (2n Var f)

Everything that predicts counts: kernels, basis functions, levels, warps, indicators of missing
values and local residuals. For a linear f of independent features, S_j = b_j² Var(x_j) / Var f.
Interactions count for each of their features, so the sum may exceed 1; of correlated features, the
index shows what the model does with each alone.

The mean of several targets, in the units of the fit, is over their indices; for classes, f are the
probabilities, and squares and variances are summed over classes. A feature that no part of the
model depends on has exactly 0, any other at least ``LEAST``.
"""

from typing import Any

import numpy as np

from partirvm.errors import UsageError
from partirvm.model.base import FittedModel, linear_values
from partirvm.process import one_blas_thread
from partirvm.types import Float

LEAST = 1e-12
"""Relevance of a feature that the model depends on, but that changes no prediction of the sampled
rows."""

ROWS = 500
"""Maximum number of sampled rows."""

FEWEST = 32
"""Minimum number of sampled rows."""

WORK = 4e9
"""Maximum number of rows × features × inputs × columns. With ``FEWEST`` rows above it, indices come
from gradients."""

NEIGHBOURS_COST = 2000
"""Number of columns whose evaluation takes as long as the local residual of a row."""


def most_rows(n_features: int) -> int:
    """Return the number of rows of this many features to sample, which take at most 16 MiB."""
    return min(max(2**21 // n_features, FEWEST), ROWS)


def rows_needed(model: FittedModel) -> int:
    """Return the number of rows from which the relevance of the model's features is computed."""
    return min(max(int(WORK / max(_work(model), 1.0)), FEWEST), ROWS)


def _work(model: FittedModel) -> float:
    """Return the work for one row."""
    columns = model.design.n_columns * (1 if model.mean.ndim == 1 else 2)
    columns += NEIGHBOURS_COST * (getattr(model, "residuals", None) is not None)
    return float(model.used_features.sum()) * model.design.scaling.n_inputs * columns


@one_blas_thread()
def feature_relevance(model: FittedModel, X: Float) -> Float:
    """Return the relevance (d,) of each feature, from random rows X (n, d) in random order.

    Only the first ``rows_needed`` rows count.
    """
    X = X[: rows_needed(model)]
    used = model.used_features
    if len(X) < 2:
        return np.where(used, LEAST, 0.0)
    values = model.explained_values(X)
    total = values.var(axis=0)
    if len(X) * _work(model) > 1.5 * WORK:
        indices = _by_gradients(model, X, values)
    else:
        indices = np.zeros(len(used))
        for j in np.flatnonzero(used):
            changed = X.copy()
            changed[:, j] = np.roll(X[:, j], 1)
            indices[j] = _share((values - model.explained_values(changed)) ** 2, total, model)
    return np.where(used, np.maximum(indices, LEAST), 0.0)


def _share(squares: Float, total: Float, model: FittedModel) -> float:
    """Return the index for squared changes (n, V) of predictions with variances ``total`` (V,)."""
    half = 0.5 * squares.mean(axis=0)
    if model.one_unit:
        half = half.sum(keepdims=True)
        total = total.sum(keepdims=True)
    varies = total > 0.0
    return float((half[varies] / total[varies]).mean()) if varies.any() else 0.0


def _by_gradients(model: Any, X: Float, values: Float) -> Float:
    """Return the indices (d,) for slopes that are constant between rows, mean(∂f/∂x_j)² Var(x_j) /
    Var f.

    They are those of the linear predictors, without local residuals (Sobol & Kucherenko 2009). A
    function of Python has no gradient: its features have 0.
    """
    design = model.design
    spread = np.nanvar(X, axis=0)
    try:
        block = design.block(X)
        weights = model.mean.reshape(len(model.mean), -1).T
        filled = np.where(np.isnan(X), np.nan_to_num(np.nanmean(X, axis=0)), X)
        slopes = np.stack(
            [
                design.raw_gradient(filled, block, np.broadcast_to(column, block.shape))
                for column in weights
            ]
        )
    except UsageError:
        return np.zeros(X.shape[1])
    f = linear_values(design, model.mean, X)[0].reshape(len(X), -1)
    squares = (slopes**2).mean(axis=1).sum(axis=0)
    return np.asarray(squares * spread / max(float(f.var(axis=0).sum()), np.finfo(float).tiny))
