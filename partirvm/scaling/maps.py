"""Maps of features and of the target, and the scaling of a model.

A map changes the form of a column (``FeatureMap``, ``TargetMap``); the scaling applies the maps and
standardises the columns.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from partirvm.scaling.levels import (
    known_levels,
    level_functions,
    levels_of,
    of_levels,
    without_folds,
)
from partirvm.types import Bool, DeclaredState, Float, Int

Tables: TypeAlias = tuple[tuple[int, Float], ...]
"""Positions of categorical features, each with a table by block and level."""

SWEEPS = 10
"""Number of Gauss–Seidel sweeps over the missing inputs of a row."""

LEAST_TARGET = 1e-300
"""A target that is not positive is replaced by this value before its logarithm is taken."""

STEP = 1e-100
"""Imaginary step for derivatives: its square vanishes, but derivatives from 1e-200 to 1e50 do
not."""

GRAIN = 2.0**-32
"""Resolution of a scaled target, in standard deviations.

The result of a fit of many similar columns depends on the last bits, which differ for c·y. Rounding
to multiples of 2e-10 removes differences of 1e-16. The noise is at least 400,000 times as large.
"""


def pulled_back(function: Callable[[Any], Any], X: Float, weights: Float) -> Float:
    """Return Σ_m weights[n, m] ∂f_m(x_n)/∂x_n, (n, d), of analytic f: Im f(x + ih) = h f'(x)
    (Squire & Trapp 1998)."""
    columns = []
    for move in STEP * np.eye(X.shape[1]):
        slopes = function(X + 1j * move).imag / STEP
        columns.append((weights * slopes).sum(axis=1))
    return np.stack(columns, axis=1)


@dataclass(frozen=True)
class FeatureMap(DeclaredState):
    """Map from d features in raw units to d' ≥ d inputs: the feature columns, then additional ones.

    In tables, effects and doubts, block 0 is learned from all rows, and block f + 1 without fold f,
    for the training rows in this fold (``with_folds``). The last two of the L + 2 rows are for
    unknown and missing levels.

    Attributes:
        centres: (d,), centres of asinh((x − centre)/spread).
        spreads: (d,), spreads in this formula; a feature with spread 0 is unchanged. The map is
            linear near the centre and logarithmic in the tails.
        gaps: features that add a column, which is 1 where the value is missing.
        tables: pairs of a categorical feature and a table (B, L + 2, r) of the r coordinates of its
            levels, of which r − 1 are additional columns.
        effects: pairs of a categorical feature and weights (B, L + 2, p) of ``level_functions``,
            whose sum is an additional column.
        numbers: features that are arguments of ``level_functions``.
        moments: (2, g), means and standard deviations of these features.
        doubts: pairs of a categorical feature and variances (B, L + 2) of its levels' effects.
        share: constant part of the noise factor of a row, to which its doubts are added.
        variances: pairs of a categorical feature and the variances (1, L + 2, C) of its levels'
            effects in excess of their mean in training, for several targets or classes: on each of
            C scaled targets, where well known levels may be below 0, or on the logits of all
            classes (C = 1). Where the variance is large, class probabilities tend to the class
            frequencies.
        log_shares: (K,), logarithms of these frequencies.
    """

    centres: Float
    spreads: Float
    gaps: Int
    tables: Tables = ()
    effects: Tables = ()
    numbers: Int = field(default_factory=lambda: np.zeros(0, np.int64))
    moments: Float = field(default_factory=lambda: np.zeros((2, 0)))
    doubts: Tables = ()
    share: float = 1.0
    variances: Tables = ()
    log_shares: Float = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def plain(cls, d: int) -> "FeatureMap":
        """Return the map that leaves all features unchanged."""
        return cls(np.zeros(d), np.zeros(d), np.zeros(0, np.int64))

    def __call__(self, X: Float) -> Float:
        """Return the inputs (n, d') of rows X (n, d). A missing number remains NaN."""
        X = X[:, : len(self.spreads)]
        coordinates = {j: of_levels(table, X[:, j]) for j, table in self.tables}
        additional = [columns[:, 1:] for columns in coordinates.values()]
        for j, weights in self.effects:
            functions = level_functions(X, self.numbers, self.moments, weights.shape[2])
            effects = functions * of_levels(weights, X[:, j])
            additional.append(effects.sum(axis=1, keepdims=True))
        inputs = np.concatenate([X, *additional, self._missing(X)], axis=1)
        for j in np.flatnonzero(self.spreads).tolist():
            distances = X[:, j] - self.centres[j]
            inputs[:, j] = np.arcsinh(distances / self.spreads[j])
        for j, columns in coordinates.items():
            inputs[:, j] = columns[:, 0]
        return inputs

    def _missing(self, X: Float) -> Bool:
        """Return a mask of the rows X (n, d) without a value, for each feature in ``gaps``."""
        is_missing = np.isnan(X[:, self.gaps])
        for j, table in self.tables:
            count = known_levels(table)
            has_no_level = levels_of(X[:, j], count) == count + 1
            is_missing[:, self.gaps == j] = has_no_level[:, None]
        return is_missing

    def noise_factor(self, X: Float) -> Float:
        """Return the variance (n,) of noise and level effects at rows X (n, d); its mean over
        training rows is one."""
        factor = np.full(len(X), self.share)
        for j, doubts in self.doubts:
            factor += of_levels(doubts, X[:, j])
        return factor

    def level_variances(self, X: Float) -> Float:
        """Return the sum (n, C) of ``variances`` at rows X (n, d); ``variances`` must not be
        empty."""
        variances = [of_levels(table, X[:, j]) for j, table in self.variances]
        return np.asarray(sum(variances))

    def with_doubts(self, multiple: float, mean: float) -> "FeatureMap":
        """Return the map with its doubts multiplied relative to the noise, given their ``mean`` in
        training.

        The training rows' mean noise factor, ``share`` + mean, becomes one.
        """
        total = self.share + multiple * mean
        factor = multiple / total
        doubts = tuple((j, factor * table) for j, table in self.doubts)
        return replace(self, doubts=doubts, share=self.share / total)

    @property
    def folded(self) -> dict[int, int]:
        """Numbers of levels, by position, of the features whose training rows need folds."""
        return {j: known_levels(table) for j, table in self.tables if len(table) > 1}

    @property
    def sources(self) -> Int:
        """Position of the feature from which each input is computed, (d',)."""
        features = np.arange(len(self.spreads))
        coordinates = [np.full(table.shape[2] - 1, j) for j, table in self.tables]
        effects = [j for j, _ in self.effects]
        sources = np.concatenate([features, *coordinates, effects, self.gaps])
        return sources.astype(np.int64)

    def used(self, inputs: Bool) -> Bool:
        """Return the features (d,) on which any of the ``inputs`` (d',) depend."""
        inputs = inputs.copy()
        used = np.zeros(len(self.spreads), dtype=np.bool_)
        place = len(self.spreads)
        for j, blocks in self.tables:
            coordinates = blocks[0]  # the coordinates for new rows
            varies = (coordinates != coordinates[0]).any(axis=0)
            inputs[j] &= varies[0]
            additional = slice(place, place + coordinates.shape[1] - 1)
            inputs[additional] &= varies[1:]
            place = additional.stop
        for _, blocks in self.effects:
            if inputs[place]:
                used[self._numbers_used(blocks[0])] = True
            place += 1
        for j, blocks in self.doubts:
            doubts = blocks[0]
            used[j] |= (doubts != doubts[0]).any()
        for j, blocks in self.variances:
            used[j] |= bool(blocks.any())
        used[self.sources[inputs]] = True
        return used

    def _numbers_used(self, weights: Float) -> Int:
        """Return the numeric features on which effects with these weights (L + 2, p) depend."""
        if not len(self.numbers):
            return self.numbers
        has_weight = (weights[:, 1:] != 0.0).any(axis=0)
        is_used = has_weight.reshape(-1, len(self.numbers)).any(axis=0)
        return np.asarray(self.numbers[is_used])

    def names(self, features: Sequence[str]) -> tuple[str, ...]:
        """Return the names (d',) of the inputs."""
        names = list(features)
        for j in np.flatnonzero(self.spreads).tolist():
            target_map = TargetMap("asinh", self.centres[j], self.spreads[j])
            names[j] = target_map.name(features[j])
        for j, table in self.tables:
            names[j] = f"{features[j]} (1)"
            names += [f"{features[j]} ({k})" for k in range(2, table.shape[2] + 1)]
        names += [f"effect of {features[j]}" for j, _ in self.effects]
        names += [f"{features[j]} missing" for j in self.gaps.tolist()]
        return tuple(names)


@dataclass(frozen=True)
class TargetMap(DeclaredState):
    """Map of a target t to z: "none" (z = t), "log" (log t), or "asinh" (asinh((t −
    centre)/spread)), and back."""

    kind: str = "none"
    centre: float = 0.0
    spread: float = 1.0

    def __call__(self, t: Float) -> Float:
        """Return z for targets t."""
        if self.kind == "none":
            return t
        if self.kind == "log":
            return np.log(np.maximum(t, LEAST_TARGET))
        return np.asarray(np.arcsinh((t - self.centre) / self.spread))

    def log_slope(self, t: Float) -> Float:
        """Return log dz/dt, the log density of t minus the log density of z."""
        if self.kind == "none":
            return np.zeros(t.shape)
        if self.kind == "log":
            return -np.log(np.maximum(t, LEAST_TARGET))
        return -np.log(np.hypot(t - self.centre, self.spread))

    def back(self, z: Float) -> Float:
        """Return the targets for values z; quantiles of z become quantiles of t."""
        if self.kind == "none":
            return z
        if self.kind == "log":
            return np.exp(z)  # type: ignore[no-any-return, unused-ignore]
        return self.centre + self.spread * np.sinh(z)

    def moments(self, mean: Float, variance: Float) -> tuple[Float, Float]:
        """Return the mean and variance of the target for a normal z with this mean and variance, in
        closed form."""
        if self.kind == "none":
            return mean, variance
        growth = np.exp(0.5 * variance)
        tail = np.expm1(variance)
        if self.kind == "log":
            expected = growth * np.exp(mean)
            return expected, tail * expected**2
        expected = growth * np.sinh(mean)
        relative = 0.5 * np.expm1(2 * variance) + tail * expected**2
        return self.centre + self.spread * expected, self.spread**2 * relative

    def name(self, target: str) -> str:
        """Return a name for z."""
        if self.kind == "none":
            return target
        if self.kind == "log":
            return f"log({target})"
        return f"asinh(({target} − {self.centre:.3g})/{self.spread:.3g})"


AS_IT_IS = TargetMap()
"""The map for a target that is not warped."""


@dataclass(frozen=True)
class Scaling(DeclaredState):
    """Map from raw inputs (n, d) and targets (n, T) to the model's, by column: (x − shift) / scale.

    Attributes:
        x_shift: (d',), subtracted from the inputs.
        x_scale: (d',), divisors of the shifted inputs.
        t_shift: (T,), subtracted from the targets.
        t_scale: (T,), divisors of the shifted targets.
        features: map of the d features to d' inputs, applied first; None leaves them unchanged.
        target: map of the target, applied first.
        blank: (d',), scaled inputs that replace a missing number; None means 0.
        regressions: (d', d'), coefficients of scaled inputs on the others: they replace a missing
            number by its conditional normal mean.
        weight_unit: the mean of the training rows' positive weights, by which they are divided; 1
            if their scale matters or there are none.
    """

    x_shift: Float
    x_scale: Float
    t_shift: Float
    t_scale: Float
    features: FeatureMap | None = None
    target: TargetMap = AS_IT_IS
    blank: Float | None = None
    regressions: Float | None = None
    weight_unit: float = 1.0

    @cached_property
    def key(self) -> str:
        """String that distinguishes scalings of different inputs."""
        numbers: list[Any] = [self.x_shift, self.x_scale, self.blank, self.regressions]
        features = self.features
        if features is not None:
            numbers += [features.centres, features.spreads, features.gaps]
            numbers += itertools.chain(*features.tables, *features.effects)
            numbers += [features.numbers, features.moments]
        return repr([np.ravel(part).tolist() for part in numbers])

    @property
    def n_features(self) -> int:
        """d, the number of features."""
        return self.n_inputs if self.features is None else len(self.features.spreads)

    @property
    def n_inputs(self) -> int:
        """d', the number of columns that the kernel uses."""
        return len(self.x_shift)

    @property
    def sources(self) -> Int:
        """Position of the feature from which each input is computed, (d',)."""
        if self.features is None:
            return np.arange(self.n_inputs)
        return self.features.sources

    @property
    def embedded(self) -> list[int]:
        """Positions of the categorical features whose levels have coordinates."""
        if self.features is None:
            return []
        return [j for j, _ in self.features.tables]

    def shares_missing(self, features: Sequence[str]) -> dict[str, float]:
        """Return, by name, the fraction of training rows without a value for each of the features
        (d,) with gaps."""
        if self.features is None:
            return {}
        gaps = self.features.gaps.tolist()
        first = self.n_inputs - len(gaps)
        shares = self.x_shift[first:].tolist()
        return {features[j]: share for j, share in zip(gaps, shares, strict=True)}

    def names(self, features: Sequence[str]) -> tuple[str, ...]:
        """Return the names (d',) of the inputs, given the names of the features (d,)."""
        if self.features is None:
            return tuple(features)
        return self.features.names(features)

    def features_of(self, inputs: Bool) -> Bool:
        """Return the features (d,) from which these inputs (d',) are computed.

        A missing input may be predicted from others. Coordinates that are equal for all levels
        depend on nothing.
        """
        if self.features is None:
            return inputs
        inputs = inputs.copy()
        if self.regressions is not None:
            gaps = self.features.gaps.tolist()
            for j in len(gaps) * gaps:  # repeated: an input may need a third one
                if inputs[j]:
                    inputs |= self.regressions[j] != 0.0
        return self.features.used(inputs)

    def inputs(self, X: Float) -> Float:
        """Return the inputs (n, d') in the kernel's coordinates; further columns of X, which
        training rows may have (``data.folds``), are ignored."""
        X = X[:, : self.n_features] if self.features is None else self.features(X)
        scaled = X - self.x_shift
        scaled /= self.x_scale
        is_missing = np.isnan(scaled)
        incomplete = is_missing.any(axis=1)
        if not incomplete.any():
            return scaled
        blank = 0.0 if self.blank is None else self.blank
        scaled = np.where(is_missing, blank, scaled)
        if self.regressions is not None:
            scaled[incomplete] = _predicted(
                scaled[incomplete], is_missing[incomplete], self.regressions
            )
        return scaled

    @property
    def doubtful(self) -> bool:
        """True if the variance of a target also depends on how well the effect of its level is
        known."""
        if self.features is None:
            return False
        return bool(self.features.doubts)

    def noise_factor(self, X: Float) -> Float:
        """Return the factors (n,) of the noise variance at raw inputs X (n, d), from the doubts
        about level effects."""
        if self.features is None:
            return np.ones(len(X))
        return self.features.noise_factor(X)

    def raw_gradient(self, X: Float, gradient: Float) -> Float:
        """Return the gradient (n, d) with respect to raw X (n, d) without gaps, given the
        ``gradient`` (n, d') with respect to the inputs."""
        gradient = gradient / self.x_scale
        if self.features is None:
            return gradient
        return pulled_back(self.features, X, gradient)

    def targets(self, t: Float) -> Float:
        """Return targets (n, T) in the likelihood's units; scaled targets are rounded to the
        nearest multiple of ``GRAIN``."""
        scaled = (self.target(t) - self.t_shift) / self.t_scale
        rounded = np.rint(scaled / GRAIN) * GRAIN
        return np.where(self.t_scale == 1.0, scaled, rounded)


def _predicted(rows: Float, is_missing: Bool, regressions: Float) -> Float:
    """Return scaled inputs with missing values predicted from the other inputs of the same row.

    Args:
        rows: scaled inputs (n, d'), with any value where one is missing; overwritten.
        is_missing: (n, d'), True where an input is missing.
        regressions: (d', d'), coefficients of inputs on the others.
    """
    is_predicted = is_missing.any(axis=0) & regressions.any(axis=1)
    for j in SWEEPS * np.flatnonzero(is_predicted).tolist():
        gaps = is_missing[:, j]
        terms = rows[gaps] * regressions[j]
        rows[gaps, j] = terms.sum(axis=1)
    return rows


def unfolded_inputs(X: Float, scaling: Scaling) -> Float:
    """Return training rows X (n, d) as they were before ``data.folds``."""
    X = X[:, : scaling.n_features]
    if scaling.features is None or not scaling.features.folded:
        return X
    rows = X.copy()
    for j, count in scaling.features.folded.items():
        rows[:, j] = without_folds(X[:, j], count)
    return rows
