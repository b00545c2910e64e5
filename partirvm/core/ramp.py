"""Class probabilities from least squares: the ramp, and the left-out errors that choose it.

Least squares on indicators gives f_k ≈ p_k, but neither within 0 and 1 nor with the right
sharpness. The ramp

    p_k ∝ log(1 + exp(f_k/τ))^ρ,      ρ ≥ 0,

is the softmax of f for wide τ, and max(f_k, 0)^ρ for τ → 0: the first suits classes that hardly
overlap, the second those that do. Width τ and power ρ minimise the log loss of left-out rows (Platt
1999, "Probabilistic outputs for support vector machines", whose smoothed targets are also used
here). At fixed α and β, leaving out row n gives

    f = t − (t − φᵀμ)/(1 − h_n),       h_n = β min(w_n, 1) φᵀΣφ:

a row of weight w represents w rows, one of which is left out. A row that is a centre also loses its
own columns D, since a new row has none (``core.left_out``): given w_D = 0, with c = (Σφ)_D and V =
Σ_DD, φᵀμ is less by cᵀV⁻¹μ_D and φᵀΣφ by cᵀV⁻¹c. With its columns, the log loss would fall with
each vector: on digits, to a sixth of that of new rows.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from scipy.special import log_softmax

from partirvm.core.left_out import LEAST
from partirvm.core.link import targets
from partirvm.types import Float

BOUNDS = np.log([[0.01, 3.0], [0.1, 300.0]])
"""Bounds of log τ and log ρ."""


@dataclass(frozen=True)
class Ramp:
    """The ramp of ``width`` τ and ``power`` ρ, with the log loss (nats) and error rate of left-out
    rows."""

    width: float = 0.2
    power: float = 1.0
    loss: float = np.nan
    wrong: float = np.nan

    def logits(self, f: Float) -> Float:
        """Return the logits (n, K) of predictors ``f`` (n, K): log p_k up to a constant."""
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
        own: Any,
    ) -> Self:
        """Leave out design rows ``block`` (n, M), class ``codes`` (n,), given a fit's μ (M, K), R,
        Σ = RRᵀ, and β.

        ``own`` are the positions of rows that are centres, with their columns, whose entries in
        ``block`` become zero.
        """
        w = np.ones(len(block)) if weights is None else weights
        for row, columns in own:
            block[row, columns] = 0.0
        t = targets(codes, mean.shape[1])
        white = block @ root
        f = block @ mean
        share = np.einsum("nm,nm->n", white, white)
        for row, columns in own:
            cross = root[columns] @ white[row]
            solved = np.linalg.lstsq(root[columns] @ root[columns].T, cross, rcond=None)[0]
            f[row] -= solved @ mean[columns]
            share[row] -= solved @ cross
        f = t - (t - f) / np.maximum(1.0 - beta * np.minimum(w, 1.0) * share, LEAST)[:, None]
        return cls(f[w > 0], codes[w > 0], w[w > 0])

    def __add__(self, other: Self) -> Self:
        pairs = ((getattr(self, name), getattr(other, name)) for name in ("f", "codes", "weights"))
        return type(self)(*map(np.concatenate, pairs))

    def ramp(self, start: Ramp) -> Ramp:
        """Return the ramp with the least log loss; the search begins at ``start``."""
        from scipy.optimize import minimize  # importing it takes megabytes

        f = self.f
        K = self.f.shape[1]
        shares = self.weights / max(self.weights.sum(), np.finfo(float).tiny)
        exact = targets(self.codes, K)
        smooth = exact + (1.0 / K - exact) * K / (
            (K - 1.0) * (self.weights.sum() + 4.0)
        )  # a mass of 1/(n + 4)

        def smoothed_loss(logs: Float) -> tuple[float, Float]:
            width, power = np.exp(logs)
            z = f / width
            values = _log_softplus(z)
            log_p = log_softmax(power * values, axis=1)
            pull = shares[:, None] * (smooth - np.exp(log_p))
            slope = np.exp(-np.logaddexp(0.0, -z) - values)  # the slope of log softplus
            loss = -float((shares[:, None] * smooth * log_p).sum())
            return loss, power * np.array([(pull * slope * z).sum(), -(pull * values).sum()])

        begin = np.log([start.width, start.power])
        best = minimize(smoothed_loss, begin, jac=True, method="L-BFGS-B", bounds=BOUNDS).x
        found = Ramp(*np.exp(best).tolist())
        logits = found.logits(f)
        own = log_softmax(logits, axis=1)[np.arange(len(f)), self.codes.astype(np.int64)]
        wrong = float(shares @ (logits.argmax(axis=1) != self.codes))
        return replace(found, loss=-float(shares @ own), wrong=wrong)


def _log_softplus(z: Float) -> Float:
    """Return log(log(1 + eᶻ)), which is z for very negative z."""
    return np.where(z < -30.0, z, np.log(np.logaddexp(0.0, np.maximum(z, -30.0))))
