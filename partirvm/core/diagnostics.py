"""Sums over rows that show whether the predicted uncertainty is correct, for numeric targets and
classes."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import ndtr

from partirvm.core.predictive import quantile
from partirvm.core.sampling import LargestErrors, Purpose, draw_key, uniform
from partirvm.core.statistics import FieldSums
from partirvm.scaling.maps import AS_IT_IS, TargetMap
from partirvm.types import Float, Int

STATED_LEVELS = (0.05, *(k / 10 for k in range(1, 10)), 0.95, 0.99)
"""Levels of the central intervals whose observed coverage is counted."""

NORMAL_MULTIPLES = tuple(map(quantile, STATED_LEVELS))
"""Half widths of these intervals for a standard normal distribution."""

NORMAL_ENDS = np.array([-1.0, 1.0])[:, None] * NORMAL_MULTIPLES
"""Their lower and upper ends (2, 12)."""

NO_ENDS = np.zeros((2, 0))
"""No intervals, for rows on which they were calibrated."""

PIT_BINS = 20
"""Number of equal bins of the probability integral transform."""

SAMPLE = 400
"""Number of rows in the sample of points."""

MOST_CLASSES = 12
"""Maximum number of classes that are counted separately. If there are more, the last ones are
combined into one class."""


@dataclass(frozen=True)
class NumberDiagnostics(FieldSums):
    """Counts over rows of one numeric target, and a sample of its rows.

    Attributes:
        n: number of rows
        covered: numbers of rows inside their central interval at each of ``STATED_LEVELS``, int64
            (12,); empty for rows on which the intervals were calibrated
        pit: counts of rows by Φ(z), z = (actual − predicted)/standard deviation, int64 (20,)
        sample: at most ``SAMPLE`` random rows; their values are the actual value, the predicted
            mean and the standard deviation
        largest: the rows with the largest errors, with the same values
        square: sum of squared errors of the predicted mean
        inside: number of rows inside their central 95 % interval; the interval of a row on which
            intervals were calibrated is calibrated on other rows
    """

    WIDTH: ClassVar[int] = 4
    """Length of a stored row, including its number."""

    n: int
    covered: Int
    pit: Int
    sample: LargestErrors
    largest: LargestErrors
    square: float = 0.0
    inside: int = 0

    @classmethod
    def of(cls, t: Float, mean: Float, std: Float, rows: Int, ends: Float = NORMAL_ENDS) -> Self:
        """Return the diagnostics of rows.

        Args:
            t: targets (n,)
            mean: predicted means (n,)
            std: predicted standard deviations (n,)
            rows: row numbers (n,)
            ends: lower and upper ends of the intervals at ``STATED_LEVELS``, minus the mean, ÷ std,
                (2, 12) or (2, 12, n); ``NO_ENDS`` to omit coverage
        """
        z = (t - mean) / std
        points = np.column_stack([t, mean, std])
        lower, upper = ends if ends.ndim == 3 else ends[:, :, None]
        covered = np.count_nonzero((lower <= z) & (z <= upper), axis=1)
        draws = uniform(rows, draw_key(0, Purpose.DIAGNOSED_ROWS))
        return cls(
            n=len(t),
            covered=covered,
            pit=np.bincount(_bins(ndtr(z), PIT_BINS), minlength=PIT_BINS),
            sample=LargestErrors.of(-draws, rows, points, SAMPLE),
            largest=LargestErrors.of(np.abs(t - mean), rows, points),
            square=float(((t - mean) ** 2).sum()),
            inside=int(covered[STATED_LEVELS.index(0.95)]) if len(covered) else 0,
        )

    def scaled(self, shift: float, scale: float, target: TargetMap = AS_IT_IS) -> Self:
        """Return the diagnostics of the target shift + scale·t; its rows are mapped back to the
        original target by ``target``, but not ``square``."""

        def of_target(found: LargestErrors) -> LargestErrors:
            values = found.values * scale + np.array([shift, shift, 0.0])
            mean, variance = target.moments(values[:, 1], values[:, 2] ** 2)
            return replace(
                found, values=np.column_stack([target.back(values[:, 0]), mean, np.sqrt(variance)])
            )

        return replace(
            self,
            sample=of_target(self.sample),
            largest=of_target(self.largest),
            square=scale**2 * self.square,
        )


@dataclass(frozen=True)
class ClassDiagnostics(FieldSums):
    """Counts of rows by class probability, in B = 10 equal bins, for each of K classes (at most
    ``MOST_CLASSES``).

    Attributes:
        n: number of rows
        stated: sums of the predicted probabilities by class and bin (K, B)
        rows: numbers of rows, int64 (K, B)
        hits: numbers of rows of this class, int64 (K, B)
        confusion: numbers of rows by true and most probable class (K, K)
        largest: codes and probabilities of the rows with the largest losses
    """

    WIDTH: ClassVar[int] = 5
    """Length of a stored row, including its number."""

    n: int
    stated: Float
    rows: Int
    hits: Int
    confusion: Int
    largest: LargestErrors

    @classmethod
    def of(cls, codes: Int, probabilities: Float, start: int = 0) -> Self:
        """Return the diagnostics of rows with class codes (n,) below K and probabilities (n, K),
        from row ``start``."""
        rows = np.arange(len(codes))
        likeliest = probabilities.argmax(axis=1)
        p = probabilities[rows, codes]
        shown = np.column_stack([codes, likeliest, p, probabilities[rows, likeliest]])
        loss = -np.log(np.maximum(p, np.finfo(np.float64).eps))
        largest = LargestErrors.of(loss, start + rows, shown)
        K = min(probabilities.shape[1], MOST_CLASSES)
        # the last column also includes all further classes
        merged = np.add.reduceat(probabilities, np.arange(K), axis=1)
        actual = np.minimum(codes, MOST_CLASSES - 1)
        predicted = np.minimum(likeliest, MOST_CLASSES - 1)
        places = _bins(merged, 10) + 10 * np.arange(K)

        def counted(places: Int, weights: Float | None = None) -> Any:
            return np.bincount(places.ravel(), weights, 10 * K).reshape(K, 10)

        return cls(
            n=len(codes),
            stated=counted(places, merged.ravel()).astype(np.float64),
            rows=counted(places),
            hits=counted(places[rows, actual]),
            confusion=np.bincount(actual * K + predicted, minlength=K * K).reshape(K, K),
            largest=largest,
        )


def to_json(found: NumberDiagnostics | ClassDiagnostics) -> dict[str, Any]:
    """Return plain JSON: numbers and lists by field; a row consists of its number and its values
    with five significant digits."""

    def plain(value: Any) -> Any:
        if isinstance(value, LargestErrors):
            pairs = zip(value.rows.tolist(), value.values.tolist(), strict=True)
            return [
                [row, *(float(f"{number:.5g}") for number in numbers)] for row, numbers in pairs
            ]
        return value.tolist() if isinstance(value, np.ndarray) else value

    return {item.name: plain(getattr(found, item.name)) for item in fields(found)}


def from_json(stored: Mapping[str, Any]) -> NumberDiagnostics | ClassDiagnostics:
    """Return the diagnostics from the result of ``to_json``; they cannot be added, since the stored
    rows lack errors."""
    kind = NumberDiagnostics if "sample" in stored else ClassDiagnostics

    def restored(name: str) -> Any:
        value = stored.get(name, 0)  # histories of version 0.1 may lack square and inside
        if name in ("sample", "largest"):
            values = np.array(value, dtype=np.float64).reshape(len(value), kind.WIDTH)
            return LargestErrors(values[:, 0].astype(np.int64), np.zeros(0), values[:, 1:])
        return np.array(value) if isinstance(value, list) else value

    return kind(**{item.name: restored(item.name) for item in fields(kind)})


def _bins(p: Float, count: int) -> Int:
    """Return the numbers of the equal bins of [0, 1] that contain the values; an inner edge belongs
    to the upper bin."""
    return np.searchsorted(np.arange(1, count) / count, p, side="right")
