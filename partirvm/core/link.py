"""Class probabilities from linear predictors, and corrections for the uncertainty of the weights (moderation).

K classes have C linear predictors f. C = 1 for ``"bernoulli"`` (two classes, f > 0 favours the second class), C = K for
``"multinomial"`` (softmax) and ``"ovr"`` (one logistic fit for each class against the rest).

To add a link, register a ``Link`` in ``LINKS`` and a likelihood with the same name in ``likelihoods.LIKELIHOODS``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, log_softmax, softmax

from partirvm.core.rowwise import quadratic_forms

Float = NDArray[np.float64]


class Link:
    """Functions of a classification likelihood with C linear predictors f (n, C) and targets (n, C) of 0 and 1.

    A link is registered in ``LINKS`` by the name of its likelihood; fits and models store that name.
    """

    name: str
    coupled: bool = False
    """True if the outputs share one likelihood; otherwise each output is a separate fit."""

    shared_alpha: bool = False
    """True if the weights of a column in all outputs share one α; only coupled outputs may."""

    moderation: float = np.pi / 8.0
    """The factor c of ``moderated``: π/8 for the logistic sigmoid and the softmax, 1 (exact) for probit."""

    def n_outputs(self, n_classes: int) -> int:
        """Return the number C of linear predictors for K = ``n_classes`` classes."""
        return n_classes

    def derivatives(self, f: Float, target: Float) -> tuple[Float, Float, Float]:
        """Return the log likelihood (n, L) in nats, its derivative (n, C) in f, and the expected curvature (n, C) ≥ 0.

        L is the number of independent likelihoods: 1 if outputs are coupled, otherwise C.
        """
        raise NotImplementedError

    def log_probability(self, f: Float, codes: Float, log_likelihood: Float) -> Float:
        """Return log p (n,) of the classes ``codes`` (n,), given the log likelihood (n, L) of ``derivatives``."""
        return log_likelihood[:, 0]

    def probabilities(self, f: Float) -> Float:
        """Return the probabilities (n, K) of the classes; each row sums to one."""
        raise NotImplementedError


class Logistic(Link):
    """Logistic link of two classes, C = 1: log p = t f − log(1 + eᶠ) (Tipping 2001, eq. 23)."""

    name = "bernoulli"

    def n_outputs(self, n_classes: int) -> int:
        """Return 1: one linear predictor, which is positive if the second class is more probable."""
        return 1

    def derivatives(self, f: Float, target: Float) -> tuple[Float, Float, Float]:
        """Return log likelihood, derivative, and the curvature y(1 − y) with y the sigmoid of f."""
        y = expit(f)
        sign = np.where(target > 0, f, -f)
        return -np.logaddexp(0.0, -sign), target - y, y * (1.0 - y)

    def probabilities(self, f: Float) -> Float:
        """Return the sigmoids of −f and f."""
        return np.concatenate([expit(-f), expit(f)], axis=1)


class OneVsRest(Logistic):
    """Link of K classes, C = K: the logistic link of each class against the rest."""

    name = "ovr"

    def n_outputs(self, n_classes: int) -> int:
        """Return one linear predictor for each class."""
        return n_classes

    def log_probability(self, f: Float, codes: Float, log_likelihood: Float) -> Float:
        """Return the logarithms of the sigmoids divided by their sum, for the given classes."""
        logs = log_softmax(log_expit(f), axis=1)
        found: Float = logs[np.arange(len(codes)), codes.astype(np.int64)]
        return found

    def probabilities(self, f: Float) -> Float:
        """Return the sigmoids divided by their sum; logarithms are used because all sigmoids may underflow."""
        return np.asarray(softmax(log_expit(f), axis=1), dtype=np.float64)


class Softmax(Link):
    """Softmax link of K classes, C = K: log p = f_t − log Σ_k exp f_k (Tipping 2001, eq. 28)."""

    name = "multinomial"
    coupled = True
    shared_alpha = True

    def derivatives(self, f: Float, target: Float) -> tuple[Float, Float, Float]:
        """Return log likelihood, derivative, and as curvature the diagonal y_k(1 − y_k) of diag(y) − yyᵀ."""
        logs = self._logs(f)
        y = np.exp(logs)
        return (logs * target).sum(axis=1, keepdims=True), target - y, y * (1.0 - y)

    def probabilities(self, f: Float) -> Float:
        """Return the softmax of f."""
        return np.asarray(softmax(f, axis=1), dtype=np.float64)

    def _logs(self, f: Float) -> Float:
        shifted = f - f.max(axis=1, keepdims=True)
        found: Float = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        return found


LINKS: dict[str, Link] = {each.name: each for each in (Logistic(), Softmax(), OneVsRest())}
"""Dictionary of all links by the name of the likelihood."""


def probabilities(likelihood: str, f: Float) -> Float:
    """Return the class probabilities (n, K) at finite linear predictors ``f`` (n, C); each row sums to one.

    Raises ``ValueError`` if no link has this name.

    >>> probabilities("bernoulli", np.array([[0.0], [-1e4]])).tolist()
    [[0.5, 0.5], [1.0, 0.0]]
    >>> probabilities("ovr", np.array([[-1e4, -1e4]])).tolist()
    [[0.5, 0.5]]
    """
    if likelihood not in LINKS:
        raise ValueError(f"unknown likelihood of classes: {likelihood!r}")
    return LINKS[likelihood].probabilities(f)


def moderated(f: Float, variance: Float, factor: float = Link.moderation) -> Float:
    """Return f / √(1 + c σ²), element by element, with c = ``factor``.

    The link at this value approximates the mean of the link over N(f, σ²). For the logistic sigmoid, c = π/8 is from
    MacKay (1992, "The evidence framework applied to classification networks") after Spiegelhalter & Lauritzen (1990);
    the error is below about 0.02 everywhere. With several classes each linear predictor is moderated by its own
    variance before the softmax (Gibbs 1997). This keeps the order of the classes only if the variances are equal.

    >>> moderated(np.array([1.0, -3.0]), np.array([0.0, 8 / np.pi])).round(6).tolist()
    [1.0, -2.12132]
    """
    moderation = np.asarray(variance * factor)
    moderation += 1.0
    np.sqrt(moderation, out=moderation)
    return np.asarray(f / moderation)


def variances(block: Float, roots: Float) -> Float:
    """Return φᵀΣ_kφ of each linear predictor k, (n, C), at design rows (n, M), with ``roots`` R_k, Σ_k = R_k R_kᵀ."""
    found = np.empty((len(block), len(roots)))
    for k, root in enumerate(roots):
        found[:, k] = quadratic_forms(block, root)
    return found


def probability_band(likelihood: str, f: Float, half: Float) -> tuple[Float, Float]:
    """Return lower and upper probabilities (n, K) at the ends of the bands f ± ``half`` (n, C) of linear predictors.

    For more than two classes, the probability of class k is computed with f_k at the end of its band and the other
    linear predictors at their means. So this probability covers the uncertainty of f_k only.

    >>> lower, upper = probability_band("bernoulli", np.array([[0.0]]), np.array([[np.log(3)]]))
    >>> lower.round(6).tolist(), upper.round(6).tolist()
    ([[0.25, 0.25]], [[0.75, 0.75]])
    """
    if f.shape[1] == 1:
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
