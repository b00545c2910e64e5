"""Links for classes: probabilities from linear predictors, their moderation, and the statistics of
one pass.

K classes have C linear predictors f = Φw_k:

    ``bernoulli``    two classes, C = 1: log p = t f − log(1 + eᶠ)            (Tipping 2001, eq. 23)
    ``multinomial``  K classes, C = K: log p = f_t − log Σ_k exp f_k          (Tipping 2001, eq. 28)

To add a link, register a ``Link`` in ``LINKS`` and a likelihood with the same name in
``likelihoods.LIKELIHOODS``.

With rows weighted by v_n, a pass sums the log likelihood Σ v_n log p_n, gradient Φᵀv(t − y), and
curvature ΦᵀB_kΦ, B_k = diag(v y_k(1 − y_k)). The blocks between outputs of ``multinomial`` are
omitted: they would cost (K + 1)/2 times as much.
"""

from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np
from scipy.special import expit, log_softmax, logit, ndtri, softmax

from partirvm.core.statistics import FieldSums
from partirvm.types import Float, Int


class Link(Protocol):
    """Functions of a classification likelihood with C linear predictors f (n, C) and targets (n, C)
    of 0 and 1."""

    name: str

    def derivatives(self, f: Float, target: Float) -> tuple[Float, Float, Float]:
        """Return the log likelihood (n, 1), and its derivative and curvature ≥ 0 with respect to f,
        (n, C) each."""

    def log_probability(self, f: Float, codes: Float) -> Float:
        """Return log p (n,) of the classes ``codes`` (n,)."""
        return self.derivatives(f, targets(codes, f.shape[1]))[0][:, 0]

    def probabilities(self, f: Float) -> Float:
        """Return the probabilities (n, K) of the classes at finite ``f``; each row sums to one."""


class Logistic(Link):
    """Logistic link of two classes, C = 1, with the curvature y(1 − y)."""

    name = "bernoulli"

    def derivatives(self, f: Float, target: Float) -> tuple[Float, Float, Float]:
        y = expit(f)
        sign = np.where(target > 0, f, -f)
        return -np.logaddexp(0.0, -sign), target - y, y * (1.0 - y)

    def probabilities(self, f: Float) -> Float:
        return np.concatenate([expit(-f), expit(f)], axis=1)


class Softmax(Link):
    """Softmax link of K classes, C = K; the curvature is the diagonal y_k(1 − y_k) of diag(y) −
    yyᵀ."""

    name = "multinomial"

    def derivatives(self, f: Float, target: Float) -> tuple[Float, Float, Float]:
        logs = log_softmax(f, axis=1)
        y = np.exp(logs)
        return (logs * target).sum(axis=1, keepdims=True), target - y, y * (1.0 - y)

    def probabilities(self, f: Float) -> Float:
        return np.asarray(softmax(f, axis=1), dtype=np.float64)


LINKS: dict[str, Link] = {each.name: each for each in (Logistic(), Softmax())}
"""All links, by likelihood name."""


def moderated(f: Float, variance: Float) -> Float:
    """Return f / √(1 + c σ²), element by element, with c = π/8: the link at this value nearly
    equals its mean over N(f, σ²).

    For the logistic sigmoid, c is from MacKay (1992, "The evidence framework applied to
    classification networks"); the error is below about 0.02. With several classes, each predictor
    is moderated before the softmax (Gibbs 1997).
    """
    return f / np.sqrt(1.0 + variance * (np.pi / 8.0))


LOGIT_VARIANCES = np.geomspace(1e-3, 400.0, 60)
"""Logit variances between which ``logit_variance`` interpolates."""

QUANTILES = ndtri((np.arange(400) + 0.5) / 400)
"""Values of a standard normal variable that represent its distribution."""


def logit_variance(spread: float, share: float) -> float:
    """Return the variance of a normal u for which σ(m + u) has the variance ``spread`` and a mean
    near ``share``."""
    middles = logit(share) * np.sqrt(1.0 + LOGIT_VARIANCES * (np.pi / 8.0))
    probabilities = expit(middles[:, None] + np.sqrt(LOGIT_VARIANCES)[:, None] * QUANTILES)
    means = probabilities.mean(axis=1)
    ratios = probabilities.var(axis=1) / (means * (1.0 - means))
    return float(np.interp(spread / (share * (1.0 - share)), ratios, LOGIT_VARIANCES, left=0.0))


def probability_band(likelihood: str, f: Float, low: Float, high: Float) -> tuple[Float, Float]:
    """Return lower and upper probabilities (n, K) at the ends of the predictors' bands.

    With several predictors, only f_k is at the end of its band for class k. For f = 0 ± log 3 the
    ends are 1/4 and 3/4.

    Args:
        likelihood: name of the link
        f: predictors (n, C)
        low: lower ends (n, C)
        high: upper ends (n, C)
    """
    probabilities = LINKS[likelihood].probabilities
    if f.shape[1] == 1:
        ends = probabilities(low), probabilities(high)
        return np.minimum(*ends), np.maximum(*ends)

    def at(end: Float) -> Float:
        p = np.empty(f.shape)
        for k in range(f.shape[1]):
            moved = f.copy()
            moved[:, k] = end[:, k]
            p[:, k] = probabilities(moved)[:, k]
        return p

    return at(low), at(high)


def targets(codes: Float, outputs: int) -> Float:
    """Return the targets (n, C) of class codes (n,): 1 in the output of a row's class, 0
    elsewhere."""
    if outputs == 1:
        return codes[:, None].copy()
    return np.asarray(codes[:, None] == np.arange(outputs), dtype=np.float64)


@dataclass(frozen=True)
class LogisticBlock(FieldSums):
    """Statistic of M columns and C outputs over a set of rows, at given weights.

    Attributes:
        log_likelihood: log likelihood in nats
        gradient: gradient of the log likelihood (M, C)
        curvature: one matrix for each output (C, M, M)
        wrong: number of misclassified rows with positive weight
        n: number of rows with positive weight
        nll: unweighted −Σ log p of these rows, in nats
    """

    log_likelihood: float
    gradient: Float
    curvature: Float
    wrong: int
    n: int
    nll: float = 0.0

    @classmethod
    def of(
        cls, likelihood: str, block: Float, codes: Float, mean: Float, weights: Float | None = None
    ) -> Self:
        """Return the statistic of rows.

        Args:
            likelihood: name of the link
            block: design at the rows (n, M)
            codes: class codes of the rows (n,)
            mean: weights of the columns (M, C)
            weights: row weights (n,)
        """
        predictors = block @ mean
        derivatives = LINKS[likelihood].derivatives(predictors, targets(codes, mean.shape[1]))
        log_likelihood, slope, bend = derivatives
        present = np.ones(len(codes), dtype=bool)
        if weights is not None:
            log_likelihood, slope, bend = (values * weights[:, None] for values in derivatives)
            present = weights > 0
        likeliest = predictors[:, 0] > 0 if predictors.shape[1] == 1 else predictors.argmax(axis=1)
        root = np.sqrt(bend)
        curvature = np.empty((mean.shape[1], mean.shape[0], mean.shape[0]))
        scaled = np.empty_like(block)
        for k in range(len(curvature)):
            np.multiply(block, root[:, k : k + 1], out=scaled)
            np.matmul(scaled.T, scaled, out=curvature[k])
        return cls(
            log_likelihood=float(log_likelihood.sum()),
            gradient=block.T @ slope,
            curvature=curvature,
            wrong=int(((likeliest != codes) & present).sum()),
            n=int(present.sum()),
            nll=float(-derivatives[0][present, 0].sum()),
        )

    def take(self, columns: Int) -> Self:
        """Return the statistic of the columns at these positions; all other columns must have
        weight zero."""
        if np.array_equal(columns, np.arange(len(self.gradient))):
            return self
        curvature = self.curvature[:, columns[:, None], columns[None, :]]
        return replace(self, gradient=self.gradient[columns], curvature=curvature)
