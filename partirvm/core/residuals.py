"""Residuals of a fitted mean over rows, as additive statistics.

``ResidualStatistics`` is used by fits: Σ w r², the rows of largest error (the next candidates) and, if requested, Φᵀr
for statistics of the residual target. ``Scores`` is used by reports: errors, predictive density and coverage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from partirvm.core.diagnostics import MOST_TARGETS, NumberDiagnostics
from partirvm.core.predictive import quantile

Float = NDArray[np.float64]
Int = NDArray[np.int64]

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
"""Levels of the central intervals whose coverage is measured."""

NORMAL = tuple(map(quantile, LEVELS))
"""Half widths of these intervals of a standard normal."""


@dataclass(frozen=True)
class LargestResiduals:
    """The ``limit`` rows of largest absolute error: in decreasing order of error, ties by increasing row number.

    ``errors`` (k,), ``rows`` (k,) int64 and their inputs ``points`` (k, d), k ≤ limit.
    """

    limit: int
    errors: Float
    rows: Int
    points: Float

    @property
    def largest(self) -> LargestResiduals:
        """These rows, as ``ResidualStatistics.largest``."""
        return self

    @classmethod
    def of(cls, limit: int, errors: Float, rows: Int, points: Float) -> LargestResiduals:
        """The largest of these errors (n,), with their rows (n,) and points (n, d)."""
        if len(errors) > limit:
            order = np.lexsort((rows, -errors))[:limit]
            errors, rows, points = errors[order], rows[order], points[order]
        return cls(limit, errors, rows, points)

    def __add__(self, other: LargestResiduals) -> LargestResiduals:
        return LargestResiduals.of(
            self.limit,
            np.concatenate([self.errors, other.errors]),
            np.concatenate([self.rows, other.rows]),
            np.concatenate([self.points, other.points]),
        )

    def ranked(self) -> LargestResiduals:
        """The same rows, sorted by decreasing error."""
        order = np.lexsort((self.rows, -self.errors))
        return LargestResiduals(self.limit, self.errors[order], self.rows[order], self.points[order])


@dataclass(frozen=True)
class ResidualStatistics:
    """Residuals r = t − Φμ of n rows: ``sum_squares`` (T,) = Σ w r², ``projection`` (M, T) = Φᵀ(w r), largest."""

    n: int
    sum_squares: Float
    projection: Float
    largest: LargestResiduals

    def __add__(self, other: ResidualStatistics) -> ResidualStatistics:
        return ResidualStatistics(
            self.n + other.n,
            self.sum_squares + other.sum_squares,
            self.projection + other.projection,
            self.largest + other.largest,
        )


@dataclass(frozen=True)
class Scores:
    """Sums of the scores of n rows: of squared and absolute errors, of negative log densities (nats), and others.

    ``crps`` is the continuous ranked probability score, ``interval_score`` that of the central 95 % interval (Gneiting
    & Raftery 2007, eqs. 21 and 43), ``covered`` (5,) the number of targets inside their central interval at each of
    ``LEVELS``. Errors are in the units of the targets, squares in the square of ``unit``. For several targets these are
    means over targets, so ``rmse`` is the root of the mean of their squares. ``diagnostics`` are those of the first
    targets, or none.
    """

    n: int
    square: float
    absolute: float
    nll: float
    crps: float
    interval_score: float
    covered: tuple[float, ...]
    unit: float = 1.0
    diagnostics: tuple[NumberDiagnostics, ...] = field(default=(), compare=False)

    @classmethod
    def over(cls, targets: Sequence[Scores]) -> Scores:
        """The mean over targets of the scores of the same rows."""
        if len(targets) == 1:
            return targets[0]
        unit = max(one.unit for one in targets)
        squares = [one.square * (one.unit / unit) ** 2 for one in targets]
        sums = [[s, *one._sums()[1:]] for s, one in zip(squares, targets, strict=True)]
        diagnostics = tuple(each for one in targets for each in one.diagnostics)[:MOST_TARGETS]
        return cls._of_sums(targets[0].n, np.mean(sums, axis=0).tolist(), unit, diagnostics)

    @classmethod
    def of(
        cls, t: Float, mean: Float, variance: Float, unit: float = 1.0, multiples: Sequence[float] = NORMAL
    ) -> Scores:
        """Scores of targets t (n,) under normal predictions with this mean and (noisy) variance, both (n,).

        The variance is in the square of ``unit``. Intervals are the mean ± ``multiples`` × the standard deviation, one
        multiple for each of ``LEVELS``.
        """
        r, sd = (t - mean) / unit, np.sqrt(variance)
        z = r / sd
        nll = 0.5 * (np.log(2 * np.pi * variance) + z**2) + np.log(unit)
        crps = sd * (z * (2 * ndtr(z) - 1) + np.sqrt(2 / np.pi) * np.exp(-0.5 * z**2) - 1 / np.sqrt(np.pi))
        half = multiples[LEVELS.index(0.95)] * sd
        width = 2 * half + 2 / (1 - 0.95) * np.maximum(np.abs(r) - half, 0.0)
        covered = [int((np.abs(z) <= multiple).sum()) for multiple in multiples]
        errors = (float(each.sum()) * unit for each in (np.abs(r), crps, width))
        absolute, ranked, scored = errors
        return cls(len(t), float(r @ r), absolute, float(nll.sum()), ranked, scored, tuple(covered), unit)

    def figures(self, targets: Sequence[str] = ()) -> dict[str, Any]:
        """The scores of an evaluation, by name: means over rows."""
        coverage = {f"coverage_{100 * level:.0f}": found for level, found in zip(LEVELS, self.coverage, strict=True)}
        own = {"crps": self.crps / self.n, "interval_score_95": self.interval_score / self.n}
        return {"rmse": self.rmse, "nlpd": self.nlpd, **own, **coverage}

    def _sums(self) -> list[float]:
        return [self.square, self.absolute, self.nll, self.crps, self.interval_score, *self.covered]

    @classmethod
    def _of_sums(cls, n: int, sums: Sequence[float], unit: float, diagnostics: tuple[NumberDiagnostics, ...]) -> Scores:
        square, absolute, nll, crps, interval_score, *covered = sums
        return cls(n, square, absolute, nll, crps, interval_score, tuple(covered), unit, diagnostics)

    def __add__(self, other: Scores) -> Scores:
        sums = [mine + theirs for mine, theirs in zip(self._sums(), other._sums(), strict=True)]
        diagnostics = tuple(one + more for one, more in zip(self.diagnostics, other.diagnostics, strict=True))
        return self._of_sums(self.n + other.n, sums, self.unit, diagnostics)

    @property
    def rmse(self) -> float:
        """Root mean square error."""
        return float(np.sqrt(self.square / self.n)) * self.unit

    @property
    def loss(self) -> float:
        """The loss minimised by early stopping: the root mean square error."""
        return self.rmse

    @property
    def nlpd(self) -> float:
        """Mean negative log predictive density per row, in nats."""
        return self.nll / self.n

    @property
    def coverage(self) -> tuple[float, ...]:
        """Fraction of targets inside their central interval at each of ``LEVELS``."""
        return tuple(count / self.n for count in self.covered)


@dataclass(frozen=True)
class TargetScores:
    """Scores of the same rows, separately for ``each`` of several targets."""

    each: tuple[Scores, ...]

    def __add__(self, other: TargetScores) -> TargetScores:
        return TargetScores(tuple(one + more for one, more in zip(self.each, other.each, strict=True)))

    @property
    def n(self) -> int:
        """Rows."""
        return self.each[0].n

    def figures(self, targets: Sequence[str]) -> dict[str, Any]:
        """Those of the mean, and in ``targets`` those of each by its name."""
        each = {name: one.figures() for name, one in zip(targets, self.each, strict=True)}
        return {**self.mean.figures(), "targets": each}

    @property
    def diagnostics(self) -> tuple[NumberDiagnostics, ...]:
        """Those of the first targets."""
        return tuple(found for one in self.each for found in one.diagnostics)

    @property
    def mean(self) -> Scores:
        """The mean over targets."""
        return Scores.over(self.each)
