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
    """Return columns for all classes 0 … K − 1; classes without training rows have probability
    0."""
    whole = np.zeros((len(probabilities), n_classes))
    whole[:, np.asarray(classes).astype(np.int64)] = probabilities
    return whole


def calibration_error(confidence: Float, right: NDArray[np.bool_]) -> float:
    """Return the expected calibration error Σ_b n_b/n · abs(frequency − mean probability) (Naeini
    et al. 2015)."""
    number = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    return float(np.abs(np.bincount(number, weights=right - confidence)).sum() / len(right))


def scores(probabilities: Float, y: Int) -> dict[str, Any]:
    """Compute error, log_loss and ece of probabilities (n, K) and codes y (n,).

    The ECE is for the predicted (most probable) class.
    """
    from sklearn.metrics import accuracy_score, log_loss

    predicted = probabilities.argmax(axis=1)
    confidence = probabilities.max(axis=1)
    return {
        "error": 1 - float(accuracy_score(y, predicted)),
        "log_loss": float(log_loss(y, probabilities, labels=np.arange(probabilities.shape[1]))),
        "ece": calibration_error(confidence, predicted == y),
    }
