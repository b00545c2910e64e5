"""Shapley values of a regression's mean: how far each column moved a prediction away from the
background mean.

For a row x and a background row b, let v(S) be the mean at the columns S of x and the other columns
of b. The Shapley value of column j is the average of v(S ∪ j) − v(S) over all orders in which the
columns may join S, and over background rows (the interventional game). The values add up to the
prediction at x minus the background's average.

**Exact.** If each basis function is a product over columns, with the factors a_j at x and c_j at b,

    v(S) = Σ_m w_m Π_{j ∈ S} a_mj Π_{j ∉ S} c_mj
    φ_j  = Σ_m w_m (a_mj − c_mj) ∫₀¹ Π_{i ≠ j} u_mi(t) dt

with u_mi(t) = c_mi + t (a_mi − c_mi): let each column join at a uniform random time; the columns
that joined before t form S. The integrand has degree d − 1, so Gauss–Legendre quadrature with ⌈d/2⌉
points is exact. The product without factor j is the full product divided by u_mj, whose rounding
error cancels. With an even number of points, none is ½, so u_mj is zero only where the quotient has
no weight. Sums and linear functions follow by additivity. An ANOVA kernel without an order is
a product over columns up to a constant, to which no column contributes.

**Sampled.** Otherwise, each background row is changed into x column by column, in random orders and
their reverses.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from partirvm import kernels
from partirvm.data.frame_rows import checked_rows
from partirvm.errors import UsageError
from partirvm.export.graph import model_of
from partirvm.kernels.base import Family, runs
from partirvm.kernels.design import Design
from partirvm.kernels.interactions import total_of
from partirvm.types import Columns, Float, Int, cyclic

SEPARABLE = (
    kernels.Gaussian,
    kernels.Laplacian,
    kernels.Categorical,
    kernels.LinearSpline,
    kernels.Linear,
)
"""Kernels that are products or sums over inputs. Classes derived from them may return other
values."""

FACTOR_ROWS = 64
"""Number of rows whose factors are in memory at the same time."""

STEP_FACTORS = 1 << 17
"""Number of factors per step."""

SAMPLED_ROWS = 4096
"""Number of sampled predictions per step."""


class JointError(Exception):
    """Raised if basis functions depend on several columns but are not products over them."""


def explain(
    model: Any, X: Any, background: Any, permutations: int = 4, seed: int = 0
) -> dict[str, Any]:
    """Return Shapley values of the mean: how far each column moved a regression's predictions.

    v(S) is the mean of the predictions at the background rows with the columns S of x. The returned
    dictionary has the arguments of ``shap.Explanation``, which shap can plot:

    ``values`` (n, p) add up to the prediction minus ``base_values`` (n,), the mean prediction of
    the background. Both have the target's unit, or that of a warped target's map. ``data`` (n, p)
    holds the rows, with category codes and days for dates. ``feature_names`` are the p columns as
    passed: a column that becomes several kernel inputs (levels, date cycles, gaps) has a single
    value. Local residuals form a last column, with NaN as data and the correction as value; the
    base excludes them. ``output_names`` names the target or its map. ``error_std`` is None.

    Values are exact for kernels that are products over columns (Gaussian, Laplacian, categorical,
    linear spline, ANOVA without an order or with order 1, and any kernel of one column), for
    products and sums of these, and for ``basis="linear"``. For others, such as Matérn kernels,
    directions of several columns and boosted trees, they are sampled: each background row becomes x
    along random permutations of the columns, and along their reverses. Sampled values also add up;
    ``output_names`` then ends in "(sampled)", and ``error_std`` (n, p) holds standard errors.

    A row takes B·M·d²/2 steps of about 3 ns for M vectors, or 2·B·``permutations``·(d + 1) sampled
    predictions. Raises ``UsageError`` for several targets or an empty background, ``DataError`` for
    different features.

    Parameters
    ----------
    model : model or fitted estimator
        A regression model with one target.
    X : array-like or data frame (n, d)
        Rows to explain, in memory.
    background : array-like or data frame (B, d)
        Rows that represent the data, such as 100 random training rows.
    permutations : int
        Number of permutations for each background row, at least 2.
    seed : int
        Seed of the permutations.

    Examples
    --------
    >>> from partirvm import RVMRegressor
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(1).normal(size=100)
    >>> model = RVMRegressor("gaussian", random_state=0).fit(X, y)
    >>> explanation = model.explain(X[:5], background=X)
    >>> explanation["feature_names"], explanation["values"].shape
    (['x0', 'x1'], (5, 2))
    >>> sums = explanation["values"].sum(axis=1) + explanation["base_values"]
    >>> np.allclose(sums, model.predict(X[:5]))
    True
    """
    model = model_of(model)
    model.require_one_target("explanations")
    columns = model.columns
    uncorrected = replace(model, residuals=None)
    rows = checked_rows(X, columns)
    others = checked_rows(background, columns)
    if not len(others) or permutations < 2:
        raise UsageError("background needs at least one row, and permutations must be at least 2")
    predictions = uncorrected.moments(rows, variance=False)[0]
    base = uncorrected.moments(others, variance=False)[0].mean()
    owners = _owners(columns)
    data = rows[:, [columns.features.index(name) for name in columns.given]]
    names = list(columns.given)
    title = model.design.scaling.target.name(columns.target)
    errors = None
    try:
        values = _exact(uncorrected, owners, rows, others)
    except JointError:
        values, errors = _sampled(uncorrected, owners, rows, others, permutations, seed)
        title += " (sampled)"
    values = _adding_up(values, predictions - base)
    if model.residuals is not None:
        names.append("local residuals")
        data = np.column_stack([data, np.full(len(rows), np.nan)])
        correction = model.moments(rows, variance=False)[0] - predictions
        values = np.column_stack([values, correction])
        if errors is not None:
            errors = np.column_stack([errors, np.zeros(len(rows))])
    return {
        "values": values,
        "base_values": np.full(len(rows), base),
        "data": data,
        "feature_names": names,
        "output_names": title,
        "error_std": errors,
    }


def _owners(columns: Columns) -> Int:
    """Return the number (d,) of the column from which each feature was derived."""
    columns_of = {name: name for name in columns.given}
    for column, cycles in columns.dates.items():
        columns_of |= dict.fromkeys(cyclic(column, cycles), column)
    return np.array([columns.given.index(columns_of[name]) for name in columns.features])


def _adding_up(values: Float, totals: Float) -> Float:
    """Return the values (n, p), adjusted so that they add up to ``totals`` (n,): rounding errors
    are larger where large weights cancel."""
    sizes = np.abs(values) + 1e-300
    errors = totals - values.sum(axis=1)
    shares = errors[:, None] * sizes / sizes.sum(axis=1, keepdims=True)
    return np.asarray(values + shares)


def _require_products(model: Any, X: Float, background: Float) -> None:
    """Raise ``JointError`` if inputs, or basis functions, depend on several columns."""
    design = model.design
    if model.trees is not None:
        raise JointError
    features = design.scaling.features
    if features is not None and any(weights.shape[2] > 1 for _, weights in features.effects):
        raise JointError  # level effects depend on other columns
    if design.scaling.regressions is not None and (np.isnan(X).any() or np.isnan(background).any()):
        raise JointError
    if (design.single_features < 0).any():
        raise JointError


def _exact(model: Any, owners: Int, X: Float, background: Float) -> Float:
    """Return the Shapley values (n, p).

    Args:
        model: without local residuals
        owners: (d,), the number of each feature's column
        X: (n, d)
        background: (B, d)
    """
    _require_products(model, X, background)
    design = model.design
    scaling = design.scaling
    owners = owners[scaling.sources]
    inputs = scaling.inputs(X)
    others = scaling.inputs(background)
    values = np.zeros((len(X), owners.max() + 1))
    weights = model.mean[int(design.bias) :] * scaling.t_scale
    differences = _leading(design, X) - _leading(design, background).mean(axis=0)
    for place, j in enumerate(design.single_features.tolist()):
        values[:, owners[j]] += weights[place] * differences[:, place]
    for products in _kernel_products(design, owners, weights[len(design.active) :]):
        products.add_values(values, inputs, others)
    return values


def _leading(design: Design, X: Float) -> Float:
    """Return the values (n, k) of the active basis functions at raw inputs X (n, d)."""
    columns = np.empty((len(X), design.n_leading))
    design.lead(X, columns)
    return columns[:, int(design.bias) :]


def _kernel_products(design: Design, owners: Int, weights: Float) -> Iterator["ColumnProducts"]:
    """Yield the kernel columns as sums of products, in groups.

    Args:
        design: the design
        owners: (d',), the column of each input
        weights: weights of the kernel columns, (m,)
    """
    centres = design.scaling.inputs(design.centres)
    for number, kernel in enumerate(design.kernels):
        kernel_columns = np.flatnonzero(design.which == number)
        for scale, factors in products_of(kernel, np.arange(len(owners)), owners):
            for group in runs(len(kernel_columns), max(1, STEP_FACTORS // len(factors))):
                places = kernel_columns[group]
                yield ColumnProducts(factors, centres[places], scale * weights[places])


class Factor(NamedTuple):
    """A factor of a product that depends on one column.

    Attributes:
        column: the number of the column
        kernel: a function of the inputs with ``values``, such as a kernel
        inputs: (r,), the positions of the column's inputs
    """

    column: int
    kernel: Any
    inputs: Int


def products_of(
    kernel: kernels.Kernel, inputs: Int, owners: Int
) -> list[tuple[float, list[Factor]]]:
    """Return a kernel on ``inputs`` (positions) as a sum of products: weights and factors.

    ``owners`` (d',) holds the column of each input. Raises ``JointError`` if this is
    impossible.
    """
    if isinstance(kernel, kernels.OnColumns):
        return products_of(kernel.kernel, inputs[list(kernel.columns)], owners)
    if isinstance(kernel, kernels.Sum):
        terms = list[tuple[float, list[Factor]]]()
        for weight, part in zip(kernel.weights, kernel.parts, strict=True):
            products = products_of(part, inputs, owners)
            terms += [(weight * scale, factors) for scale, factors in products]
        return terms
    if isinstance(kernel, kernels.Product):
        terms = [(1.0, [])]
        for part in kernel.parts:
            pairs = itertools.product(terms, products_of(part, inputs, owners))
            terms = [(a * b, first + second) for (a, first), (b, second) in pairs]
        return terms
    if type(kernel) is kernels.Anova:
        return _of_anova(kernel, inputs, owners)
    factors = _factors(kernel, inputs, owners)
    if len(factors) > 1 and type(kernel) not in SEPARABLE:
        raise JointError
    if type(kernel) is kernels.Linear:
        return [(1.0, [factor]) for factor in factors]
    return [(1.0, factors)]


def _factors(kernel: kernels.Kernel, inputs: Int, owners: Int) -> list[Factor]:
    """Return a factor for each column of a simple kernel on ``inputs``; ``owners`` is as in
    ``products_of``."""
    widths = kernel.widths(len(inputs)) if isinstance(kernel, Family) else np.ones(len(inputs))
    factors = list[Factor]()
    for column in np.unique(owners[inputs[widths > 0]]).tolist():
        places = np.flatnonzero((widths > 0) & (owners[inputs] == column))
        part = kernel
        if isinstance(kernel, Family):
            part = replace(kernel, gamma=tuple(widths[places].tolist()))
        factors.append(Factor(column, part, inputs[places]))
    return factors


@dataclass(frozen=True)
class Raised:
    """The function 1 + ``scale`` k of a kernel k on some inputs, the factor of an ANOVA kernel."""

    kernel: kernels.Anova
    scale: float

    def values(self, points: Float, centres: Float) -> Float:
        """Return the values (n, m) at points (n, r) and centres (m, r)."""
        return 1.0 + self.scale * self.kernel.values(points, centres)


def _of_anova(kernel: kernels.Anova, inputs: Int, owners: Int) -> list[tuple[float, list[Factor]]]:
    """Return an ANOVA kernel on ``inputs`` as ``products_of`` does, up to a constant.

    Without an order, it is the product over columns of 1 + S for the sum S of the column's inputs,
    minus 1. With order 1, it is the sum of S. Raises ``JointError`` for other orders.
    """
    d = len(inputs)
    shares = kernel.shares_of(d)
    widths = kernel.widths(d)
    total = float(total_of(shares[:, None], kernel.order)[0])
    factors = list[Factor]()
    scales = list[float]()
    weight = 1.0 / total
    for column in np.unique(owners[inputs[shares > 0]]).tolist():
        places = np.flatnonzero((shares > 0) & (owners[inputs] == column))
        scale = float(total_of(shares[places, None], kernel.order)[0])
        if not widths[places].any():
            weight *= 1.0 + scale  # a constant factor
            continue
        part = kernel.on(places, widths[places], shares[places])
        scales.append(scale)
        factors.append(Factor(column, part, inputs[places]))
    pairs = list(zip(scales, factors, strict=True))
    if kernel.order == 1:
        return [(scale / total, [factor]) for scale, factor in pairs]
    if kernel.order is not None and kernel.order < np.count_nonzero(shares):
        raise JointError
    raised = [factor._replace(kernel=Raised(factor.kernel, scale)) for scale, factor in pairs]
    return [(weight, raised)]


@dataclass(frozen=True, eq=False)
class ColumnProducts:
    """Basis functions that are products over columns.

    Attributes:
        factors: the factors, of one column each
        centres: the centres (m, d')
        weights: (m,)
    """

    factors: list[Factor]
    centres: Float
    weights: Float

    @cached_property
    def columns(self) -> list[int]:
        """The p' columns that have a factor, in order."""
        return sorted({factor.column for factor in self.factors})

    @cached_property
    def quadrature(self) -> tuple[Float, Float]:
        """Nodes and weights of the integral over [0, 1]."""
        nodes, shares = np.polynomial.legendre.leggauss(2 * ((len(self.columns) + 3) // 4))
        return 0.5 + 0.5 * nodes, 0.5 * shares

    def table(self, points: Float) -> Float:
        """Return the factors (p', n, m) of each column at points (n, d')."""
        table = np.ones((len(self.columns), len(points), len(self.centres)))
        for column, kernel, inputs in self.factors:
            values = kernel.values(points[:, inputs], self.centres[:, inputs])
            table[self.columns.index(column)] *= values
        return table

    def add_values(self, values: Float, X: Float, background: Float) -> None:
        """Add the Shapley values at the inputs X (n, d') to ``values`` (n, p)."""
        height = max(1, STEP_FACTORS // (len(self.columns) * len(self.centres)))
        blocks = itertools.product(runs(len(background), FACTOR_ROWS), runs(len(X), FACTOR_ROWS))
        for others, rows in blocks:
            far = self.table(background[others])
            near = self.table(X[rows])
            for n, part in itertools.product(range(near.shape[1]), runs(far.shape[1], height)):
                added = self._integrals(near[:, n, None], far[:, part], len(background))
                values[rows.start + n, self.columns] += added

    def _integrals(self, near: Float, far: Float, count: int) -> Float:
        """Return the Shapley values (p',) of one row, as means over ``count`` background rows.

        ``near`` (p', 1, m) contains its factors, and ``far`` (p', b, m) the factors of background
        rows.
        """
        step = near - far
        total = np.zeros(far.shape)
        u = np.empty(far.shape)
        for node, share in zip(*self.quadrature, strict=True):
            np.multiply(node, step, out=u)
            u += far
            products = share / count * u.prod(axis=0)
            total += np.divide(products, u, out=u, where=u != 0.0)
        return np.asarray((total * step).sum(axis=1) @ self.weights)


def _sampled(
    model: Any, owners: Int, X: Float, background: Float, rounds: int, seed: int
) -> tuple[Float, Float]:
    """Return estimated Shapley values (n, p), and their standard errors over rounds of
    permutations.

    Args:
        model: without local residuals
        owners: (d,), the number of each feature's column
        X: (n, d)
        background: (B, d)
        rounds: the number of permutations of each background row
        seed: seed of the permutations
    """
    B = len(background)
    p = int(owners.max()) + 1
    rng = np.random.default_rng(seed)
    places = rng.permuted(np.tile(np.arange(p), (rounds, B, 1)), axis=2)
    values = np.zeros((rounds, len(X), p))
    blocks = itertools.product(range(rounds), range(len(X)), runs(B, max(1, SAMPLED_ROWS // p)))
    for k, n, part in blocks:
        order = places[k, part]  # the position of each column in its order
        for place in (order, p - 1 - order):
            has_joined = place[:, None, owners] < np.arange(p + 1)[:, None]  # (b, p + 1, d)
            rows = np.where(has_joined, X[n], background[part, None])
            rows = rows.reshape(-1, X.shape[1])
            means = model.moments(rows, variance=False)[0].reshape(-1, p + 1)
            steps = np.take_along_axis(np.diff(means, axis=1), place, axis=1)
            values[k, n] += steps.sum(axis=0) / (2 * B)
    return values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(rounds)
