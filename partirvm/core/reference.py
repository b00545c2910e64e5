"""Compare a model with other methods on rows left out of them, and say in words what a user should know.

All errors are of rows that the methods have not seen. Errors of the model are those of its training rows times the
ratio of its left-out error to its training error (``core.left_out``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

Float = NDArray[np.float64]

BETTER = 1.1
"""Ratio of root mean square errors from which on another method is named."""

STANDARD_ERRORS = 2.0
"""Number of standard errors by which the mean squared errors must differ, too: few rows vary."""

USUAL = 0.99
"""Share of the rows, those of smallest errors by both methods, on which the other method must be better, too.

A few targets far away decide the mean squared error, by chance.
"""

FAR = 20.0
"""Number of robust standard deviations (median absolute error ÷ .6745) beyond which a row is an outlier."""

CARRIED = 0.5
"""Share of the squared error that outliers must carry to be named."""

DETAIL = 1.5
"""Ratio of the stated noise to the noise between nearest rows from which on detail is missing."""

NEIGHBOURS = 10
"""Number of nearest rows whose mean target, weighted by 1/distance, predicts a row."""

TINY = np.finfo(float).tiny

QUANTILE = 0.6744897501960817
"""Median of the absolute value of a standard normal."""


@dataclass(frozen=True)
class ReferenceErrors:
    """The result: root mean square errors on ``rows`` rows in units of the target, of the model and of other methods.

    ``better`` are the methods that are better by more than ``BETTER`` and ``STANDARD_ERRORS``, on usual rows, too.
    ``near_noise`` is the deviation of the noise by differences of nearest rows, and ``noise`` the stated one.
    ``outliers`` is the share of rows beyond ``FAR`` robust deviations; they carry the share ``carried`` of the squares.
    """

    rows: int
    rmse: float
    others: Mapping[str, float]
    better: tuple[str, ...]
    noise: float
    near_noise: float
    outliers: float
    carried: float

    @classmethod
    def of(cls, errors: Float, others: Mapping[str, Float], noise: float, near_noise: float) -> ReferenceErrors:
        """Compare errors (n,) of the model with those of other methods on the same rows."""
        square = errors**2
        better = []
        for name, other in others.items():
            gain = square - other**2
            sure = gain.mean() > STANDARD_ERRORS * gain.std() / np.sqrt(len(gain))
            largest = np.maximum(square, other**2)
            usual = largest <= np.quantile(largest, USUAL)
            ratios = [square[rows].sum() / max((other[rows] ** 2).sum(), TINY) for rows in (usual, slice(None))]
            if sure and min(ratios) > BETTER**2:
                better.append(name)
        robust = float(np.median(np.abs(errors))) / QUANTILE
        far = np.abs(errors) > FAR * robust
        return cls(
            len(errors),
            _root(square),
            {name: _root(other**2) for name, other in others.items()},
            tuple(better),
            noise,
            near_noise,
            float(far.mean()),
            float(square[far].sum() / max(square.sum(), TINY)),
        )

    def remarks(self) -> list[str]:
        """Return sentences about what should be checked; empty if nothing is remarkable."""
        found = [
            f"{name} has an RMSE of {self.others[name]:.3g} on {self.rows:,} rows left out, this model "
            f"{self.rmse:.3g} (+{self.rmse / self.others[name] - 1:.0%}): more vectors (effort='thorough', "
            "max_vectors), transformed features or target, or categories given as such may help"
            for name in self.better
        ]
        if self.noise > DETAIL * self.near_noise > 0:
            found.append(
                f"the stated noise is {self.noise:.3g}, but targets of nearest rows differ as if it were "
                f"{self.near_noise:.3g}: the model misses detail; more vectors may help"
            )
        if self.carried > CARRIED and self.outliers < 0.5:
            found.append(
                f"{self.outliers:.2%} of the rows lie beyond {FAR:.0f} typical deviations and carry "
                f"{self.carried:.0%} of the squared error: check these rows"
            )
        return found

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON, with the remarks."""
        return {**asdict(self), "others": dict(self.others), "better": list(self.better), "remarks": self.remarks()}


def by_near_rows(X: Float, y: Float, new: Float) -> Float:
    """Predict new rows (m, d) by the weighted mean target of their ``NEIGHBOURS`` nearest rows of X (n, d), (m,)."""
    distance, which = cKDTree(X).query(new, k=min(NEIGHBOURS, len(X)))
    distance, which = distance.reshape(len(new), -1), which.reshape(len(new), -1)
    weights = 1.0 / np.maximum(distance, TINY**0.5)
    return np.asarray((weights * y[which]).sum(axis=1) / weights.sum(axis=1))


def noise_of_near_rows(X: Float, y: Float) -> float:
    """Return the deviation of noise by differences of nearest rows: √(½ mean (y_n − y_nearest)²), an upper bound.

    The nearest of rows with equal inputs is another row with these inputs.
    """
    _, which = cKDTree(X).query(X, k=2)
    itself = which[:, 0] == np.arange(len(X))
    nearest = np.where(itself, which[:, 1], which[:, 0])
    return _root((y - y[nearest]) ** 2 / 2)


def _root(square: Float) -> float:
    return float(np.sqrt(np.mean(square)))
