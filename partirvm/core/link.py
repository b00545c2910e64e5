"""From linear predictors to class probabilities, and the allowance for the uncertainty of the weights.

C linear predictors f stand for K classes: C = 1 for ``"bernoulli"`` (two classes, f > 0 speaks for the second), C = K
for ``"multinomial"`` (softmax) and ``"ovr"`` (one logistic fit for each class against the rest).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, softmax

from partirvm.core.rowwise import quadratic_forms

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
        found[:, k] = quadratic_forms(block, root)
    return found


def probability_band(likelihood: str, f: Float, half: Float) -> tuple[Float, Float]:
    """Probabilities (n, K) at the ends of the bands f ± ``half`` (n, C) of linear predictors: lower and upper ones.

    Of two classes the link of the band's ends. Of more, that of class k has its own linear predictor at the end of its
    band and those of the others at their means: it tells what the uncertainty of f_k leaves open, and no more.

    >>> lower, upper = probability_band("bernoulli", np.array([[0.0]]), np.array([[np.log(3)]]))
    >>> lower.round(6).tolist(), upper.round(6).tolist()
    ([[0.25, 0.25]], [[0.75, 0.75]])
    """
    if likelihood == "bernoulli":
        low, high = probabilities(likelihood, f - half), probabilities(likelihood, f + half)
        return np.minimum(low, high), np.maximum(low, high)
    ends = []
    for sign in (-1, 1):
        end = np.empty_like(f)
        for k in range(f.shape[1]):
            moved = f.copy()
            moved[:, k] += sign * half[:, k]
            end[:, k] = probabilities(likelihood, moved)[:, k]
        ends.append(end)
    return ends[0], ends[1]
