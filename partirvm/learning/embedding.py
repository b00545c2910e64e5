"""Levels of categorical features as points: a feature of many levels becomes a few numbers, which kernels compare.

In a first model a level l has the effect φ(x)·w_l on the target, with functions φ of the numeric features
(``types.LevelEffect``), beside one of all rows and those of the other features. The weights w_l have a normal prior of
mean 0; its covariance and the noise follow by EM (Laird & Ware 1982, "Random-effects models for longitudinal data"), so
that a level of few rows stays near 0, the point of levels without rows. The coordinates of a level are principal
components of the effects over the rows. Half of the rows decides how many of those that the other half finds are of
use, and whether the whole effect, as one more number, says more than they do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from partirvm.core.link import targets
from partirvm.core.sampling import Purpose, stream
from partirvm.learning.sample import SampledRows
from partirvm.quoting import counted
from partirvm.strategies.problem import Problem
from partirvm.types import Columns, FeatureMap, Float, Int, LevelEffect, Scaling, level_functions, levels_of

MANY, TOO_MANY = 8, 10_000
"""A categorical feature with more levels is embedded (equal-or-not kernels share nothing); and one with advice."""

DIMENSIONS = 4
"""Maximum number of coordinates of a level."""

ROWS = 200_000
"""Maximum number of rows that teach the effects."""

SUMS = 4_000_000
"""Maximum number of elements of the sums φφᵀ of all levels of a feature; more levels leave fewer functions."""

FUNCTIONS = 4
"""Maximum number of functions of a numeric feature."""

TURNS, STEPS = 2, 15
"""Number of times that the effects of each feature are fitted, and of the steps of EM each time."""

ENOUGH, MORE = 0.9, 1.05
"""The fewest coordinates explain .9 of what the best explain, in squares; the whole effect must explain 1.05 of it."""

MOST_CLASSES = 10
"""With more classes than this no feature is embedded: each class has effects of its own."""


@dataclass(frozen=True)
class LevelRows:
    """Functions φ (n, p) and targets (n, T), times the root of the row weights, and the levels of F features.

    ``levels`` (F, n) are codes, of which ``counts[f]`` stands for other and missing levels.
    """

    functions: Float
    t: Float
    levels: Int
    counts: tuple[int, ...]

    def some(self, rows: Int) -> LevelRows:
        """Return some of the rows."""
        return LevelRows(self.functions[rows], self.t[rows], self.levels[:, rows], self.counts)

    def effect(self, weights: Float, f: int) -> Float:
        """Return the effects (n, T) of the levels of a feature, whose weights are (L + 1, p, T)."""
        each = (weights[self.levels[f], :, k] for k in range(weights.shape[2]))
        return np.column_stack([np.einsum("np,np->n", self.functions, own) for own in each])

    def without(self, base: Float, weights: list[Float], f: int) -> Float:
        """Return the targets less the effect of all rows (p, T) and of all features but one, (n, T)."""
        others = (self.effect(each, g) for g, each in enumerate(weights) if g != f)
        return self.t - sum(others, self.functions @ base)

    def fitted(self) -> tuple[Float, list[Float]]:
        """Return the weights of all rows, (p, T), and those of the levels of each feature, (L + 1, p, T)."""
        base = np.zeros((self.functions.shape[1], self.t.shape[1]))
        weights: list[Float] = [np.zeros((count + 1, *base.shape)) for count in self.counts]
        for _ in range(TURNS):
            rest = self.t - sum((self.effect(each, f) for f, each in enumerate(weights)), np.zeros_like(self.t))
            base = np.asarray(np.linalg.lstsq(self.functions, rest, rcond=None)[0], np.float64)
            for f in range(len(weights)):
                weights[f] = self._level_weights(self.without(base, weights, f), f)
        return base, weights

    def _level_weights(self, t: Float, f: int) -> Float:
        """Return posterior means of the weights of a feature's levels, (L + 1, p, T), from targets (n, T)."""
        order, count, p = np.argsort(self.levels[f], kind="stable"), self.counts[f], self.functions.shape[1]
        ends = np.searchsorted(self.levels[f][order], np.arange(count + 1)).tolist()
        squares, products = np.empty((count, p, p)), np.empty((count, p, t.shape[1]))
        for level, (start, end) in enumerate(pairwise(ends)):
            own = self.functions[order[start:end]]
            squares[level], products[level] = own.T @ own, own.T @ t[order[start:end]]
        n, found = ends[-1], np.zeros((count + 1, p, t.shape[1]))
        for k, total in enumerate((t[order[:n]] ** 2).sum(axis=0).tolist() if n else ()):
            found[:-1, :, k] = random_effects(squares, products[..., k], total, n)
        return found


def random_effects(squares: Float, products: Float, total: float, n: int) -> Float:
    """Return the posterior means (L, p) of weights w_l ~ N(0, S), where t = φ(x)·w_l + noise; EM finds S and the noise.

    ``squares`` (L, p, p) and ``products`` (L, p) are sums of φφᵀ and φt over the rows of a level, ``total`` is the sum
    of t² over all ``n`` rows.
    """
    there, p = squares[:, 0, 0] > 0, products.shape[1]
    least = 1e-12 + 1e-9 * total / n
    noise = total / n + least
    prior = 0.1 * noise * np.eye(p)
    for _ in range(STEPS):
        covariance = np.linalg.inv(squares / noise + np.linalg.inv(prior))
        mean = np.einsum("lij,lj->li", covariance, products) / noise
        prior = (covariance[there].sum(axis=0) + mean[there].T @ mean[there]) / there.sum() + least * np.eye(p)
        explained = np.einsum("lij,lji->", squares, covariance + mean[:, :, None] * mean[:, None, :])
        noise = max((total - 2 * (mean * products).sum() + explained) / n, least)
    return np.asarray(mean)


def components(rows: LevelRows, weights: Float, f: int) -> tuple[Float, Float, Float]:
    """Return points (L + 1, p·T) of the levels, principal axes (p·T, k), and the root (p, p) from weights to points.

    Distances of points are root mean square differences of effects over all rows.
    """
    present = rows.functions[:, 0] @ rows.functions[:, 0]
    values, vectors = np.linalg.eigh(rows.functions.T @ rows.functions / present)
    root = (vectors * np.sqrt(np.maximum(values, 1e-9 * values[-1]))) @ vectors.T
    points = np.einsum("ij,ljt->lit", root, weights).reshape(len(weights), -1)
    shares = np.bincount(rows.levels[f], rows.functions[:, 0] ** 2, minlength=len(points))
    axes = np.linalg.svd(np.sqrt(shares)[:, None] * points, full_matrices=False)[2][:DIMENSIONS].T
    return points, axes, root


def dimensions(rows: LevelRows, half: Int, others: Int) -> list[tuple[int, bool]]:
    """Return of each feature the number of coordinates of use, and whether the whole effect is, too.

    The rows ``others`` decide on what the rows ``half`` find. No coordinate is of use if each raises the error.
    """
    found, left = rows.some(half), rows.some(others)
    base, weights = found.fitted()
    chosen = []
    for f, own in enumerate(weights):
        points, axes, root = components(found, own, f)
        t = left.without(base, weights, f)
        some = (axes[:, :k] for k in range(1, axes.shape[1] + 1))
        near = [np.asarray(np.linalg.solve(root, (points @ each @ each.T).reshape(own.shape))) for each in some]
        gains = [float((t**2).sum() - ((t - left.effect(each, f)) ** 2).sum()) for each in (*near, own)]
        best = max(gains[:-1])
        number = 1 + next(k for k, gain in enumerate(gains) if gain >= ENOUGH * best) if best > 0 else 0
        chosen.append((number, bool(number) and own.shape[2] == 1 and gains[-1] > MORE * gains[number - 1]))
    return chosen


def many_levels(problem: Problem, columns: Columns) -> dict[int, int]:
    """Return the number of levels of the features to embed, by position."""
    levels = {j: len(columns.categories.get(name, ())) for j, name in enumerate(columns.features)}
    return {j: count for j, count in levels.items() if count > MANY and problem.n_classes <= MOST_CLASSES}


def embedded(
    sample: SampledRows, problem: Problem, columns: Columns, seed: int, most: int = SUMS
) -> tuple[Scaling, tuple[str, ...]]:
    """Return the scaling with coordinates for the levels of features with many, and a note on each.

    The sums of a feature have at most so many elements.
    """
    scaling, levels, d = problem.empty.scaling, many_levels(problem, columns), len(columns.features)
    tile = sample.rows.gather(sample.rows.rows)
    numbers = np.array([j for j in range(d) if columns.features[j] not in columns.categories], dtype=np.int64)
    each = int((np.sqrt(most / max(levels.values())) - 1) / max(len(numbers), 1))
    given = numbers, scaling.x_shift[numbers], scaling.x_scale[numbers]
    functions = level_functions(tile.X[:, numbers], *given[1:], min(each, FUNCTIONS))
    K = problem.n_classes
    t = targets(tile.t[:, 0], K)[:, int(K == 2) :] if K else scaling.targets(tile.t)
    root = np.ones((len(t), 1)) if tile.weights is None else np.sqrt(tile.weights)[:, None]
    codes = np.array([levels_of(tile.X[:, j], count) for j, count in levels.items()])
    rows = LevelRows(root * functions, root * t, codes, tuple(levels.values())).some(np.flatnonzero(root[:, 0]))
    order = stream(seed, Purpose.FOLDS).permutation(len(rows.t))
    chosen, (_, weights) = dimensions(rows, *np.array_split(order, 2)), rows.fitted()
    tables, effects, notes = list[tuple[int, Float]](), list[LevelEffect](), list[str]()
    for f, ((j, count), own, (number, whole)) in enumerate(zip(levels.items(), weights, chosen, strict=True)):
        points, axes, _ = components(rows, own, f)
        tables.append((j, points @ axes[:, :number] if number else np.zeros((count + 1, 1))))
        effects += [LevelEffect(j, *given, own[:, :, 0])] if whole else []
        notes.append(_note(columns.features[j], count, number, whole))
    features = replace(scaling.features or FeatureMap.plain(d), tables=tuple(tables), effects=tuple(effects))
    return _standardised(scaling, features, tile.X), tuple(notes)


def _note(name: str, count: int, number: int, whole: bool) -> str:
    if not number:
        return f"{name}: switched off, since other rows do not confirm an effect of its {count:,} levels"
    text = f"{name}: {counted(number, 'coordinate')}{' and the effect' if whole else ''} of {count:,} levels"
    return text + ("; with so many, group the rare ones or leave the feature out" if count > TOO_MANY else "")


def _standardised(scaling: Scaling, features: FeatureMap, X: Float) -> Scaling:
    """Return the scaling of these features; inputs that levels become have mean 0 and variance 1 over rows X (n, d)."""
    d, first = X.shape[1], [j for j, _ in features.tables]
    new = len(features.sources) - len(scaling.sources)
    before = (
        scaling.x_shift,
        scaling.x_scale,
        np.zeros_like(scaling.x_shift) if scaling.blank is None else scaling.blank,
    )
    shift, scale, blank = (np.insert(each, [d] * new, 0.0) for each in before)
    places = [*first, *range(d, d + new)]
    values = features(X)[:, places]
    deviation = values.std(axis=0)
    shift[places], scale[places] = values.mean(axis=0), np.where(deviation > 0, deviation, 1.0)
    return replace(scaling, x_shift=shift, x_scale=scale, blank=blank, features=features)
