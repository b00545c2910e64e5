"""How two classes are told apart at each threshold of a score: the ROC and the precision-recall curve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Int = NDArray[np.int64]

POINTS = 150
"""Number of equal steps between the points of a curve."""

FIRST = 1.3
"""Ratio of the numbers of rows at further points near the start, where precision changes most."""


@dataclass(frozen=True)
class ThresholdCurve:
    """Counts of rows at or above some thresholds, from the largest score to the smallest.

    ``negative`` and ``positive`` (k,) int64 count the rows of each class; both start at 0 and end at all rows.
    ``average_precision`` is Σ (R_j − R_{j−1}) P_j over all thresholds j, with recall R and precision P, and ``auc`` is
    the area under the ROC curve.
    """

    negative: Int
    positive: Int
    auc: float
    average_precision: float

    @classmethod
    def of(cls, negative: Int, positive: Int, auc: float) -> ThresholdCurve:
        """Return the curve from the counts (u,) of rows at each distinct score, by increasing score.

        >>> ThresholdCurve.of(np.array([1, 0]), np.array([0, 1]), 1.0).average_precision
        1.0
        """
        false, true = (np.concatenate([[0], np.cumsum(each[::-1])]) for each in (negative, positive))
        recall, precision = true / true[-1], true[1:] / (true[1:] + false[1:])
        shown = _chosen(false, true)
        return cls(false[shown], true[shown], auc, float(np.diff(recall) @ precision))

    @property
    def rates(self) -> tuple[Float, Float]:
        """False positive rate and true positive rate (recall), (k,) each."""
        return self.negative / self.negative[-1], self.positive / self.positive[-1]

    @property
    def precision(self) -> Float:
        """Precision (k − 1,) at all points but the first, which has no rows."""
        precision: Float = self.positive[1:] / (self.positive[1:] + self.negative[1:])
        return precision

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        counts = {name: getattr(self, name).tolist() for name in ("negative", "positive")}
        return {**counts, "auc": self.auc, "average_precision": self.average_precision}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> ThresholdCurve:
        """Return the curve from the result of ``to_json``."""
        negative, positive = (np.array(stored[name], dtype=np.int64) for name in ("negative", "positive"))
        return cls(negative, positive, stored["auc"], stored["average_precision"])


def _chosen(false: Int, true: Int) -> Int:
    """Return the places of the points: equal steps of both rates together, and geometric steps of rows at the start."""
    along, rows = false / false[-1] + true / true[-1], false + true
    equal = np.searchsorted(along, np.linspace(0.0, 2.0, POINTS + 1) - 1e-12)
    first = np.searchsorted(rows, FIRST ** np.arange(np.log(rows[-1]) / np.log(FIRST) + 1))
    found: Int = np.unique(np.minimum(np.concatenate([[0], equal, first]), len(false) - 1))
    return found
