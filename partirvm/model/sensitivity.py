"""How a model's predictions depend on its features: gradients, and the relevance of each feature.

The relevance of feature j is its total Sobol index, the fraction of the variance of the predictions
f(x) that remains if all features except j are known (Sobol 1993). Jansen's estimator (1999;
Saltelli et al. 2010, table 2) compares the predictions for n rows with the predictions after
feature j has been replaced by its value in another row:

    S_j = Σ_i (f(x_i) − f(x_i with x_πj))² / (2n Var f)

All parts of the model are included: kernels, basis functions, levels, warps, indicators of missing
values and local residuals. For a linear f of independent features, S_j = b_j² Var(x_j) / Var f.
Interactions count for each of their features, so the sum may exceed 1; for correlated features, the
index shows how the model uses each of them alone.

For a model with an ANOVA kernel and without local residuals, the index is exact for independent
features, each with the distribution of its values in the rows, and refers to the linear predictors
(``model.feature_effects``).

For several targets, the index is the mean over the targets, in the units of the fit; for classes, f
denotes the probabilities, and squares and variances are summed over classes. A feature on which no
part of the model depends has an index of exactly 0, any other feature at least ``LEAST``.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from partirvm.core.predictive import ROWS as PIECE_ROWS
from partirvm.core.predictive import products
from partirvm.errors import DataError, UsageError
from partirvm.kernels.base import padded
from partirvm.kernels.design import TEMPER
from partirvm.model.base import HEIGHT, FittedModel, linear_values
from partirvm.model.feature_effects import shares_of
from partirvm.process import one_blas_thread
from partirvm.scaling.maps import STEP
from partirvm.types import Float

LEAST = 1e-12
"""Relevance of a feature on which the model depends, but which changes no prediction for the
sampled rows."""

ROWS = 500
"""Maximum number of sampled rows."""

FEWEST = 32
"""Minimum number of sampled rows."""

WORK = 4e9
"""Maximum number of rows × features × inputs × columns. If ``FEWEST`` rows exceed it, indices are
computed from gradients."""

NEIGHBOURS_COST = 2000
"""Number of columns whose evaluation takes as long as the local residual of a row."""


def most_rows(n_features: int) -> int:
    """Return the number of rows to sample, which take at most 16 MiB with this many features."""
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

    Only the first ``rows_needed`` rows are used.
    """
    used = model.used_features
    exact = None if getattr(model, "residuals", None) is not None else shares_of(model)
    if exact is not None:
        return np.where(used, np.maximum(exact, LEAST), 0.0)
    X = X[: rows_needed(model)]
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
    """Return the indices (d,) as if slopes were constant between rows, mean(∂f/∂x_j)² Var(x_j) /
    Var f.

    The indices refer to the linear predictors, without local residuals (Sobol & Kucherenko 2009). A
    Python function has no gradient; its features get 0.
    """
    design = model.design
    spread = np.nanvar(X, axis=0)
    try:
        block = design.block(X)
        filled = np.where(np.isnan(X), np.nan_to_num(np.nanmean(X, axis=0)), X)
        slopes = np.stack(linear_slopes(model, filled, block))
    except UsageError:
        return np.zeros(X.shape[1])
    f = linear_values(design, model.mean, X)[0].reshape(len(X), -1)
    squares = (slopes**2).mean(axis=1).sum(axis=0)
    return np.asarray(squares * spread / max(float(f.var(axis=0).sum()), np.finfo(float).tiny))


def gradients(model: Any, X: Float, *, std: bool) -> tuple[Float, Float]:
    """Return the predictions of a regression with their gradients, and nearness (n,).

    The values (n, V) are the means of T targets and, with ``std``, their standard deviations, then
    the gradient (d) of each, all from ``predictive``. The derivative is 0 with respect to category
    codes and at a kernel's kink. Raises ``UsageError`` for local residuals and user-defined
    functions, and ``DataError`` for missing numbers.

    Args:
        model: a regression model.
        X: raw inputs (n, d).
        std: True to include the standard deviations and their gradients.
    """
    if model.residuals is not None:
        raise UsageError(
            "local residuals have no gradient: fit with residual='none', or take model_.sparse()"
        )
    if model.trees is not None:
        raise UsageError(
            "boosted trees are steps, which have no gradient with respect to the inputs: fit "
            "without basis='trees', or take model_.sparse()"
        )
    is_number = [name not in model.columns.categories for name in model.columns.features]
    if np.isnan(X[:, is_number]).any():
        raise DataError("rows with missing numbers have no gradient: fill the values in")
    starts = range(0, max(len(X), 1), HEIGHT)
    model = model.predictive
    rows = [slice(start, start + HEIGHT) for start in starts]
    panels = [_gradients(model.of_panel(panel), X[panel], std=std) for panel in rows]
    values, nearness = zip(*panels, strict=True)
    return np.concatenate(values), np.concatenate(nearness)


@one_blas_thread()
def _gradients(model: Any, X: Float, *, std: bool) -> tuple[Float, Float]:
    """Return ``gradients`` for a panel, by the chain rule from Φμ and φᵀΣφ."""
    n = len(X)
    T = model.n_targets
    mean, variance, near = replace(model, reach=0.0).moments(X)
    rows = padded(X, PIECE_ROWS)  # makes the bits independent of the number of rows
    block = model.design.block(rows)
    mean_slopes = _mean_slopes(model, X, block)
    variance_slopes = _variance_slopes(model, X, block) + _gap_slopes(model, X)
    if model.design.noise is not None:  # only with one target
        variance_slopes = variance_slopes + _noise_slopes(model, X)[:, None]
    if model.reach:
        variance_slopes = _prior_slopes(model, rows, block, variance, variance_slopes)
        variance = model.with_prior(variance, near)
    target = model.design.scaling.target
    moved: Any = target.moments(  # as in ``pulled_back``
        mean.reshape(n, T, 1) + 1j * STEP * mean_slopes,
        variance.reshape(n, T, 1) + 1j * STEP * variance_slopes,
    )
    mean, variance = target.moments(mean, variance)
    values = [mean]
    slopes_of_values = [moved[0].imag / STEP]
    if std:
        values.append(np.sqrt(variance))
        slopes_of_values.append(np.sqrt(moved[1]).imag / STEP)
    parts = [part.reshape(n, -1) for part in (*values, *slopes_of_values)]
    return np.hstack(parts), near


def _mean_slopes(model: Any, X: Float, block: Float) -> Float:
    """Return the gradients (n, T, d) of the means at raw inputs X (n, d), from the design ``block``
    (m, M) there, with m − n rows of padding."""
    rows = padded(X, PIECE_ROWS)
    slopes = np.stack(linear_slopes(model, rows, block), axis=1)[: len(X)]
    of_effects = np.reshape(model.effect_slopes(X) * np.ones_like(X), (len(X), 1, -1))
    return np.asarray(model.design.scaling.t_scale[:, None] * (slopes + of_effects))


def _gap_slopes(model: Any, X: Float) -> Float:
    """Return the gradients (n, T, d) of the variance of the mean when vectors' labels replace
    missing ones (``Model``) at raw inputs X (n, d)."""
    slopes = np.zeros((len(X), model.n_targets, X.shape[1]))
    missing = model.gaps_to_fill(X)
    rows = np.flatnonzero(missing.any(axis=1))
    if not len(rows) or not model.n_vectors:
        return slopes
    values = []
    gradients_of_values = []
    for vector in model.filling_vectors:
        filled = np.where(missing[rows], vector, X[rows])
        values.append(linear_values(model.design, model.mean, filled)[0].reshape(len(rows), -1))
        of_targets = linear_slopes(model, filled, model.design.block(filled))
        gradients_of_values.append(np.stack(of_targets, axis=1))
    deviations = np.array(values) - np.mean(values, axis=0)
    products_of_both = deviations[..., None] * np.array(gradients_of_values)
    scale = model.design.scaling.t_scale[:, None]
    slopes[rows] = 2.0 * scale**2 * products_of_both.mean(axis=0)
    return slopes


def _noise_slopes(model: Any, X: Float) -> Float:
    """Return the gradients (n, d) of the noise variance at raw inputs X (n, d)."""
    power = TEMPER if model.calibration is None else 1.0
    slopes = power * model.noise_at(X) * model.design.noise_gradient(X).T
    if model.design.scaling.doubtful:
        slopes = np.where(model.noise_factor(X, power) < model.widest_factor, slopes, 0.0)
    return np.asarray(slopes.T)


def linear_slopes(model: FittedModel, rows: Float, block: Float) -> list[Float]:
    """Return the gradients (m, d) of each linear predictor at raw inputs ``rows`` (m, d), from the
    design ``block`` (m, M) there."""
    return [
        model.design.raw_gradient(rows, block, np.broadcast_to(weights, block.shape))
        for weights in np.atleast_2d(model.mean.T)
    ]


def _variance_slopes(model: Any, X: Float, block: Float) -> Float:
    """Return the gradients (n, T, d) of φᵀΣφ at raw inputs X (n, d), from the design ``block`` (m,
    M) there, with m − n rows of padding."""
    n = len(X)
    M = len(model.mean)
    added = model.added(X, slice(0, n))
    moved = block
    if added is not None:
        moved = block.copy()
        moved[:n] += added
    rows = padded(X, PIECE_ROWS)
    slopes = []
    for root in model.root.reshape(model.n_targets, M, M):
        weights = 2.0 * products(products(moved, root), root.T)
        of_columns = model.design.raw_gradient(rows, block, weights)[:n]
        slopes.append(of_columns + model.effect_slopes(X, weights[:n]))
    scale = model.design.scaling.t_scale[:, None]
    return np.asarray(scale**2 * np.stack(slopes, axis=1))


def _prior_slopes(model: Any, rows: Float, block: Float, variance: Float, slopes: Float) -> Float:
    """Return the gradients (n, T, d) of the variances from ``Model.with_prior``.

    Args:
        model: a regression model with a reach.
        rows: (m, d), the n raw inputs followed by m − n rows of padding.
        block: (m, M), the design at the rows.
        variance: (n,) or (n, T), variances without the prior.
        slopes: (n, T, d), their gradients.
    """
    n, T, _ = slopes.shape
    near, slopes_of_nearness = _nearness_slopes(model, rows, block)
    near = near[:n]
    share = model.prior_share(near)
    is_between = (share > 0.0) & (share < 1.0)
    slopes_of_share = np.where(is_between, -2.0 * near / model.reach**2, 0.0)
    missing = model.prior_variance + model.noise_variance - variance.reshape(n, T)
    likelihood_share = 1.0 - share[:, None] * (missing > 0.0)
    growth = slopes_of_share[:, None] * np.maximum(missing, 0.0)
    slopes = likelihood_share[:, :, None] * slopes
    return np.asarray(slopes + growth[:, :, None] * slopes_of_nearness[:n, None])


def _nearness_slopes(model: Any, rows: Float, block: Float) -> tuple[Float, Float]:
    """Return the nearness (m,) of raw inputs ``rows`` (m, d) and its gradients (m, d), from the
    design ``block`` (m, M) there."""
    n_leading = model.design.n_leading
    peaks = model.design.peaks()
    ratios = block[:, n_leading:] / peaks
    nearest = ratios.argmax(axis=1)
    weights = np.zeros(block.shape)
    weights[np.arange(len(rows)), n_leading + nearest] = 1.0 / peaks[nearest]
    return ratios.max(axis=1), model.design.raw_gradient(rows, block, weights)
