"""Sums over rows that show whether stated uncertainty is right: of numbers, and of class probabilities.

The statistics are additive, so that a pass sums tiles in its tree, and their size does not depend on the number of
rows. Counts are of all rows. Points are a random sample: the rows of smallest key, where the key of a row depends only
on its number (``core.sampling``). ``report.plots`` makes pictures of these values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from partirvm.core.predictive import quantile
from partirvm.core.reduction import FieldSums
from partirvm.core.sampling import LargestErrors, Purpose, draw_key, uniform

Float = NDArray[np.float64]
Int = NDArray[np.int64]

STATED_LEVELS = (0.05, *(k / 10 for k in range(1, 10)), 0.95, 0.99)
"""Levels of the central intervals whose observed coverage is counted."""

NORMAL_MULTIPLES = tuple(map(quantile, STATED_LEVELS))
"""Half widths of these intervals of a standard normal."""

PIT_BINS = 20
"""Number of equal bins of the probability integral transform."""

PROBABILITY_BINS = 10
"""Number of equal bins of class probabilities."""

SAMPLE = 400
"""Number of rows in the sample of points."""

MOST_TARGETS = 4
"""Maximum number of targets with diagnostics: the first ones."""

MOST_CLASSES = 12
"""Maximum number of classes that are counted separately. Of more classes the last ones are one class, their union."""


@dataclass(frozen=True)
class NumberDiagnostics:
    """Counts over ``n`` rows of one numeric target, and a sample of its rows.

    ``covered`` (12,) int64 counts rows inside their central interval at each of ``STATED_LEVELS``; it is empty for rows
    on which the intervals were calibrated. ``pit`` (20,) int64 counts rows by the probability integral transform Φ(z)
    of z = (actual − predicted)/standard deviation, which is uniform if the stated normal distributions are right.
    ``points`` (k, 3) are actual value, predicted mean and standard deviation of k ≤ ``SAMPLE`` random rows, in the
    target's unit; ``keys`` (k,) are their random keys, increasing. ``multiples`` are the half widths of the intervals
    in standard deviations; ``largest`` are the rows of largest absolute error with the values of points.
    """

    n: int
    covered: Int
    pit: Int
    keys: Float
    points: Float
    multiples: tuple[float, ...] = NORMAL_MULTIPLES
    largest: LargestErrors = field(default_factory=LargestErrors)

    @classmethod
    def of(
        cls, t: Float, mean: Float, std: Float, rows: Int, multiples: Sequence[float] = NORMAL_MULTIPLES
    ) -> NumberDiagnostics:
        """Return the diagnostics of targets with these means and standard deviations, (n,) each.

        ``rows`` (n,) are row numbers, which choose the sample. Intervals are mean ± ``multiples`` × the standard
        deviation, one increasing multiple for each of ``STATED_LEVELS``; without multiples coverage is not counted.
        """
        z = (t - mean) / std
        inside = np.bincount(np.searchsorted(multiples, np.abs(z)), minlength=len(multiples) + 1)
        keys, points = uniform(rows, draw_key(0, Purpose.DIAGNOSED_ROWS)), np.column_stack([t, mean, std])
        pit = np.bincount(_bins(ndtr(z), PIT_BINS), minlength=PIT_BINS)
        largest = LargestErrors.of(np.abs(t - mean), rows, points)
        return cls(len(t), np.cumsum(inside[:-1]), pit, *_smallest(keys, points), tuple(multiples), largest)

    def __add__(self, other: NumberDiagnostics) -> NumberDiagnostics:
        keys, points = np.concatenate([self.keys, other.keys]), np.concatenate([self.points, other.points])
        covered, pit = self.covered + other.covered, self.pit + other.pit
        largest = self.largest + other.largest
        return NumberDiagnostics(self.n + other.n, covered, pit, *_smallest(keys, points), self.multiples, largest)

    def scaled(self, shift: float, scale: float) -> NumberDiagnostics:
        """Return the diagnostics of the target shift + scale·t."""
        values = self.largest.values.reshape(-1, 3)
        points, values = (each * scale + np.array([shift, shift, 0.0]) for each in (self.points, values))
        return replace(self, points=points, largest=replace(self.largest, values=values))

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON, with points of five significant digits."""
        points = [[float(f"{value:.5g}") for value in point] for point in self.points.tolist()]
        counts = {"n": self.n, "covered": self.covered.tolist(), "pit": self.pit.tolist()}
        return {**counts, "points": points, "multiples": list(self.multiples), "largest": self.largest.to_json()}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> NumberDiagnostics:
        """Return the diagnostics from the result of ``to_json``; they have no keys and cannot be added to others."""
        covered, pit = (np.array(stored[name], dtype=np.int64) for name in ("covered", "pit"))
        points = np.array(stored["points"], dtype=np.float64).reshape(-1, 3)
        multiples, largest = tuple(stored["multiples"]), LargestErrors.from_json(stored["largest"])
        return cls(stored["n"], covered, pit, np.zeros(0), points, multiples, largest)


def _smallest(keys: Float, points: Float) -> tuple[Float, Float]:
    """Return the ``SAMPLE`` smallest keys in order, and their points."""
    if len(keys) > SAMPLE:
        chosen = np.argpartition(keys, SAMPLE)[:SAMPLE]
        keys, points = keys[chosen], points[chosen]
    order = np.argsort(keys)
    return keys[order], points[order]


@dataclass(frozen=True)
class ClassDiagnostics(FieldSums):
    """Counts over ``n`` rows of class probabilities, in ``PROBABILITY_BINS`` equal bins B.

    For each of K classes (at most ``MOST_CLASSES``) and each bin of its probability, ``stated`` (K, B) sums the
    probabilities, ``rows`` (K, B) int64 counts the rows, and ``hits`` (K, B) int64 those of this class. ``confusion``
    (K, K) int64 counts rows by true class (first axis) and most probable class. ``largest`` are the rows of
    largest log loss: true class, most probable class, and the probabilities of both; classes are codes.
    """

    n: int
    stated: Float
    rows: Int
    hits: Int
    confusion: Int
    largest: LargestErrors = field(default_factory=LargestErrors)

    @classmethod
    def of(cls, codes: Int, probabilities: Float, start: int = 0) -> ClassDiagnostics:
        """Return the diagnostics of rows with class codes (n,), 0 … K−1, and probabilities (n, K).

        ``start`` is the number of the first row.
        """
        likeliest, each_row = probabilities.argmax(axis=1), np.arange(len(codes))
        largest, stated_own = probabilities[each_row, likeliest], probabilities[each_row, codes]
        loss = -np.log(np.maximum(stated_own, np.finfo(np.float64).eps))
        p, own, found = _united(probabilities), *(np.minimum(each, MOST_CLASSES - 1) for each in (codes, likeliest))
        K, shown = p.shape[1], np.column_stack([codes, likeliest, stated_own, largest])
        places = _bins(p) + PROBABILITY_BINS * np.arange(K)
        hits = places[np.arange(len(own)), own]
        each, shape = K * PROBABILITY_BINS, (K, PROBABILITY_BINS)
        return cls(
            n=len(codes),
            stated=_sums(places.ravel(), p.ravel(), each).reshape(shape),
            rows=np.bincount(places.ravel(), minlength=each).reshape(shape),
            hits=np.bincount(hits, minlength=each).reshape(shape),
            confusion=np.bincount(own * K + found, minlength=K * K).reshape(K, K),
            largest=LargestErrors.of(loss, start + each_row, shown),
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        counts = {"n": self.n, **{name: getattr(self, name).tolist() for name in COUNTS}}
        return {**counts, "largest": self.largest.to_json()}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> ClassDiagnostics:
        """Return the diagnostics from the result of ``to_json``; they cannot be added to others."""
        counts = {name: np.array(stored[name]) for name in COUNTS}
        return cls(stored["n"], **counts, largest=LargestErrors.from_json(stored["largest"]))


COUNTS = ("stated", "rows", "hits", "confusion")
"""The fields of ``ClassDiagnostics`` that are sums over rows."""


def _bins(p: Float, count: int = PROBABILITY_BINS) -> Int:
    """Return the numbers of the equal bins of [0, 1] that hold the values; an inner edge belongs to the upper bin."""
    found: Int = np.searchsorted(np.arange(1, count) / count, p, side="right")
    return found


def _sums(bins: Int, values: Float, count: int) -> Float:
    """Return the sum of the values in each bin, as float64 even without rows."""
    return np.bincount(bins, values, count).astype(np.float64)


def _united(p: Float) -> Float:
    """Return probabilities (n, K) of at most ``MOST_CLASSES`` classes: those of the last classes are added up."""
    if p.shape[1] <= MOST_CLASSES:
        return p
    return np.column_stack([p[:, : MOST_CLASSES - 1], p[:, MOST_CLASSES - 1 :].sum(axis=1)])
