"""A correction of class probabilities by the predictors of all classes.

The ramp (``core.ramp``) looks at each predictor alone. Least squares on indicators loses what the
others say: the predictor of a class between two others is low everywhere, and high predictors of
its neighbours then count for it. A multinomial logistic regression, whose offsets z_k are the
logits of the ramp, finds such relations:

    log p_k = z_k + Σ_j f_j B_jk + b_k + const.

B and b minimise the log loss of left-out rows plus λ/2 (‖sB‖² + ‖b‖²), with s the root mean square
of f: the correction shrinks towards the ramp alone. Folds of these rows choose λ, beginning with
the largest of ``PENALTIES``; there is no correction if none lowers their log loss.

Log losses on new rows, with 2,000 rows of three splits, before and after: satimage .307 .326 .276
and .280 .302 .255, digits .045 .041 .019 and .038 .037 .018; unchanged on iris and wine. One class
of two decides the other, and the ramp alone is as good.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from partirvm.core.held_back import correction_folds
from partirvm.core.link import targets
from partirvm.types import Bool, Float

PENALTIES = 300.0, 100.0, 30.0, 10.0, 3.0, 1.0
"""Values of λ, in the order in which they are tried."""

PATIENCE = 2
"""Number of λ in succession that do not lower the loss, after which no further one is tried."""

STEPS = 60
"""Maximum number of L-BFGS steps for one λ, from the correction with the λ before."""

TOLERANCE = 1e-6
"""Relative change of the loss below which a search ends; a smaller one only takes longer."""

WORK = 2_000_000
"""Maximum number of rows × K²: with 20 classes, 5,000 rows take a second."""

LEAST_ROWS = 10
"""Minimum number of left-out rows per class: with K classes, a class has K + 1 parameters."""


@dataclass(frozen=True)
class Correction:
    """Terms that are added to the logits of K classes.

    Attributes:
        slopes: B (K, K); row j belongs to the predictor of class j
        offsets: b (K,)
    """

    slopes: Float
    offsets: Float

    @classmethod
    def none(cls, n_classes: int) -> Self:
        """Return the correction by zero."""
        return cls(np.zeros((n_classes, n_classes)), np.zeros(n_classes))

    def of(self, f: Float) -> Float:
        """Return the terms (n, K) for predictors ``f`` (n, K); those of a row depend in no bit on
        the other rows, as they might with a matrix product."""
        terms = np.broadcast_to(self.offsets, f.shape).copy()
        for column, slopes in enumerate(self.slopes):
            terms += f[:, column : column + 1] * slopes
        return terms


@dataclass(frozen=True)
class CorrectedRows:
    """Left-out rows from which a correction is learned.

    Attributes:
        f: predictors (n, K), divided by their root mean square
        logits: logits of the ramp (n, K)
        targets: indicators of the classes (n, K)
        weights: row weights (n,)
    """

    f: Float
    logits: Float
    targets: Float
    weights: Float

    def take(self, rows: Bool) -> "CorrectedRows":
        """Return the rows of a mask (n,)."""
        return CorrectedRows(
            self.f[rows], self.logits[rows], self.targets[rows], self.weights[rows]
        )

    def log_probabilities(self, correction: Correction) -> Float:
        """Return the log probabilities (n, K) of all classes."""
        logits = self.logits + self.f @ correction.slopes + correction.offsets
        logits -= logits.max(axis=1, keepdims=True)
        return np.asarray(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))

    def penalised_loss(self, values: Float, penalty: float) -> tuple[float, Float]:
        """Return the total log loss plus the penalty, and its gradient.

        Args:
            values: B, row by row, and b (K² + K,)
            penalty: λ
        """
        K = self.f.shape[1]
        matrix = values.reshape(K + 1, K)
        log_p = self.log_probabilities(Correction(matrix[:K], matrix[K]))
        pull = self.weights[:, None] * (np.exp(log_p) - self.targets)
        gradient = penalty * matrix
        gradient[:K] += self.f.T @ pull
        gradient[K] += pull.sum(axis=0)
        loss = -float(self.weights @ (self.targets * log_p).sum(axis=1))
        return loss + 0.5 * penalty * float(values @ values), gradient.ravel()

    def best(self, start: Correction, penalty: float) -> Correction:
        """Return the correction with the lowest penalised loss; the search begins at ``start``."""
        from scipy.optimize import minimize  # importing it takes megabytes

        K = self.f.shape[1]
        begin = np.append(start.slopes.ravel(), start.offsets)
        options = {"maxiter": STEPS, "ftol": TOLERANCE}
        end = minimize(
            self.penalised_loss,
            begin,
            args=(penalty,),
            method="L-BFGS-B",
            jac=True,
            options=options,
        )
        return Correction(end.x[: K * K].reshape(K, K), end.x[K * K :])


@dataclass(frozen=True)
class LearnedCorrection:
    """A correction, and the losses of rows of left-out folds.

    Attributes:
        correction: the correction
        loss: mean log loss, in nats
        wrong: error rate
    """

    correction: Correction
    loss: float
    wrong: float


def learned_correction(
    f: Float, logits: Float, codes: Float, weights: Float
) -> LearnedCorrection | None:
    """Return the correction of left-out rows that lowers the log loss of left-out folds of them;
    None if there is none.

    Args:
        f: predictors (n, K)
        logits: logits of the ramp (n, K)
        codes: class codes (n,)
        weights: row weights (n,), above 0
    """
    K = f.shape[1]
    step = -(-len(f) * K**2 // WORK)  # classes may be in order
    n = len(f[::step])
    if K < 3 or n < LEAST_ROWS * K:
        return None
    scale = float(np.sqrt((f**2).mean()))
    rows = CorrectedRows(f / scale, logits, targets(codes, K), weights)
    learned = _by_folds(rows.take(np.arange(len(f)) % step == 0))
    if learned is None:
        return None
    correction = learned.correction
    return replace(learned, correction=replace(correction, slopes=correction.slopes / scale))


def _by_folds(rows: CorrectedRows) -> LearnedCorrection | None:
    """Return the correction with the λ that folds of the rows choose; None for the ramp alone."""
    K = rows.f.shape[1]
    folds = correction_folds(len(rows.f))
    parts = [Correction.none(K)] * len(folds)
    correction = parts[0]
    lowest = float(_losses(rows, rows.log_probabilities(correction)).sum())
    learned = None
    failures = 0
    for penalty in PENALTIES:
        log_p = np.empty(rows.f.shape)
        for number, fold in enumerate(folds):
            parts[number] = rows.take(~fold).best(parts[number], penalty)
            log_p[fold] = rows.take(fold).log_probabilities(parts[number])
        total = float(_losses(rows, log_p).sum())
        failures += 1
        if total < lowest:
            failures = 0
            lowest = total
            correction = rows.best(correction, penalty)
            is_wrong = log_p.argmax(axis=1) != rows.targets.argmax(axis=1)
            mass = float(rows.weights.sum())
            learned = LearnedCorrection(
                correction, total / mass, float(rows.weights @ is_wrong) / mass
            )
        if failures == PATIENCE:
            break
    return learned


def _losses(rows: CorrectedRows, log_p: Float) -> Float:
    """Return the log losses (n,) of the rows' classes, times the row weights."""
    return np.asarray(-rows.weights * (rows.targets * log_p).sum(axis=1))
