"""Categorical levels as points: a feature with many levels becomes a few coordinates for the
kernel.

In a first model, a level l has the effect φ(x)·w_l on the target, with functions φ of the numeric
features (``types.level_functions``), in addition to an effect common to all rows and the effects of
other features. The weights w_l have a normal prior with mean 0; its covariance and the noise follow
by EM (Laird & Ware 1982, "Random-effects models for longitudinal data"), so the effect of a level
with few rows is near 0, the point used for levels without rows. A level's coordinates are principal
components of the effects over the rows. Half of the rows decide how many of the components found on
the other half are useful, and whether adding the full effect as one more coordinate helps.

An effect learned from a row's target is more informative about this row than about a new one. In
training, each row therefore uses effects learned without its fold (``data.folds``), with the
variances found on all rows. The variance of an effect, S for an unknown level, is added to the
target's variance (``FeatureMap.doubts``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from partirvm.core.held_back import LEVEL_FOLDS, level_folds, level_halves
from partirvm.core.predictive import quantile
from partirvm.data.folds import folded_inputs
from partirvm.data.source import Tile
from partirvm.learning.features import restandardised
from partirvm.learning.sample import SampledRows
from partirvm.quoting import counted
from partirvm.scaling.levels import level_functions, levels_of
from partirvm.scaling.maps import FeatureMap, Scaling
from partirvm.spec.problem import Problem
from partirvm.types import Columns, Float, Int

DIMENSIONS = 4
"""Maximum number of coordinates of a level."""

JOINT_DIMENSIONS = 8
"""Maximum number of coordinates of a level with several targets or more than two classes."""

SWITCHED_OFF = "switched off, no effect of its levels on other rows"

ROWS = 200_000
"""Maximum number of rows from which effects are learned; with 100,000 taxi trips, errors were 1 %
larger."""

SUMS = 4_000_000
"""Maximum number of elements in the sums φφᵀ over all levels of a feature; more levels allow fewer
functions."""

FUNCTIONS = 4
"""Maximum number of functions of a numeric feature."""

TURNS = 2
"""Number of times that each feature's effects are fitted."""

STEPS = 100
"""Maximum number of EM steps in each fit."""

CONVERGED = 1e-3
"""Relative change in the noise variance at which the EM steps end."""

ENOUGH = 0.9
"""The smallest number of coordinates that reaches this fraction of the best gain in squared error
is used."""

MORE = 1.05
"""Minimum ratio of the full effect's gain to the coordinates' gain."""


@dataclass(frozen=True)
class LevelSums:
    """Sums of φφᵀ (L, p, p) and φt (L, p) over the rows of each level, and of t² over ``n``
    rows."""

    squares: Float
    products: Float
    total: float
    n: int


@dataclass(frozen=True)
class RandomEffects:
    """The posterior of the weights w_l of L levels: ``mean`` (L, p) and ``covariance`` (L, p, p).

    ``prior`` (p, p) is the prior covariance of a level's weights, ``noise`` the noise variance.
    """

    mean: Float
    covariance: Float
    prior: Float
    noise: float

    def variances(self, axes: Float) -> Float:
        """Return the mean variance (L,) over the rows of each level's effect along ``axes`` (p,
        k)."""
        return np.asarray(np.einsum("ik,lij,jk->l", axes, self.covariance, axes))


@dataclass(frozen=True)
class Embedding:
    """The scaling that turns levels into numbers, a note on each feature, and the noise variance
    that remains."""

    scaling: Scaling
    notes: tuple[str, ...]
    noise: float


@dataclass(frozen=True)
class LevelRows:
    """Functions φ (n, p) and targets (n,), times the square root of the row weights, and each
    feature's levels (n,).

    The functions are orthonormal over all rows, so distances between weights are root mean square
    differences of effects. The first feature represents the effect common to all rows and has a
    single level. ``counts[f]`` is the number of levels of feature f, with the last two for unknown
    and missing codes.
    """

    functions: Float
    t: Float
    levels: Int
    counts: tuple[int, ...]

    def some(self, rows: Int) -> LevelRows:
        """Return a subset of the rows."""
        return LevelRows(self.functions[rows], self.t[rows], self.levels[:, rows], self.counts)

    def effect(self, weights: Float, f: int) -> Float:
        """Return the effects (n,) of a feature's levels, given their weights (L, p)."""
        return np.asarray(np.einsum("np,np->n", self.functions, weights[self.levels[f]]))

    def without(self, weights: list[Float], f: int) -> Float:
        """Return the targets minus the effects of all other features, (n,)."""
        others = [self.effect(each, g) for g, each in enumerate(weights) if g != f]
        return np.asarray(self.t - np.sum(others, axis=0))

    def sums(self, f: int, t: Float) -> LevelSums:
        """Return the sums over each level's rows for these targets (n,); unknown levels have
        none."""
        order = np.argsort(self.levels[f], kind="stable")
        count = self.counts[f]
        ends = np.searchsorted(self.levels[f][order], np.arange(count + 1)).tolist()
        parts = [order[start:end] for start, end in pairwise(ends)]
        parts[-2] = parts[-2][:0]
        squares = np.array([self.functions[rows].T @ self.functions[rows] for rows in parts])
        products = np.array([self.functions[rows].T @ t[rows] for rows in parts])
        known = np.concatenate(parts)
        return LevelSums(squares, products, float(t[known] @ t[known]), len(known) or 1)

    def fitted(self, known: Sequence[RandomEffects] = ()) -> list[RandomEffects]:
        """Return the effects of each feature's levels; ``known`` effects from other rows supply the
        variances."""
        effects: list[RandomEffects] = []
        weights: list[Float] = [np.zeros((count, self.functions.shape[1])) for count in self.counts]
        for _ in range(TURNS):
            effects = []
            for f in range(len(self.counts)):
                sums = self.sums(f, self.without(weights, f))
                posteriors = (
                    posterior_effects(sums, known[f].prior, known[f].noise)
                    if known
                    else random_effects(sums)
                )
                effects.append(posteriors)
                weights[f] = posteriors.mean
        return effects

    def axes(self, weights: Float, f: int, most: int = DIMENSIONS) -> Float:
        """Return the principal axes (p, k) of the weights of a feature's levels, each weighted by
        its number of rows."""
        shares = np.bincount(self.levels[f], self.functions[:, 0] ** 2, minlength=len(weights))
        return np.linalg.svd(np.sqrt(shares)[:, None] * weights, full_matrices=False)[2][:most].T


def posterior_effects(sums: LevelSums, prior: Float, noise: float) -> RandomEffects:
    """Return the posterior of weights w_l ~ N(0, ``prior``), where t = φ(x)·w_l plus noise of this
    variance."""
    covariance = np.linalg.inv(sums.squares / noise + np.linalg.inv(prior))
    mean = np.einsum("lij,lj->li", covariance, sums.products) / noise
    return RandomEffects(mean, covariance, prior, noise)


def random_effects(sums: LevelSums) -> RandomEffects:
    """Return the posterior of weights w_l ~ N(0, S), where t = φ(x)·w_l + noise; EM finds S and the
    noise variance.

    Each step also scales the weights of each function by regressing the targets on the effects,
    which avoids slow convergence of S (Liu, Rubin & Wu 1998, "Parameter expansion to accelerate
    EM").
    """
    size = sums.products.shape[1]
    total = sums.total
    n = sums.n
    there = sums.squares[:, 0, 0] > 0
    least = (1e-12 + 1e-9 * total / n) * np.eye(size)
    noise = total / n + least[0, 0]
    estimated = posterior_effects(sums, 0.1 * noise * np.eye(size), noise)
    if not there.any():
        return estimated
    for _ in range(STEPS):
        moments = estimated.covariance + estimated.mean[:, :, None] * estimated.mean[:, None, :]
        square = (sums.squares * moments).sum(axis=0)
        explained = (estimated.mean * sums.products).sum(axis=0)
        scale = np.linalg.lstsq(square, explained, rcond=1e-10)[0]
        prior = scale[:, None] * moments[there].mean(axis=0) * scale + least
        before = noise
        noise = max((total - float(scale @ explained)) / n, least[0, 0])
        estimated = posterior_effects(sums, prior, noise)
        if abs(noise - before) < CONVERGED * noise:
            break
    return estimated


def of_unknown(effects: RandomEffects, count: int, targets: Float) -> Float:
    """Return the covariance (p, p) of the weights of a level without rows, based on the levels with
    rows.

    The mean of the levels and S are estimated from L = ``count`` effects; so a new level's interval
    is a Student's t interval with L − 1 degrees of freedom, and its variance is (1 + 1/L)·S·L/(L −
    1). A normal distribution with this covariance has the same 95 % interval. Two levels provide
    hardly any information about a third: its standard deviation is at most the range of the
    ``targets`` (n,). A single level provides none, and a second one gets the targets' standard
    deviation.
    """
    if count < 2:
        return np.diag(np.eye(len(effects.prior))[0] * targets.var())
    wider = (quantile(0.95, count - 1) / quantile(0.95)) ** 2
    widened = effects.prior * wider * (count + 1) / (count - 1)
    most = np.ptp(targets) ** 2
    return widened if np.trace(widened) <= most else widened * most / np.trace(widened)


def dimensions(found: LevelRows, left: LevelRows, weights: list[Float], f: int) -> tuple[int, bool]:
    """Return how many of a feature's coordinates are useful, and whether the full effect improves
    on them.

    The number is 0 if every number of coordinates raises the error.

    Args:
        found: the rows on which the weights were learned
        left: the rows on which the weights are tested
        weights: weights (levels, p) of each feature
        f: the index of the feature
    """
    axes = found.axes(weights[f], f)
    t = left.without(weights, f)
    near = [weights[f] @ axes[:, :k] @ axes[:, :k].T for k in range(1, axes.shape[1] + 1)]
    gains = [float(t @ t - ((t - left.effect(each, f)) ** 2).sum()) for each in (*near, weights[f])]
    number = enough(gains[:-1])
    return number, number > 0 and gains[-1] > MORE * gains[number - 1]


def enough(gains: Sequence[float]) -> int:
    """Return the smallest number of coordinates with nearly the best gain, given the ``gains`` with
    1, 2, … coordinates; 0 if there is no gain."""
    best = max(gains)
    return 1 + next(k for k, gain in enumerate(gains) if gain >= ENOUGH * best) if best > 0 else 0


def _described(n_levels: int, number: int) -> str:
    """Return the note on levels that have coordinates.

    >>> _described(25, 1)
    'each of its 25 levels is described by 1 number learned from the data'
    """
    count = counted(number, "number")
    return f"each of its {n_levels:,} levels is described by {count} learned from the data"


@dataclass(frozen=True)
class JointEffects:
    """The effects of levels on several outputs with common coordinates: ``outputs`` has the effects
    on each output.

    The weights of all outputs are concatenated, so that distances are root mean square differences
    of all effects.
    """

    outputs: tuple[FoldedEffects, ...]

    @classmethod
    def of(
        cls, rows: LevelRows, root: Float, numbers: Int, targets: Float, normal: Float, seed: int
    ) -> JointEffects:
        """Learn the effects on ``targets`` (n, C).

        Parameters
        ----------
        rows : the rows, whose stored targets are ignored
        root : (n,), square roots of the row weights
        numbers : (n,), numbers of the rows, which determine their folds
        targets : (n, C), targets or indicators of classes
        normal : (p, p), makes functions orthonormal
        seed : determines how the rows are halved
        """
        each = (
            FoldedEffects.of(replace(rows, t=root * t), numbers, t, normal, seed) for t in targets.T
        )
        return cls(tuple(each))

    def form(self, f: int) -> LevelForm:
        """Return the coordinates of a feature's levels."""
        rows = self.outputs[0].rows
        count = rows.counts[f]
        blocks = [
            np.hstack([output.blocks[block][f].mean for output in self.outputs])
            for block in range(len(self.outputs[0].blocks))
        ]
        number = self._dimensions(f)
        if not number:
            return LevelForm(SWITCHED_OFF, np.zeros((1, count, 1)))
        axes = rows.axes(blocks[0], f, JOINT_DIMENSIONS)[:, :number]
        note = _described(count - 2, number)
        return LevelForm(note, np.array([weights @ axes for weights in blocks]))

    def _dimensions(self, f: int) -> int:
        """Return how many coordinates learned from one half of the rows reduce the errors on the
        other half."""
        first = self.outputs[0].halves[0]
        tried = np.hstack([output.tried[f] for output in self.outputs])
        axes = first.axes(tried, f, JOINT_DIMENSIONS)
        gains = np.zeros(axes.shape[1])
        for number in range(axes.shape[1]):
            near = tried @ axes[:, : number + 1] @ axes[:, : number + 1].T
            for output, weights in zip(
                self.outputs, np.hsplit(near, len(self.outputs)), strict=True
            ):
                left = output.halves[1]
                t = left.without(output.tried, f)
                gains[number] += t @ t - ((t - left.effect(weights, f)) ** 2).sum()
        return enough(gains.tolist())


@dataclass(frozen=True)
class LevelForm:
    """The arrays that a model stores for a feature's levels (see ``FeatureMap``), or None, and a
    note."""

    note: str = ""
    table: Float | None = None
    effect: Float | None = None
    doubts: Float | None = None


@dataclass(frozen=True)
class FoldedEffects:
    """The effects of all features' levels, learned from all ``rows`` (block 0) and, if there are
    folds, without each fold.

    ``halves`` are two halves of the rows, and ``tried`` the weights from the first half.
    ``targets`` (n,) are not weighted, and ``normal`` (p, p) makes functions orthonormal.
    """

    rows: LevelRows
    blocks: tuple[list[RandomEffects], ...]
    halves: tuple[LevelRows, ...]
    tried: list[Float]
    targets: Float
    normal: Float

    @classmethod
    def of(
        cls, rows: LevelRows, numbers: Int | None, targets: Float, normal: Float, seed: int
    ) -> FoldedEffects:
        """Learn the effects of all features' levels.

        Args:
            rows: the n rows
            numbers: (n,), row numbers, which determine the folds, or None to learn from all rows
                only
            targets: (n,), the unweighted targets
            normal: (p, p), makes functions orthonormal
            seed: determines how the rows are halved
        """
        whole = rows.fitted()
        if numbers is None:
            return cls(rows, (whole,), (), [], targets, normal)
        folds = level_folds(numbers)
        others = [np.flatnonzero(folds != fold) for fold in range(LEVEL_FOLDS)]
        without = [rows.some(places).fitted(whole) for places in others]
        halves = tuple(rows.some(half) for half in level_halves(numbers, seed))
        tried = [effects.mean for effects in halves[0].fitted()]
        return cls(rows, (whole, *without), halves, tried, targets, normal)

    @property
    def noise(self) -> float:
        """The noise variance not explained by the effects."""
        return self.blocks[0][-1].noise

    def form(self, f: int, embedded: bool) -> LevelForm:
        """Return the form of a feature; if it is not ``embedded``, only the variance of unknown
        levels is needed."""
        if not embedded:
            known = np.zeros((1, self.rows.counts[f]))
            return LevelForm(doubts=self._doubts(f, known, np.eye(len(self.normal))))
        axes = self.rows.axes(self.blocks[0][f].mean, f)
        first, second = self.halves
        number, complete = dimensions(first, second, self.tried, f)
        if not number:
            return LevelForm(SWITCHED_OFF, np.zeros((1, self.rows.counts[f], 1)))
        axes = axes[:, :number]
        along = np.eye(len(axes)) if complete else axes
        variances = np.array([block[f].variances(along) for block in self.blocks])
        count = self.rows.counts[f] - 2
        return LevelForm(
            _described(count, number) + ", and has its own effect" * complete,
            np.array([block[f].mean @ axes for block in self.blocks]),
            np.array([block[f].mean @ self.normal for block in self.blocks]) if complete else None,
            self._doubts(f, variances, along),
        )

    def _doubts(self, f: int, known: Float, axes: Float) -> Float:
        """Return variances (B, L + 2) along ``axes`` ÷ the noise variance: ``known`` ones for
        levels with rows, and one for the other levels."""
        unknown = self.rows.counts[f] - 2
        there = np.bincount(self.rows.levels[f], minlength=self.rows.counts[f]) > 0
        there[unknown] = False
        covariance = of_unknown(self.blocks[0][f], int(there.sum()), self.targets)
        return np.where(there, known, np.trace(axes.T @ covariance @ axes)) / self.noise


def embedded(
    sample: SampledRows,
    problem: Problem,
    columns: Columns,
    levels: dict[int, int],
    seed: int,
    sums: int = SUMS,
    indicators: dict[int, int] | None = None,
) -> Embedding:
    """Return the scaling that turns levels into numbers.

    Parameters
    ----------
    sample : rows from which effects are learned
    problem : a problem with targets or classes
    columns : names of the features and their categories
    levels : features that become coordinates, by position, with their numbers of levels
    seed : determines how the rows are halved
    sums : maximum number of elements in a feature's sums
    indicators : features that become an indicator of each level, with their numbers of levels
    """
    tile = sample.rows.gather(sample.rows.rows)
    numbers = sample.rows.rows
    scaling = problem.empty.scaling
    features = scaling.features or FeatureMap.plain(len(columns.features))
    notes: tuple[str, ...] = ()
    noise = 0.0
    others = other_categories(columns, levels)
    if levels or (others and has_one_noise(problem)):
        features, notes, noise = effects_of(
            tile, numbers, problem, columns, levels, others, seed, sums
        )
    elif not indicators:
        return Embedding(scaling, (), 0.0)
    for j, count in (indicators or {}).items():
        identity = np.eye(count + 2, count)[None]
        features = replace(features, tables=(*features.tables, (j, identity)))
        notes += (f"{columns.features[j]}: each of its {count:,} levels has its own column",)
    inputs = folded_inputs(tile.X, features, level_folds(numbers))
    mean = float(np.mean(features.noise_factor(inputs))) - 1.0
    features = features.with_doubts(1.0, mean)
    scaling = with_inputs(scaling, features, inputs, len(columns.features))
    return Embedding(scaling, notes, noise)


def other_categories(columns: Columns, levels: dict[int, int]) -> dict[int, int]:
    """Return the number of levels of each categorical feature that is not in ``levels``."""
    counts = {j: len(columns.categories.get(name, ())) for j, name in enumerate(columns.features)}
    return {j: count for j, count in counts.items() if count and j not in levels}


def has_one_noise(problem: Problem) -> bool:
    """Return whether unknown levels can raise the noise variance, which requires a single numeric
    target."""
    return problem.likelihood.has_noise and problem.n_targets == 1


def with_inputs(scaling: Scaling, features: FeatureMap, raw: Float, d: int) -> Scaling:
    """Return the scaling for a map whose tables replace levels by numbers, or add such inputs.

    Args:
        scaling: the previous scaling of the features
        features: the map, which may have more inputs
        raw: (n, d), features of the rows on which the numbers are standardised
        d: number of features
    """
    added = len(features.sources) - scaling.n_inputs
    blank = np.zeros(scaling.n_inputs) if scaling.blank is None else scaling.blank
    places = [*(j for j, _ in features.tables), *range(d, d + added)]
    blank = np.insert(blank, [d] * added, 0.0)
    blank[places] = 0.0
    wider = replace(
        scaling,
        x_shift=np.insert(scaling.x_shift, [d] * added, 0.0),
        x_scale=np.insert(scaling.x_scale, [d] * added, 0.0),
        blank=blank,
    )
    return restandardised(wider, features, raw, places)


def effects_of(
    tile: Tile,
    numbers: Int,
    problem: Problem,
    columns: Columns,
    levels: dict[int, int],
    others: dict[int, int],
    seed: int,
    sums: int,
) -> tuple[FeatureMap, tuple[str, ...], float]:
    """Return the feature map with level coordinates, a note on each feature, and the noise
    variance.

    Parameters
    ----------
    tile, numbers : the rows and their numbers (n,)
    problem, columns, levels, seed, sums : as in ``embedded``
    others : further categorical features, for which only the variance of unknown levels is found
    """
    scaling = problem.empty.scaling
    features = with_moments(scaling, columns)
    numeric = has_one_noise(problem)
    counts = levels | others if numeric else levels
    rows, normal = level_rows(tile, features, scaling, counts, sums)
    present = np.flatnonzero(rows.functions[:, 0])
    rows = rows.some(present)
    numbers = numbers[present]
    targets = problem.likelihood.working.of_levels(problem, tile.t)[present]
    if targets.shape[1] > 1:
        joint = JointEffects.of(rows, tile.root_weights[present], numbers, targets, normal, seed)
        forms = {j: joint.form(f) for f, j in enumerate(counts, start=1)}
        return with_forms(features, forms), notes_of(columns, forms), 0.0
    effects = FoldedEffects.of(rows, numbers if levels else None, targets[:, 0], normal, seed)
    forms = {j: effects.form(f, j in levels) for f, j in enumerate(counts, start=1)}
    features = with_forms(features, forms)
    if not numeric:
        features = replace(features, doubts=())
    return features, notes_of(columns, {j: forms[j] for j in levels}), effects.noise


def with_moments(scaling: Scaling, columns: Columns) -> FeatureMap:
    """Return the feature map with the positions and moments of its numeric features."""
    names = enumerate(columns.features)
    numbers = np.array([j for j, name in names if name not in columns.categories], dtype=np.int64)
    return replace(
        scaling.features or FeatureMap.plain(len(columns.features)),
        numbers=numbers,
        moments=np.array([scaling.x_shift[numbers], scaling.x_scale[numbers]]),
    )


def with_forms(features: FeatureMap, forms: dict[int, LevelForm]) -> FeatureMap:
    """Return the map with the arrays for each feature's levels, by position."""
    return replace(
        features,
        tables=tuple((j, form.table) for j, form in forms.items() if form.table is not None),
        effects=tuple((j, form.effect) for j, form in forms.items() if form.effect is not None),
        doubts=tuple((j, form.doubts) for j, form in forms.items() if form.doubts is not None),
    )


def notes_of(columns: Columns, forms: dict[int, LevelForm]) -> tuple[str, ...]:
    """Return a note on each feature."""
    return tuple(f"{columns.features[j]}: {form.note}" for j, form in forms.items())


def level_rows(
    tile: Tile, features: FeatureMap, scaling: Scaling, every: dict[int, int], sums: int
) -> tuple[LevelRows, Float]:
    """Return the rows of a tile, and the matrix (p, p) that makes the functions of their numeric
    features orthonormal.

    Parameters
    ----------
    tile : the rows
    features : the map, whose numeric features and their moments define the functions
    scaling : the scaling of the targets
    every : categorical features by position, with their numbers of levels
    sums : maximum number of elements in a feature's sums
    """
    group = len(features.numbers)
    most = int((np.sqrt(sums / max(every.values())) - 1) / max(group, 1))
    root = tile.root_weights
    p = 1 + min(most, FUNCTIONS) * group
    functions = root[:, None] * level_functions(tile.X, features.numbers, features.moments, p)
    square = functions.T @ functions / (root @ root) + 1e-6 * np.eye(p)
    normal = np.linalg.inv(np.linalg.cholesky(square))
    codes = [
        np.zeros(len(root), np.int64),
        *(levels_of(tile.X[:, j], count) for j, count in every.items()),
    ]
    counts = (3, *(count + 2 for count in every.values()))
    targets = root * scaling.targets(tile.t)[:, 0]
    return LevelRows(functions @ normal.T, targets, np.array(codes), counts), normal
