"""Scores of predicted probabilities, the same for all methods: error, log loss, calibration."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Int = NDArray[np.int64]

BINS = 15
"""Bins of equal width in the expected calibration error and in reliability curves."""


def aligned(probabilities: Float, classes: NDArray[Any], n_classes: int) -> Float:
    """Columns for all classes 0 … K − 1, with 0 for those that training did not show."""
    whole = np.zeros((len(probabilities), n_classes))
    whole[:, np.asarray(classes).astype(np.int64)] = probabilities
    return whole


def binned(predicted: Float, happened: NDArray[np.bool_]) -> list[list[float]]:
    """Per bin of [0, 1]: rows, mean predicted probability, share that happened; empty bins are left out."""
    number = np.minimum((predicted * BINS).astype(np.int64), BINS - 1)
    rows = np.bincount(number, minlength=BINS)
    sums = (np.bincount(number, weights=values, minlength=BINS) for values in (predicted, happened.astype(np.float64)))
    means = [total[rows > 0] / rows[rows > 0] for total in sums]
    return [list(line) for line in zip(rows[rows > 0].tolist(), *(mean.tolist() for mean in means), strict=True)]


def calibration_error(bins: list[list[float]]) -> float:
    """Σ_b n_b/n · abs(share − mean probability), Naeini et al. 2015."""
    return sum(rows * abs(share - mean) for rows, mean, share in bins) / sum(rows for rows, _, _ in bins)


def scores(probabilities: Float, y: Int) -> dict[str, Any]:
    """error, log_loss, ece of P (n, K) and codes y (n,), and ``reliability``, the bins of a calibration curve.

    The ECE is that of the predicted class (the most probable one). The curve is that of class 1 where there are two,
    else of the predicted class.
    """
    from sklearn.metrics import accuracy_score, log_loss

    predicted, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1)
    top = binned(confidence, predicted == y)
    return {
        "error": 1 - float(accuracy_score(y, predicted)),
        "log_loss": float(log_loss(y, probabilities, labels=np.arange(probabilities.shape[1]))),
        "ece": calibration_error(top),
        "reliability": binned(probabilities[:, 1], y == 1) if probabilities.shape[1] == 2 else top,
    }
