"""Class probabilities from least squares: the ramp, and the left-out errors that determine it.

Least squares on indicators gives f_k ≈ p_k, but f_k may lie outside [0, 1] and lacks the right
sharpness. The ramp

    p_k ∝ log(1 + exp(f_k/τ))^ρ,      ρ ≥ 0,

is the softmax of f for wide τ, and max(f_k, 0)^ρ for τ → 0: the first suits classes that hardly
overlap, the second classes that do. Width τ and power ρ minimise the log loss of left-out rows
(Platt 1999, "Probabilistic outputs for support vector machines", whose smoothed targets are also
used here). With three or more classes, a last fit adds terms that depend on all predictors
(``core.class_correction``). At fixed α and β, leaving out row n gives

    f = t − (t − φᵀμ)/(1 − h_n),       h_n = β min(w_n, 1) φᵀΣφ:

a row of weight w represents w rows, one of which is left out. A row that is a centre also loses its
own columns D, since a new row has none (``core.left_out``): given w_D = 0, with c = (Σφ)_D and V =
Σ_DD, φᵀμ decreases by cᵀV⁻¹μ_D and φᵀΣφ by cᵀV⁻¹c. If it kept its columns, the log loss would fall
with each vector: on digits, to a sixth of the loss on new rows.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from scipy.special import log_softmax

from partirvm.core.class_correction import Correction, learned_correction
from partirvm.core.left_out import LEAST, OwnColumns, own_entries_zero
from partirvm.core.link import targets
from partirvm.types import Float

BOUNDS = np.log([[0.01, 3.0], [0.1, 300.0]])
"""Bounds of log τ and log ρ."""


@dataclass(frozen=True)
class Ramp:
    """Parameters of the ramp, and its losses.

    Attributes:
        width: τ
        power: ρ
        loss: log loss of left-out rows, in nats
        wrong: error rate of left-out rows
        correction: terms that depend on the predictors of all classes, or None
    """

    width: float = 0.2
    power: float = 1.0
    loss: float = np.nan
    wrong: float = np.nan
    correction: Correction | None = None

    def logits(self, f: Float) -> Float:
        """Return the logits (n, K) of predictors ``f`` (n, K): log p_k up to a constant."""
        logits = self.curve(f)
        return logits if self.correction is None else logits + self.correction.of(f)

    def band(self, f: Float, half: Float) -> tuple[Float, Float]:
        """Return the lower and upper ends (n, K) of intervals for corrected logits.

        The predictors are independent: the squares of the moves that each of them causes add up.

        Args:
            f: predictors (n, K)
            half: half widths of the predictors' intervals (n, K)
        """
        assert self.correction is not None
        logits = self.logits(f)
        curve = self.curve(f)
        rises = self.curve(f + half) - curve
        falls = self.curve(f - half) - curve
        below = np.zeros(f.shape)
        above = np.zeros(f.shape)
        for column, slopes in enumerate(self.correction.slopes):
            upward = half[:, column : column + 1] * slopes
            downward = -upward
            upward[:, column] += rises[:, column]
            downward[:, column] += falls[:, column]
            below += np.minimum(np.minimum(upward, downward), 0.0) ** 2
            above += np.maximum(np.maximum(upward, downward), 0.0) ** 2
        return logits - np.sqrt(below), logits + np.sqrt(above)

    def curve(self, f: Float) -> Float:
        """Return the logits (n, K) without the correction."""
        return self.power * _log_softplus(f / self.width)


@dataclass(frozen=True)
class LeftOutClasses:
    """Left-out rows: predictors ``f`` (n, K), class ``codes`` (n,), ``weights`` (n,) above 0."""

    f: Float
    codes: Float
    weights: Float

    @classmethod
    def of(
        cls,
        block: Float,
        codes: Float,
        mean: Float,
        root: Float,
        beta: float,
        weights: Any,
        own: OwnColumns,
    ) -> Self:
        """Leave out the rows of a design block, at a fit's μ, Σ and β.

        Args:
            block: design at the rows (n, M)
            codes: classes of the rows (n,)
            mean: μ (M, K)
            root: R (M, M), Σ = RRᵀ
            beta: noise precision
            weights: row weights (n,), or None; rows of weight zero are dropped
            own: positions of rows that are centres, with their columns' positions
        """
        w = np.ones(len(block)) if weights is None else weights
        with own_entries_zero(block, own):
            white = block @ root
            f = block @ mean
        spread = np.einsum("nm,nm->n", white, white)  # φᵀΣφ
        for row, columns in own:
            part = root[columns]
            cross = part @ white[row]
            solved = np.linalg.lstsq(part @ part.T, cross, rcond=None)[0]
            f[row] -= solved @ mean[columns]
            spread[row] -= solved @ cross
        t = targets(codes, mean.shape[1])
        remaining = np.maximum(1.0 - beta * np.minimum(w, 1.0) * spread, LEAST)  # 1 − h
        f = t - (t - f) / remaining[:, None]
        return cls(f[w > 0], codes[w > 0], w[w > 0])

    def __add__(self, other: Self) -> Self:
        return type(self)(
            np.concatenate([self.f, other.f]),
            np.concatenate([self.codes, other.codes]),
            np.concatenate([self.weights, other.weights]),
        )

    def ramp(self, start: Ramp) -> Ramp:
        """Return the ramp with the lowest log loss; the search begins at ``start``."""
        from scipy.optimize import minimize  # importing it takes megabytes

        f = self.f
        K = f.shape[1]
        total = self.weights.sum()
        shares = self.weights / max(total, np.finfo(float).tiny)
        exact = targets(self.codes, K)
        mass = (K - 1.0) * (total + 4.0)
        smooth = exact + (1.0 / K - exact) * K / mass  # a mass of 1/(n + 4)
        begin = np.log([start.width, start.power])
        best = minimize(
            smoothed_loss, begin, (f, shares, smooth), "L-BFGS-B", jac=True, bounds=BOUNDS
        )
        chosen = Ramp(*np.exp(best.x).tolist())
        wrong = float(shares @ (chosen.logits(f).argmax(axis=1) != self.codes))
        return replace(chosen, loss=-float(shares @ self.log_probability(chosen)), wrong=wrong)

    def corrected(self, ramp: Ramp) -> Ramp:
        """Return a ramp of these rows with a correction, if folds of the rows confirm it; its
        losses are then those of the folds."""
        learned = learned_correction(self.f, ramp.curve(self.f), self.codes, self.weights)
        if learned is None:
            return ramp
        return replace(ramp, loss=learned.loss, wrong=learned.wrong, correction=learned.correction)

    def log_probability(self, ramp: Ramp) -> Float:
        """Return the log probability (n,) of each row's class with this ramp."""
        log_p = log_softmax(ramp.logits(self.f), axis=1)
        return np.asarray(log_p[np.arange(len(log_p)), self.codes.astype(np.int64)])


def smoothed_loss(logs: Float, f: Float, shares: Float, smooth: Float) -> tuple[float, Float]:
    """Return the log loss of a ramp with smoothed targets, and its derivatives with respect to log
    τ and log ρ.

    Args:
        logs: log τ and log ρ (2,)
        f: predictors (n, K)
        shares: row weights, which sum to one (n,)
        smooth: smoothed targets (n, K)
    """
    width, power = np.exp(logs)
    z = f / width
    values = _log_softplus(z)
    log_p = log_softmax(power * values, axis=1)
    pull = shares[:, None] * (smooth - np.exp(log_p))
    slope = np.exp(-np.logaddexp(0.0, -z) - values)  # the slope of log softplus
    loss = -float((shares[:, None] * smooth * log_p).sum())
    return loss, power * np.array([(pull * slope * z).sum(), -(pull * values).sum()])


def _log_softplus(z: Float) -> Float:
    """Return log(log(1 + eᶻ)), which is z for very negative z."""
    return np.where(z < -30.0, z, np.log(np.logaddexp(0.0, np.maximum(z, -30.0))))
