"""Uncertainty of level effects, for several targets and for classes.

The effects of a feature's levels have a normal distribution, as in ``learning.embedding``, whose
covariance S is estimated for each target or class indicator. An effect with n rows has a posterior
variance; the effect of a new level has variance S. If levels are coordinates, a training row uses
an effect learned without its fold, so that the noise variance of a fit contains the mean V of the
posterior variances without the fold. The variance of a prediction for a level therefore also
includes the difference between the level's variance and V; for a single target, the noise factor
contains this difference. If levels are not coordinates, the kernel itself represents the
uncertainty of known levels, and only new levels get an additional variance.

For classes, an effect u ~ N(0, v) on the logit gives a class with frequency p the probability σ(m +
u), which has variance S: so S determines v. A prediction f for a new level becomes b + (f − b)/√(1
+ πv/8), where b is the logit of p: it is moderated (``core.link.moderated``) towards the frequency,
which an average over levels must equal. Known levels keep their predictions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from partirvm.core.held_back import LEVEL_FOLDS, level_folds
from partirvm.core.link import LOGIT_VARIANCES, logit_variance
from partirvm.learning.embedding import (
    LevelRows,
    RandomEffects,
    has_one_noise,
    level_rows,
    of_unknown,
    other_categories,
    posterior_effects,
    with_moments,
)
from partirvm.learning.sample import SampledRows
from partirvm.scaling.maps import FeatureMap, Scaling
from partirvm.spec.problem import Problem
from partirvm.types import Bool, Columns, Float, Int

NEGLIGIBLE = 0.01
"""Effects whose variance is less than this multiple of the noise variance are omitted: they change
standard deviations by less than 1 %."""

INFORMED = 0.05
"""Minimum fraction of training rows whose level has rows in other folds. With fewer, the fit cannot
learn how useful known effects are, so these keep their uncertainty from training."""

COORDINATES = "coordinates"
"""The model uses coordinates of the feature, learned in folds."""

KERNEL = "kernel"
"""The kernel uses the feature's levels, directly or as indicators."""

OFF = "off"
"""The model does not use the feature."""


@dataclass(frozen=True)
class LevelSample:
    """Rows from which the variances of effects are estimated.

    ``rows`` hold the features' levels, and ``kinds`` how the model uses each feature; ``root`` (n,)
    are the square roots of the row weights and ``folds`` (n,) the rows' folds.
    """

    rows: LevelRows
    root: Float
    folds: Int
    kinds: tuple[str, ...]

    def effects(self, target: Float) -> list[RandomEffects | None]:
        """Return the effects of each feature on a target (n,); None where they are negligible or
        not used."""
        fitted = replace(self.rows, t=self.root * target).fitted()[1:]
        return [
            None if kind == OFF or np.trace(effects.prior) < NEGLIGIBLE * effects.noise else effects
            for effects, kind in zip(fitted, self.kinds, strict=True)
        ]

    def known(self, f: int) -> Bool:
        """Return which of a feature's levels (L + 2,) occur in the rows."""
        there = np.bincount(self.rows.levels[f], minlength=self.rows.counts[f]) > 0
        there[self.rows.counts[f] - 2] = False
        return there

    def in_training(self, effects: RandomEffects, f: int) -> tuple[float, bool]:
        """Return the mean variance of the effects used in training, and whether enough rows have
        levels that occur in other folds."""
        levels = self.rows.levels[f]
        total = 0.0
        informed = 0
        for fold in range(LEVEL_FOLDS):
            inside = self.folds == fold
            others = self.rows.some(np.flatnonzero(~inside))
            sums = others.sums(f, others.t)
            variances = posterior_effects(sums, effects.prior, effects.noise).variances(
                np.eye(len(effects.prior))
            )
            total += variances[levels[inside]].sum()
            informed += int(np.count_nonzero(sums.squares[levels[inside], 0, 0]))
        return total / max(len(levels), 1), informed >= INFORMED * len(levels)

    def of_target(self, target: Float) -> list[Float]:
        """Return each feature's variances (L + 2,) of the effects on a scaled target (n,)."""
        by_feature = []
        for f, effects in enumerate(self.effects(target), start=1):
            known = self.known(f)
            variances = np.zeros(len(known))
            if effects is not None:
                variances[~known] = np.trace(of_unknown(effects, int(known.sum()), target))
                if self.kinds[f - 1] == COORDINATES:
                    mean, informed = self.in_training(effects, f)
                    of_levels = effects.variances(np.eye(len(effects.prior))) if informed else mean
                    variances = np.where(known, of_levels, np.maximum(variances, mean)) - mean
            by_feature.append(variances)
        return by_feature

    def of_class(self, indicator: Float, share: float) -> list[Float]:
        """Return each feature's variances (L + 2,) of the logits of a class with this indicator
        (n,) and frequency."""
        by_feature = []
        for f, effects in enumerate(self.effects(indicator - share), start=1):
            known = self.known(f)
            variance = 0.0
            if effects is not None:
                count = int(known.sum())
                wider = (count + 1) / (count - 1) if count > 1 else np.inf
                spread = logit_variance(float(np.trace(effects.prior)), share)
                variance = min(wider * max(spread, LOGIT_VARIANCES[0]), LOGIT_VARIANCES[-1])
                if self.kinds[f - 1] == COORDINATES:
                    learned = logit_variance(self.in_training(effects, f)[0], share)
                    variance = max(variance - learned, 0.0) / (1.0 + learned * np.pi / 8.0)
            by_feature.append(np.where(known, 0.0, variance))
        return by_feature


def with_level_variances(
    sample: SampledRows, problem: Problem, columns: Columns, scaling: Scaling, sums: int
) -> Scaling:
    """Return the scaling with the variances of level effects, if there are several targets or
    classes.

    Parameters
    ----------
    sample : rows from which effects are learned
    problem : a problem with targets or classes
    columns : names of the features and their categories
    scaling : the scaling of features, some of which may be level coordinates
    sums : maximum number of elements in a feature's sums
    """
    counts = other_categories(columns, {})
    if not counts or has_one_noise(problem):
        return scaling
    tile = sample.rows.gather(sample.rows.rows)
    plain = with_moments(replace(scaling, features=None), columns)
    rows, _ = level_rows(tile, plain, scaling, counts, sums)
    root = tile.root_weights
    present = np.flatnonzero(root)
    levels = LevelSample(
        rows.some(present),
        root[present],
        level_folds(sample.rows.rows)[present],
        kinds_of(scaling, counts),
    )
    tables, log_shares = TABLES[problem.likelihood.working.search](levels, problem, tile.t[present])
    by_feature = zip(counts, tables, strict=True)
    variances = tuple((j, table[None]) for j, table in by_feature if table.any())
    if not variances:
        return scaling
    features = scaling.features or FeatureMap.plain(len(columns.features))
    features = replace(features, variances=variances, log_shares=log_shares)
    return replace(scaling, features=features)


def tables_of_numbers(levels: LevelSample, problem: Problem, t: Float) -> tuple[list[Float], Float]:
    """Return each feature's variances (L + 2, C) of the effects on the working targets for targets
    (n, T), and no class frequencies."""
    numbers = problem.likelihood.working.of_levels(problem, t)
    of_targets = [levels.of_target(target) for target in numbers.T]
    tables = [np.column_stack(of_feature) for of_feature in zip(*of_targets, strict=True)]
    return tables, np.zeros(0)


def class_shares(codes: Int, weights: Float, n_classes: int) -> Float:
    """Return the weighted class frequencies (K,), with one row added to each class."""
    counts = np.bincount(codes, weights, n_classes) + 1.0
    return np.asarray(counts / counts.sum())


def tables_of_classes(levels: LevelSample, problem: Problem, t: Float) -> tuple[list[Float], Float]:
    """Return each feature's variances (L + 2, 1) of the logits for class codes (n, 1), averaged
    over the classes, and the logarithms of the class frequencies (K,)."""
    codes = t[:, 0].astype(np.int64)
    shares = class_shares(codes, levels.root**2, problem.n_classes)
    indicators = np.eye(len(shares))[codes]
    classes = range(1 if len(shares) == 2 else 0, len(shares))
    of_classes = [levels.of_class(indicators[:, k], float(shares[k])) for k in classes]
    means = [np.mean(of_feature, axis=0) for of_feature in zip(*of_classes, strict=True)]
    return [mean[:, None] for mean in means], np.log(shares)


TABLES = {"numbers": tables_of_numbers, "classes": tables_of_classes}
"""Functions that compute level variances, by the name of the kernel search."""


def kinds_of(scaling: Scaling, counts: dict[int, int]) -> tuple[str, ...]:
    """Return how the model uses each categorical feature, given the numbers of levels by
    position."""
    tables = {} if scaling.features is None else dict(scaling.features.tables)
    kinds = []
    for j in counts:
        table = tables.get(j)
        if table is None or (len(table) == 1 and table.any()):  # compared, or as indicators
            kinds.append(KERNEL)
        else:
            kinds.append(COORDINATES if table.any() else OFF)
    return tuple(kinds)
