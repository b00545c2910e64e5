"""Residuals of a fitted mean over rows, as additive statistics.

``ResidualStatistics`` is used by fits: Σ w r², the rows of largest error (the next candidates) and, if requested, Φᵀr
for statistics of the residual target. ``Scores`` is used by reports: errors, predictive density and coverage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Int = NDArray[np.int64]

Z95 = 1.959963984540054
"""Half width of the central 95 % interval of a standard normal."""


@dataclass(frozen=True)
class LargestErrors:
    """The ``limit`` rows of largest absolute error: in decreasing order of error, ties by increasing row number.

    ``errors`` (k,), ``rows`` (k,) int64 and their inputs ``points`` (k, d), k ≤ limit.
    """

    limit: int
    errors: Float
    rows: Int
    points: Float

    @classmethod
    def of(cls, limit: int, errors: Float, rows: Int, points: Float) -> LargestErrors:
        """The largest of these errors (n,), with their rows (n,) and points (n, d)."""
        if len(errors) > limit:
            order = np.lexsort((rows, -errors))[:limit]
            errors, rows, points = errors[order], rows[order], points[order]
        return cls(limit, errors, rows, points)

    def __add__(self, other: LargestErrors) -> LargestErrors:
        return LargestErrors.of(
            self.limit,
            np.concatenate([self.errors, other.errors]),
            np.concatenate([self.rows, other.rows]),
            np.concatenate([self.points, other.points]),
        )

    def ranked(self) -> LargestErrors:
        """The same rows, sorted by decreasing error."""
        order = np.lexsort((self.rows, -self.errors))
        return LargestErrors(self.limit, self.errors[order], self.rows[order], self.points[order])


@dataclass(frozen=True)
class ResidualStatistics:
    """Residuals r = t − Φμ of n rows: ``sum_squares`` (T,) = Σ w r², ``projection`` (M, T) = Φᵀ(w r), largest."""

    n: int
    sum_squares: Float
    projection: Float
    largest: LargestErrors

    def __add__(self, other: ResidualStatistics) -> ResidualStatistics:
        return ResidualStatistics(
            self.n + other.n,
            self.sum_squares + other.sum_squares,
            self.projection + other.projection,
            self.largest + other.largest,
        )


@dataclass(frozen=True)
class Scores:
    """Sums over n rows: squared error, absolute error, negative log density (nats), targets inside their 95 % interval.

    Errors are in the units of the targets, squares in the square of ``unit``. For several targets these are means over
    targets, so ``rmse`` is the root of the mean of their squares.
    """

    n: int
    square: float
    absolute: float
    nll: float
    covered: float
    unit: float = 1.0

    @classmethod
    def over(cls, targets: Sequence[Scores]) -> Scores:
        """The mean over targets of the scores of the same rows."""
        if len(targets) == 1:
            return targets[0]
        unit = max(one.unit for one in targets)
        squares = [one.square * (one.unit / unit) ** 2 for one in targets]
        sums = [[s, one.absolute, one.nll, one.covered] for s, one in zip(squares, targets, strict=True)]
        square, absolute, nll, covered = np.mean(sums, axis=0).tolist()
        return cls(targets[0].n, square, absolute, nll, covered, unit)

    @classmethod
    def of(cls, t: Float, mean: Float, variance: Float, unit: float = 1.0) -> Scores:
        """Scores of targets t (n,) under normal predictions with this mean and (noisy) variance, both (n,).

        The variance is in the square of ``unit``.
        """
        r = (t - mean) / unit
        nll = 0.5 * (np.log(2 * np.pi * variance) + r**2 / variance) + np.log(unit)
        covered = np.abs(r) <= Z95 * np.sqrt(variance)
        absolute = float(np.abs(r).sum()) * unit
        return cls(len(t), float(r @ r), absolute, float(nll.sum()), int(covered.sum()), unit)

    def figures(self, targets: Sequence[str] = ()) -> dict[str, Any]:
        """What an evaluation tells, by name."""
        return {"rmse": self.rmse, "nlpd": self.nlpd, "coverage_95": self.coverage_95}

    def __add__(self, other: Scores) -> Scores:
        return Scores(
            self.n + other.n,
            self.square + other.square,
            self.absolute + other.absolute,
            self.nll + other.nll,
            self.covered + other.covered,
            self.unit,
        )

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
    def coverage_95(self) -> float:
        """Fraction of targets inside their 95 % prediction interval."""
        return self.covered / self.n


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
    def mean(self) -> Scores:
        """The mean over targets."""
        return Scores.over(self.each)
