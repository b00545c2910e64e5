"""From linear predictors to class probabilities, and their moderation by the uncertainty of the weights.

K classes have C linear predictors f: C = 1 for ``"bernoulli"`` (two classes, f > 0 favours the second), C = K for
``"multinomial"`` (softmax) and ``"ovr"`` (one logistic fit for each class against the rest).

To add a link, enter one ``Link`` in ``LINKS`` and one likelihood of the same name in ``likelihoods.LIKELIHOODS``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, log_softmax, softmax

from partirvm.core.rowwise import quadratic_forms

Float = NDArray[np.float64]


class Link:
    """The functions of a likelihood of classes, of C linear predictors f (n, C) with targets (n, C) of 0 and 1.

    A link is registered in ``LINKS`` by the name of its likelihood; fits and models store that name.
    """

    name: str
    coupled: bool = False
    """Whether the outputs share one likelihood and one α per column; else each output is a fit of its own."""

    moderation: float = np.pi / 8.0
    """c of ``moderated``: π/8 for the logistic sigmoid and the softmax, 1 (exact) for probit."""

    def n_outputs(self, n_classes: int) -> int:
        """C, the number of linear predictors of K = ``n_classes`` classes."""
        return n_classes

    def derivatives(self, f: Float, target: Float) -> tuple[Float, Float, Float]:
        """Log likelihood (n, L) in nats, its slope (n, C) in f, and the expected curvature (n, C) ≥ 0.

        L is the number of independent likelihoods: C, or 1 where outputs are coupled.
        """
        raise NotImplementedError

    def log_det_gradient(self, f: Float, spread: Float) -> Float:
        """Σ_k s_k ∂b_k/∂f_l (n, C), with b the expected curvature and ``spread`` the variances s (n, C) of f."""
        raise NotImplementedError

    def log_probability(self, f: Float, codes: Float, log_likelihood: Float) -> Float:
        """log p (n,) of the classes ``codes`` (n,), given the log likelihood (n, L) of ``derivatives``."""
        return log_likelihood[:, 0]

    def probabilities(self, f: Float) -> Float:
        """Probabilities (n, K) of the classes; rows sum to one."""
        raise NotImplementedError


class Logistic(Link):
    """Two classes, C = 1: log p = t f − log(1 + eᶠ) (Tipping 2001, eq. 23)."""

    name = "bernoulli"

    def n_outputs(self, n_classes: int) -> int:
        """One; f > 0 favours the second class."""
        return 1

    def derivatives(self, f: Float, target: Float) -> tuple[Float, Float, Float]:
        """The curvature is y(1 − y), with y the sigmoid of f."""
        y = expit(f)
        sign = np.where(target > 0, f, -f)
        return -np.logaddexp(0.0, -sign), target - y, y * (1.0 - y)

    def log_det_gradient(self, f: Float, spread: Float) -> Float:
        """s y(1 − 2y)(1 − y)."""
        y = expit(f)
        found: Float = spread * y * (1 - 2 * y)
        found -= y * found
        return found

    def probabilities(self, f: Float) -> Float:
        """The sigmoids of −f and f."""
        return np.concatenate([expit(-f), expit(f)], axis=1)


class OneVsRest(Logistic):
    """K classes, C = K: the logistic link of each class against the rest."""

    name = "ovr"

    def n_outputs(self, n_classes: int) -> int:
        """One for each class."""
        return n_classes

    def log_probability(self, f: Float, codes: Float, log_likelihood: Float) -> Float:
        """The sigmoids are divided by their sum."""
        logs = log_softmax(log_expit(f), axis=1)
        found: Float = logs[np.arange(len(codes)), codes.astype(np.int64)]
        return found

    def probabilities(self, f: Float) -> Float:
        """The sigmoids divided by their sum, computed from logarithms because all of them may underflow."""
        return np.asarray(softmax(log_expit(f), axis=1), dtype=np.float64)


class Softmax(Link):
    """K classes, C = K: log p = f_t − log Σ_k exp f_k (Tipping 2001, eq. 28)."""

    name = "multinomial"
    coupled = True

    def derivatives(self, f: Float, target: Float) -> tuple[Float, Float, Float]:
        """The curvature is the diagonal y_k(1 − y_k) of diag(y) − yyᵀ."""
        logs = self._logs(f)
        y = np.exp(logs)
        return (logs * target).sum(axis=1, keepdims=True), target - y, y * (1.0 - y)

    def log_det_gradient(self, f: Float, spread: Float) -> Float:
        """By ∂b_k/∂f_l = (1 − 2y_k)y_k(δ_kl − y_l)."""
        y = np.exp(self._logs(f))
        found: Float = spread * y * (1 - 2 * y)
        found -= y * found.sum(axis=1, keepdims=True)
        return found

    def probabilities(self, f: Float) -> Float:
        """The softmax of f."""
        return np.asarray(softmax(f, axis=1), dtype=np.float64)

    def _logs(self, f: Float) -> Float:
        shifted = f - f.max(axis=1, keepdims=True)
        found: Float = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        return found


LINKS: dict[str, Link] = {each.name: each for each in (Logistic(), Softmax(), OneVsRest())}
"""Every link by the name of its likelihood."""


def probabilities(likelihood: str, f: Float) -> Float:
    """Probabilities (n, K) of the classes at finite linear predictors ``f`` (n, C); rows sum to one.

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
    """f / √(1 + c σ²), element by element, c the ``factor``: its link approximates the link's mean over N(f, σ²).

    For the logistic sigmoid c = π/8 is MacKay (1992, "The evidence framework applied to classification networks") after
    Spiegelhalter & Lauritzen (1990): within about 0.02 of the mean everywhere. With several classes each linear
    predictor is moderated by its own variance before the softmax (Gibbs 1997), which keeps the order of the classes
    only where the variances agree.

    >>> moderated(np.array([1.0, -3.0]), np.array([0.0, 8 / np.pi])).round(6).tolist()
    [1.0, -2.12132]
    """
    moderation = np.asarray(variance * factor)
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

    With two classes these are the probabilities at the ends of the band. With more, the probability of class k has f_k
    at the end of its band and the other linear predictors at their means, so it covers the uncertainty of f_k only.

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
