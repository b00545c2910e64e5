"""From linear predictors to class probabilities, and the allowance for the uncertainty of the weights.

C linear predictors f stand for K classes: C = 1 for ``"bernoulli"`` (two classes, f > 0 speaks for the second), C = K
for ``"multinomial"`` (softmax) and ``"ovr"`` (one logistic fit for each class against the rest).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, softmax

Float = NDArray[np.float64]

LIKELIHOODS = ("bernoulli", "multinomial", "ovr")
"""What a classification fit can be of."""


def probabilities(likelihood: str, f: Float) -> Float:
    """Probabilities (n, K) of the classes at linear predictors ``f`` (n, C), finite ones; rows sum to one.

    One-vs-rest divides its sigmoids by their sum. Where all of them underflow, their logarithms still tell which class
    is the least unlikely, so the quotient is taken there.

    >>> probabilities("bernoulli", np.array([[0.0], [-1e4]])).tolist()
    [[0.5, 0.5], [1.0, 0.0]]
    >>> probabilities("ovr", np.array([[-1e4, -1e4]])).tolist()
    [[0.5, 0.5]]
    """
    if likelihood == "bernoulli":
        return np.concatenate([expit(-f), expit(f)], axis=1)
    if likelihood == "multinomial":
        return np.asarray(softmax(f, axis=1), dtype=np.float64)
    if likelihood == "ovr":
        return np.asarray(softmax(log_expit(f), axis=1), dtype=np.float64)
    raise ValueError(f"no likelihood of classes: {likelihood!r}")


def moderated(f: Float, variance: Float) -> Float:
    """f / √(1 + π σ² / 8), element by element: its link is the mean of the link over N(f, σ²), nearly.

    For the logistic sigmoid this is MacKay (1992, "The evidence framework applied to classification networks") after
    Spiegelhalter & Lauritzen (1990): within about 0.02 of the mean everywhere. With several classes each linear
    predictor is moderated by its own variance before the softmax (Gibbs 1997), which keeps the order of the classes
    only where the variances agree.

    >>> moderated(np.array([1.0, -3.0]), np.array([0.0, 8 / np.pi])).round(6).tolist()
    [1.0, -2.12132]
    """
    moderation = np.asarray(variance * (np.pi / 8.0))
    moderation += 1.0
    np.sqrt(moderation, out=moderation)
    return np.asarray(f / moderation)


def variances(block: Float, roots: Float) -> Float:
    """φᵀΣ_kφ of each linear predictor k, (n, C), at design rows (n, M), with Σ_k = R_k R_kᵀ and ``roots`` (C, M, M)."""
    found = np.empty((len(block), len(roots)))
    for k, root in enumerate(roots):
        product = block @ root
        np.einsum("nm,nm->n", product, product, out=found[:, k])
    return found
