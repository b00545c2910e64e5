"""Links of classes: probabilities from linear predictors, their moderation, and the statistics of one pass.

K classes have C linear predictors f = Φw_k. With y the probabilities of a row,

    ``bernoulli``    two classes, C = 1: log p = t f − log(1 + eᶠ)            (Tipping 2001, eq. 23)
    ``multinomial``  K classes, C = K: log p = f_t − log Σ_k exp f_k          (Tipping 2001, eq. 28)
    ``ovr``          K classes, C = K: each against the rest, as above

To add a link, register a ``Link`` in ``LINKS`` and a likelihood with the same name in ``likelihoods.LIKELIHOODS``.

The statistic of a pass is, with rows weighted by v_n, the log likelihood Σ v_n log p_n, the gradient Φᵀv(t − y) for
each output, and the curvature ΦᵀB_kΦ with B_k = diag(v y_k(1 − y_k)), minus the diagonal blocks of the Hessian. The
blocks −Φᵀ diag(v y_k y_l) Φ between outputs of ``multinomial`` are omitted: the K diagonal blocks cost K·M² per row,
all blocks would cost K(K + 1)/2 · M².
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, log_softmax, softmax

from partirvm.core.predictive import quadratic_forms
from partirvm.core.reduction import FieldSums

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


Int = NDArray[np.int64]


@dataclass(frozen=True)
class LogisticBlock(FieldSums):
    """Statistic of M columns and C outputs over some rows, at given weights.

    ``log_likelihood`` (L,) is in nats, with L = C for ``ovr`` and 1 otherwise. ``gradient`` is (M, C) and
    ``curvature`` (C, M, M). ``n`` counts the rows with a positive weight, and ``wrong`` counts the misclassified rows
    among these. ``nll`` is the unweighted −Σ log p of the true classes over these rows, in nats.
    """

    log_likelihood: Float
    gradient: Float
    curvature: Float
    wrong: int
    n: int
    nll: float = 0.0

    @classmethod
    def of(
        cls, likelihood: str, block: Float, codes: Float, mean: Float, weights: Float | None = None
    ) -> LogisticBlock:
        """Return the statistic of a design block (rows, M) with class codes (rows,) at weights ``mean`` (M, C)."""
        predictors = block @ mean
        target = targets(codes, predictors.shape[1])
        link = LINKS[likelihood]
        log_likelihood, slope, bend = link.derivatives(predictors, target)
        wrong = guesses(predictors) != codes
        nll = -link.log_probability(predictors, codes, log_likelihood)
        if weights is not None:
            log_likelihood = log_likelihood * weights[:, None]
            slope, bend = slope * weights[:, None], bend * weights[:, None]
            wrong, nll = wrong[weights > 0], nll[weights > 0]
        root = np.sqrt(bend)
        curvature = np.empty((mean.shape[1], mean.shape[0], mean.shape[0]))
        scaled = np.empty_like(block)
        for k in range(len(curvature)):
            np.multiply(block, root[:, k : k + 1], out=scaled)
            np.matmul(scaled.T, scaled, out=curvature[k])
        n = len(block) if weights is None else int((weights > 0).sum())
        return cls(log_likelihood.sum(axis=0), block.T @ slope, curvature, int(wrong.sum()), n, float(nll.sum()))

    def take(self, columns: Int) -> LogisticBlock:
        """Return the statistic of the columns at these positions; all other columns must have had weight zero."""
        if len(columns) == len(self.gradient) and np.array_equal(columns, np.arange(len(columns))):
            return self
        return replace(
            self,
            gradient=self.gradient[columns],
            curvature=self.curvature[:, columns[:, None], columns[None, :]],
        )


def targets(codes: Float, outputs: int) -> Float:
    """Return the targets (n, C) of class codes (n,): 1 in the output of a row's class, 0 elsewhere."""
    return codes[:, None].copy() if outputs == 1 else (codes[:, None] == np.arange(outputs)).astype(np.float64)


def guesses(predictors: Float) -> Int:
    """Return the codes (n,) of the most probable classes for linear predictors (n, C)."""
    found: Int = (predictors[:, 0] > 0).astype(np.int64) if predictors.shape[1] == 1 else predictors.argmax(axis=1)
    return found


def misclassification_probabilities(likelihood: str, codes: Float, predictors: Float) -> Float:
    """Return 1 − p of the true class (n,), for linear predictors (n, C)."""
    target = targets(codes, predictors.shape[1])
    link = LINKS[likelihood]
    logs = link.log_probability(predictors, codes, link.derivatives(predictors, target)[0])
    return -np.expm1(logs)


@dataclass(frozen=True)
class LogisticCross(FieldSums):
    """Statistic from which s and q of Q candidate columns follow, given M columns of the model, at given weights.

    ``cross`` (C, M, Q) is ΦᵀB_kΦ_new, ``diagonal`` (C, Q) is the diagonal of Φ_newᵀB_kΦ_new, and ``gradient`` (Q, C) is
    Φ_newᵀv(t − y).
    """

    cross: Float
    diagonal: Float
    gradient: Float
    n: int

    @classmethod
    def of(
        cls, likelihood: str, kept: Float, new: Float, codes: Float, mean: Float, weights: Float | None = None
    ) -> LogisticCross:
        """Return the statistic of blocks ``kept`` (rows, M) and ``new`` (rows, Q), at weights ``mean`` (M, C)."""
        predictors = kept @ mean
        target = targets(codes, predictors.shape[1])
        _, slope, bend = LINKS[likelihood].derivatives(predictors, target)
        n = len(new)
        if weights is not None:
            slope, bend, n = slope * weights[:, None], bend * weights[:, None], int((weights > 0).sum())
        cross = np.stack([(kept * bend[:, k : k + 1]).T @ new for k in range(mean.shape[1])])
        return cls(cross, np.einsum("nq,nq,nk->kq", new, new, bend), new.T @ slope, n)
