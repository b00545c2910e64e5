"""Categorical levels as points: a feature with many levels becomes a few coordinates, which kernels compare.

In a first model, a level l has the effect φ(x)·w_l on the target, with functions φ of the numeric features
(``types.level_functions``), beside one common to all rows and those of other features. The weights w_l have a normal
prior with mean 0; its covariance and the noise follow by EM (Laird & Ware 1982, "Random-effects models for longitudinal
data"), so a level with few rows stays near 0, the point for levels without rows. A level's coordinates are principal
components of the effects over the rows. Half of the rows decide how many of the components found on the other half are
useful, and whether the whole effect, as one more number, says more than they do.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from partirvm.core.sampling import Purpose, stream
from partirvm.learning.features import restandardised
from partirvm.learning.sample import SampledRows
from partirvm.quoting import counted
from partirvm.strategies.problem import Problem
from partirvm.types import Columns, FeatureMap, Float, Int, Scaling, level_functions, levels_of

DIMENSIONS = 4
"""Maximum number of coordinates of a level."""

ROWS = 200_000
"""Maximum number of rows from which effects are learned; 100,000 taxi trips led to 1 % larger errors."""

SUMS = 4_000_000
"""Maximum number of elements in the sums φφᵀ of all levels of a feature; more levels leave fewer functions."""

FUNCTIONS = 4
"""Maximum number of functions of a numeric feature."""

TURNS, STEPS = 2, 15
"""Number of times that each feature's effects are fitted, and of EM steps each time."""

ENOUGH, MORE = 0.9, 1.05
"""The fewest coordinates with .9 of the best gain in squares are used; the whole effect must have 1.05 of theirs."""


@dataclass(frozen=True)
class LevelRows:
    """Functions φ (n, p) and targets (n,), times the root of the row weights, and the levels (n,) of each feature.

    The functions are orthonormal over all rows, so distances between weights are root mean square differences of
    effects. The first feature stands for the effect common to all rows and has a single level. ``counts[f]`` is the
    number L of levels of a feature, and the code for other and missing levels.
    """

    functions: Float
    t: Float
    levels: Int
    counts: tuple[int, ...]

    def some(self, rows: Int) -> "LevelRows":
        """Return some of the rows."""
        return LevelRows(self.functions[rows], self.t[rows], self.levels[:, rows], self.counts)

    def effect(self, weights: Float, f: int) -> Float:
        """Return the effects (n,) of a feature's levels, whose weights are (L + 1, p)."""
        return np.asarray(np.einsum("np,np->n", self.functions, weights[self.levels[f]]))

    def without(self, weights: list[Float], f: int) -> Float:
        """Return the targets minus the effects of all other features, (n,)."""
        others = [self.effect(each, g) for g, each in enumerate(weights) if g != f]
        return np.asarray(self.t - np.sum(others, axis=0))

    def fitted(self) -> list[Float]:
        """Return the level weights of each feature, (L + 1, p)."""
        weights: list[Float] = [np.zeros((count + 1, self.functions.shape[1])) for count in self.counts]
        for _ in range(TURNS):
            for f, count in enumerate(self.counts):
                t, order = self.without(weights, f), np.argsort(self.levels[f], kind="stable")
                ends = np.searchsorted(self.levels[f][order], np.arange(count + 1)).tolist()
                parts = [order[start:end] for start, end in pairwise(ends)]
                squares = np.array([self.functions[rows].T @ self.functions[rows] for rows in parts])
                products = np.array([self.functions[rows].T @ t[rows] for rows in parts])
                known = t[order[: ends[-1]]]
                weights[f][:-1] = random_effects(squares, products, float(known @ known), len(known) or 1)
        return weights

    def axes(self, weights: Float, f: int) -> Float:
        """Return the principal axes (p, k) of the weights of a feature's levels, each weighted by its rows."""
        shares = np.bincount(self.levels[f], self.functions[:, 0] ** 2, minlength=len(weights))
        return np.linalg.svd(np.sqrt(shares)[:, None] * weights, full_matrices=False)[2][:DIMENSIONS].T


def random_effects(squares: Float, products: Float, total: float, n: int) -> Float:
    """Return the posterior means (L, p) of weights w_l ~ N(0, S), where t = φ(x)·w_l + noise; EM finds S and the noise.

    ``squares`` (L, p, p) and ``products`` (L, p) are sums of φφᵀ and φt over a level's rows, ``total`` is the sum of t²
    over all ``n`` rows.
    """
    there, least = squares[:, 0, 0] > 0, (1e-12 + 1e-9 * total / n) * np.eye(products.shape[1])
    noise = total / n + least[0, 0]
    mean, prior = products, 0.1 * noise * np.eye(len(least))
    for _ in range(STEPS):
        covariance = np.linalg.inv(squares / noise + np.linalg.inv(prior))
        mean = np.einsum("lij,lj->li", covariance, products) / noise
        moments = covariance + mean[:, :, None] * mean[:, None, :]
        prior = moments[there].mean(axis=0) + least
        squared = total - 2 * (mean * products).sum() + np.einsum("lij,lji->", squares, moments)
        noise = max(squared / n, least[0, 0])
    return mean


def dimensions(found: LevelRows, left: LevelRows, weights: list[Float], f: int) -> tuple[int, bool]:
    """Return how many of a feature's coordinates are useful, and whether the whole effect adds to these.

    The rows ``left`` judge the ``weights`` learned on ``found``. No coordinate is useful if each raises the error.
    """
    axes, t = found.axes(weights[f], f), left.without(weights, f)
    near = [weights[f] @ axes[:, :k] @ axes[:, :k].T for k in range(1, axes.shape[1] + 1)]
    gains = [float(t @ t - ((t - left.effect(each, f)) ** 2).sum()) for each in (*near, weights[f])]
    best = max(gains[:-1])
    number = 1 + next(k for k, gain in enumerate(gains) if gain >= ENOUGH * best) if best > 0 else 0
    return number, number > 0 and gains[-1] > MORE * gains[number - 1]


def embedded(
    sample: SampledRows, problem: Problem, columns: Columns, levels: dict[int, int], seed: int, sums: int = SUMS
) -> tuple[Scaling, tuple[str, ...]]:
    """Return the scaling in which features with these numbers of ``levels`` become coordinates, and a note on each.

    A feature's sums have at most ``sums`` elements. The problem has one target or two classes.
    """
    scaling, d, tile = problem.empty.scaling, len(columns.features), sample.rows.gather(sample.rows.rows)
    numbers = np.array([j for j in range(d) if columns.features[j] not in columns.categories], dtype=np.int64)
    moments = np.array([scaling.x_shift[numbers], scaling.x_scale[numbers]])
    each = int((np.sqrt(sums / max(levels.values())) - 1) / max(len(numbers), 1))
    root = np.ones(len(tile.t)) if tile.weights is None else np.sqrt(tile.weights)
    functions = root[:, None] * level_functions(tile.X, numbers, moments, 1 + min(each, FUNCTIONS) * len(numbers))
    square = functions.T @ functions / (root @ root) + 1e-6 * np.eye(functions.shape[1])
    normal = np.linalg.inv(np.linalg.cholesky(square))
    codes = [np.zeros(len(root), np.int64), *(levels_of(tile.X[:, j], count) for j, count in levels.items())]
    rows = LevelRows(functions @ normal.T, root * scaling.targets(tile.t)[:, 0], np.array(codes), (1, *levels.values()))
    rows = rows.some(np.flatnonzero(root))
    halves = np.array_split(stream(seed, Purpose.LEVELS).permutation(len(rows.t)), 2)
    first, second = map(rows.some, halves)
    tried, weights = first.fitted(), rows.fitted()
    tables, effects, notes = list[tuple[int, Float]](), list[tuple[int, Float]](), list[str]()
    for f, (j, count) in enumerate(levels.items(), start=1):
        (number, whole), axes = dimensions(first, second, tried, f), rows.axes(weights[f], f)
        tables.append((j, weights[f] @ axes[:, :number] if number else np.zeros((count + 1, 1))))
        effects += [(j, weights[f] @ normal)] if whole else []
        text = f"{counted(number, 'coordinate')}{' and the effect' if whole else ''} of {count:,} levels"
        text = text if number else "switched off, no effect of its levels on other rows"
        notes.append(f"{columns.features[j]}: {text}")
    features = replace(scaling.features or FeatureMap.plain(d), numbers=numbers, moments=moments)
    features = replace(features, tables=tuple(tables), effects=tuple(effects))
    new = len(features.sources) - scaling.n_inputs
    blank = np.zeros(scaling.n_inputs) if scaling.blank is None else scaling.blank
    shift, scale, blank = (np.insert(each, [d] * new, 0.0) for each in (scaling.x_shift, scaling.x_scale, blank))
    places = [*levels, *range(d, d + new)]
    blank[places] = 0.0
    scaling = replace(scaling, x_shift=shift, x_scale=scale, blank=blank)
    return restandardised(scaling, features, tile.X, places), tuple(notes)
