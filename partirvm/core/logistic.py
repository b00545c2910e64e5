"""The additive statistic of one pass over rows with class codes, for a Newton step of the Laplace approximation.

With C linear predictors f = Φw_k, rows weighted by v_n, and y the probabilities of a row,

    ``bernoulli``    two classes, C = 1: log p = t f − log(1 + eᶠ)            (Tipping 2001, eq. 23)
    ``multinomial``  K classes, C = K: log p = f_t − log Σ_k exp f_k          (Tipping 2001, eq. 28)
    ``ovr``          K classes, C = K: each against the rest, as above

the statistic is the log likelihood Σ v_n log p_n, the gradient Φᵀv(t − y) for each output, and the curvature ΦᵀB_kΦ
with B_k = diag(v y_k(1 − y_k)), minus the diagonal blocks of the Hessian. The blocks −Φᵀ diag(v y_k y_l) Φ between
outputs of ``multinomial`` are omitted. The K diagonal blocks cost K·M² per row; all blocks would cost K(K + 1)/2 · M².
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from partirvm.core.link import LINKS

Float = NDArray[np.float64]
Int = NDArray[np.int64]


@dataclass(frozen=True)
class LogisticBlock:
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

    def __add__(self, other: LogisticBlock) -> LogisticBlock:
        return LogisticBlock(
            self.log_likelihood + other.log_likelihood,
            self.gradient + other.gradient,
            self.curvature + other.curvature,
            self.wrong + other.wrong,
            self.n + other.n,
            self.nll + other.nll,
        )

    def accumulate(self, other: LogisticBlock) -> LogisticBlock:
        """Return ``self + other``, computed in the arrays of ``self``, which no other object may use."""
        for mine, theirs in zip(self._sums(), other._sums(), strict=True):
            mine += theirs
        return replace(self, wrong=self.wrong + other.wrong, n=self.n + other.n, nll=self.nll + other.nll)

    def _sums(self) -> tuple[Float, ...]:
        return self.log_likelihood, self.gradient, self.curvature

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
class LogisticCross:
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

    def __add__(self, other: LogisticCross) -> LogisticCross:
        return LogisticCross(
            self.cross + other.cross,
            self.diagonal + other.diagonal,
            self.gradient + other.gradient,
            self.n + other.n,
        )

    def accumulate(self, other: LogisticCross) -> LogisticCross:
        """Return ``self + other``, computed in the arrays of ``self``, which no other object may use."""
        for mine, theirs in zip(self._sums(), other._sums(), strict=True):
            mine += theirs
        return replace(self, n=self.n + other.n)

    def _sums(self) -> tuple[Float, ...]:
        return self.cross, self.diagonal, self.gradient
