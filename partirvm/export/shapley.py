"""Shapley values of a regression's mean: how far each column moved a prediction away from the
background mean.

For a row x and a background row b, let v(S) be the mean at the columns S of x and the other columns
of b. The Shapley value of column j is the average of v(S ∪ j) − v(S) over all orders in which the
columns may join S, and over background rows (the interventional game). The values add up to the
prediction at x minus the background's average.

**Exact.** If each basis function is a product over columns, with the factors a_j at x and c_j at b,

    v(S) = Σ_m w_m Π_{j ∈ S} a_mj Π_{j ∉ S} c_mj,    φ_j = Σ_m w_m (a_mj − c_mj) ∫₀¹ Π_{i ≠ j}
    u_mi(t) dt

with u_mi(t) = c_mi + t (a_mi − c_mi): let each column join at a uniform random time; those that
joined before t form S. The integrand has degree d − 1, so Gauss–Legendre quadrature with ⌈d/2⌉
points is exact. The product without factor j is the full product divided by u_mj, whose rounding
error cancels. With an even number of points, none is ½, so u_mj is zero only where the quotient has
no weight. Sums and linear functions follow by additivity.

**Sampled.** Otherwise, each background row is changed into x column by column, in random orders and
their reverses.
"""

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np

from partirvm import kernels
from partirvm.data.convert import checked_rows
from partirvm.errors import UsageError
from partirvm.export.graph import model_of
from partirvm.kernels.base import Family, runs
from partirvm.kernels.functions import LINEAR
from partirvm.types import Float, Int, cyclic

SEPARABLE = (
    kernels.Gaussian,
    kernels.Laplacian,
    kernels.Categorical,
    kernels.LinearSpline,
    kernels.Linear,
)
"""Kernels that are a product over inputs, or a sum. A class derived from one of them may have other
values."""

ROWS, BLOCK = 64, 1 << 17
"""Number of rows whose factors are in memory together, and number of factors per step."""


class JointError(Exception):
    """Raised if basis functions depend on several columns in any other way than as a product."""


def explain(
    model: Any, X: Any, background: Any, permutations: int = 4, seed: int = 0
) -> dict[str, Any]:
    """Return Shapley values of the mean: how far each column moved a regression's predictions at X
    (n, d).

    ``background`` (B, d) holds rows that represent the data, such as 100 random training rows: v(S)
    is the mean of the predictions at these rows with the columns S of x. Rows are in-memory arrays,
    lists or data frames. The returned dictionary has the arguments of ``shap.Explanation``, which
    shap can plot:

    ``values`` (n, p) add up to the prediction minus ``base_values`` (n,), the mean prediction of
    the background. Both have the target's unit, or that of a warped target's map. ``data`` (n, p)
    holds the rows, with category codes and days for dates. ``feature_names`` are the p columns as
    passed: one that becomes several kernel inputs (levels, date cycles, gaps) has one value. Local
    residuals form a last column, with NaN as data and the correction as value; the base excludes
    them. ``output_names`` names the target or its map. ``error_std`` is None.

    Values are exact for kernels that are products over columns (Gaussian, Laplacian, categorical,
    linear spline, and any kernel of one column), for products and sums of these, and for
    ``basis="linear"``. For others, such as Matérn kernels and directions of several columns, they
    are sampled: each background row becomes x along that many random ``permutations`` of the
    columns (at least two), drawn with ``seed``, and along their reverses. Sampled values add up as
    well; ``output_names`` then ends in "(sampled)", and ``error_std`` (n, p) holds standard errors.

    A row takes B·M·d²/2 steps of about 3 ns for M vectors, or 2·B·``permutations``·(d + 1) sampled
    predictions. Raises ``UsageError`` for several targets or an empty background, ``DataError`` for
    different features.

    Examples
    --------
    >>> from partirvm import RVMRegressor
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(1).normal(size=100)
    >>> model = RVMRegressor("gaussian", random_state=0).fit(X, y)
    >>> found = model.explain(X[:5], background=X)
    >>> found["feature_names"], found["values"].shape
    (['x0', 'x1'], (5, 2))
    >>> np.allclose(found["values"].sum(axis=1) + found["base_values"], model.predict(X[:5]))
    True
    """
    model = model_of(model)
    model.require_one_target("explanations")
    columns = model.columns
    sparse = model.sparse()
    errors = None
    rows = checked_rows(X, columns)
    others = checked_rows(background, columns)
    if not len(others) or permutations < 2:
        raise UsageError("background needs at least one row, and permutations must be at least 2")
    own = sparse.moments(rows, variance=False)[0]
    base = sparse.moments(others, variance=False)[0].mean()
    made = {
        name: column for column, cycles in columns.dates.items() for name in cyclic(column, cycles)
    }
    owners = np.array([columns.given.index(made.get(name, name)) for name in columns.features])
    data = rows[:, [columns.features.index(name) for name in columns.given]]
    names = list(columns.given)
    title = model.design.scaling.target.name(columns.target)
    try:
        values = _exact(sparse, owners, rows, others)
    except JointError:
        values, errors = _sampled(sparse, owners, rows, others, permutations, seed)
        title += " (sampled)"
    share = (
        np.abs(values) + 1e-300
    )  # share of the sum's rounding error, which is larger where large weights cancel
    values += (own - base - values.sum(axis=1))[:, None] * share / share.sum(axis=1, keepdims=True)
    if model.residuals is not None:
        names = [*names, "local residuals"]
        data = np.column_stack([data, np.full(len(rows), np.nan)])
        values = np.column_stack([values, model.moments(rows, variance=False)[0] - own])
        errors = None if errors is None else np.column_stack([errors, np.zeros(len(rows))])
    facts = {"data": data, "feature_names": names, "output_names": title, "error_std": errors}
    return {"values": values, "base_values": np.full(len(rows), base), **facts}


def _exact(model: Any, owners: Int, X: Float, background: Float) -> Float:
    """Return the Shapley values (n, p); ``owners`` (d,) holds the number of each feature's original
    column."""
    design = model.design
    scaling = model.design.scaling
    effects = () if scaling.features is None else scaling.features.effects
    joint = any(
        weights.shape[2] > 1 for _, weights in effects
    )  # level effects that depend on other columns
    gaps = scaling.regressions is not None and any(np.isnan(rows).any() for rows in (X, background))
    if (
        joint
        or gaps
        or (
            len(design.active) and any(function != LINEAR for function, _ in design.functions.parts)
        )
    ):
        raise JointError
    inputs, others, centres = (scaling.inputs(rows) for rows in (X, background, design.centres))
    weights = model.mean * scaling.t_scale
    own = owners[scaling.sources]
    lead = design.n_leading
    found = np.zeros((len(X), owners.max() + 1))
    for weight, j in zip(weights[int(design.bias) : lead], design.active % X.shape[1], strict=True):
        found[:, own[j]] += weight * (inputs[:, j] - others[:, j].mean())
    for k, kernel in enumerate(design.kernels):
        mine = np.flatnonzero(design.which == k)
        for scale, factors in products_of(kernel, np.arange(scaling.n_inputs), own):
            for some in runs(len(mine), max(1, BLOCK // len(factors))):
                _add(
                    found,
                    factors,
                    inputs,
                    others,
                    centres[mine[some]],
                    scale * weights[lead + mine[some]],
                )
    return found


def products_of(kernel: kernels.Kernel, inputs: Int, owners: Int) -> list[tuple[float, list[Any]]]:
    """Return a kernel on ``inputs`` (positions) as a sum of products: weights, and factors of one
    column each.

    A factor consists of the column number, a kernel, and the positions of its inputs; ``owners``
    (d',) holds the column of each input. Raises ``JointError`` if there are no such products.
    """
    if isinstance(kernel, kernels.OnColumns):
        return products_of(kernel.kernel, inputs[list(kernel.columns)], owners)
    if isinstance(kernel, kernels.Sum):
        parts = zip(kernel.weights, kernel.parts, strict=True)
        return [
            (a * b, factors)
            for a, part in parts
            for b, factors in products_of(part, inputs, owners)
        ]
    if isinstance(kernel, kernels.Product):
        choices = itertools.product(*(products_of(part, inputs, owners) for part in kernel.parts))
        return [
            (math.prod(a for a, _ in each), [one for _, some in each for one in some])
            for each in choices
        ]
    widths = kernel.widths(len(inputs)) if isinstance(kernel, Family) else np.ones(len(inputs))
    factors = list[Any]()
    for owner in np.unique(owners[inputs[widths > 0]]).tolist():
        mine = np.flatnonzero((widths > 0) & (owners[inputs] == owner))
        part = (
            replace(kernel, gamma=tuple(widths[mine].tolist()))
            if isinstance(kernel, Family)
            else kernel
        )
        factors.append((owner, part, inputs[mine]))
    if len(factors) > 1 and type(kernel) not in SEPARABLE:
        raise JointError
    return (
        [(1.0, [each]) for each in factors] if type(kernel) is kernels.Linear else [(1.0, factors)]
    )


def _add(
    found: Float, factors: list[Any], X: Float, background: Float, centres: Float, weights: Float
) -> None:
    """Add to ``found`` (n, p) the values of products with ``centres`` (m, d') and ``weights`` (m,)
    at the inputs X."""
    columns = sorted({column for column, *_ in factors})
    nodes, shares = np.polynomial.legendre.leggauss(2 * ((len(columns) + 3) // 4))

    def table(points: Float) -> Float:
        made = np.ones((len(columns), len(points), len(centres)))
        for column, kernel, mine in factors:
            made[columns.index(column)] *= kernel.values(points[:, mine], centres[:, mine])
        return made

    height = max(1, BLOCK // (len(columns) * len(centres)))
    for some, rows in itertools.product(runs(len(background), ROWS), runs(len(X), ROWS)):
        far = table(background[some])
        near = table(X[rows])
        for n, part in itertools.product(range(near.shape[1]), runs(far.shape[1], height)):
            start = far[:, part]  # (p, b, m)
            step = near[:, n, None] - start
            total = np.zeros(start.shape)
            u = np.empty(start.shape)
            for node, share in zip(0.5 + 0.5 * nodes, 0.5 * shares / len(background), strict=True):
                np.multiply(node, step, out=u)
                u += start
                total += np.divide(share * u.prod(axis=0), u, out=u, where=u != 0.0)
            found[rows.start + n, columns] += (total * step).sum(axis=1) @ weights


def _sampled(
    model: Any, owners: Int, X: Float, background: Float, rounds: int, seed: int
) -> tuple[Float, Float]:
    """Return estimated Shapley values (n, p), and their standard errors over rounds of
    permutations."""
    B = len(background)
    p = int(owners.max()) + 1
    places = np.random.default_rng(seed).permuted(np.tile(np.arange(p), (rounds, B, 1)), axis=2)
    found = np.zeros((rounds, len(X), p))
    for k, n, some in itertools.product(range(rounds), range(len(X)), runs(B, max(1, 4096 // p))):
        for place in (
            places[k, some],
            p - 1 - places[k, some],
        ):  # the position of each column in its order
            joined = place[:, None, owners] < np.arange(p + 1)[:, None]  # (b, p + 1, d)
            rows = np.where(joined, X[n], background[some, None]).reshape(-1, X.shape[1])
            steps = np.diff(model.moments(rows, variance=False)[0].reshape(-1, p + 1), axis=1)
            found[k, n] += np.take_along_axis(steps, place, axis=1).sum(axis=0) / (2 * B)
    return found.mean(axis=0), found.std(axis=0, ddof=1) / np.sqrt(rounds)
