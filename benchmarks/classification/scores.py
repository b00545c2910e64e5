"""Scores of predicted probabilities for all methods: error, log loss, calibration."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Int = NDArray[np.int64]

BINS = 15
"""Number of bins of equal width in the expected calibration error."""


def aligned(probabilities: Float, classes: NDArray[Any], n_classes: int) -> Float:
    """Return columns for all classes 0 … K − 1; classes without training rows have probability 0."""
    whole = np.zeros((len(probabilities), n_classes))
    whole[:, np.asarray(classes).astype(np.int64)] = probabilities
    return whole


def binned(predicted: Float, happened: NDArray[np.bool_]) -> list[list[float]]:
    """Compute the reliability bins of [0, 1]: number of rows, mean predicted probability and observed frequency.

    Empty bins are omitted.
    """
    number = np.minimum((predicted * BINS).astype(np.int64), BINS - 1)
    rows = np.bincount(number, minlength=BINS)
    sums = (np.bincount(number, weights=values, minlength=BINS) for values in (predicted, happened.astype(np.float64)))
    means = [total[rows > 0] / rows[rows > 0] for total in sums]
    return [list(line) for line in zip(rows[rows > 0].tolist(), *(mean.tolist() for mean in means), strict=True)]


def calibration_error(bins: list[list[float]]) -> float:
    """Compute the expected calibration error Σ_b n_b/n · abs(frequency − mean probability) (Naeini et al. 2015)."""
    return sum(rows * abs(share - mean) for rows, mean, share in bins) / sum(rows for rows, _, _ in bins)


def scores(probabilities: Float, y: Int) -> dict[str, Any]:
    """Compute error, log_loss and ece of probabilities (n, K) and codes y (n,).

    The ECE is for the predicted (most probable) class.
    """
    from sklearn.metrics import accuracy_score, log_loss

    predicted, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1)
    return {
        "error": 1 - float(accuracy_score(y, predicted)),
        "log_loss": float(log_loss(y, probabilities, labels=np.arange(probabilities.shape[1]))),
        "ece": calibration_error(binned(confidence, predicted == y)),
    }
