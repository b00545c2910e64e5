"""Leave-one-out errors of a fit, by one pass: what its predictions of new rows are worth.

At fixed α and β the prediction of row n from all others has, with r = t − Φμ and the leverage h_n = βφ_nᵀΣφ_n, the
error (as Sundararajan & Keerthi 2001 have it for Gaussian processes)

    e_n = r_n / (1 − h_n).

Of a new row there the fit would state the variance v_n = σ² / (1 − h_n). A new row has no basis functions of its own:
where row n is the centre of columns D, these are left out of v_n. With g = Σ_D: φ_n and V = Σ_DD

    h_n ← h_n − β gᵀV⁻¹g.

Two things are told from z_n = e_n/√v_n:

``overconfidence``, Σe²/Σv
    About one where the fit is sound. A kernel far too narrow gives 10² … 10⁸: there the evidence is highest and the
    residuals vanish, a row that is left out is hardly predicted, and only its own column's α allows for that. Then the
    noise of predictions is ``noise_variance``, what the errors have beyond the weights' uncertainty.
``Spread``, quantiles of |z|
    Errors are seldom normal, nor of one variance. A prediction ± the quantile of |z| at a level, times the standard
    deviation stated (at these α and β), holds so many new rows. The α and the choice of the columns have seen row n,
    which e_n does not know of: so each vector is charged ``CHARGE`` degrees of freedom beside its weight,
    1/(1 − h) ≈ 1 + CHARGE·M/N.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from partirvm.core.uncertainty import quantile

Float = NDArray[np.float64]
Int = NDArray[np.int64]

LEAST = 1e-10
"""Least 1 − h: below it there is nothing but rounding."""

CHARGE = 1.5
"""Degrees of freedom that the choice of a vector and of its α costs.

Friedman (1991, §3.6) charges 2 to 4, best 3, for the choice of a knot, which brings two basis functions.
"""

OCTAVE, REACH = 64, 12
"""Errors are counted by |z|, in so many bins to the octave, from 2^−REACH to 2^REACH: quantiles to half a per cent."""

FEWEST, BEYOND = 20, 10
"""With fewer rows errors tell no quantiles; those beyond which fewer rows lie are told by a normal or t tail."""

GRID, TOP = 200, 0.995
"""Levels at which quantiles are kept, and the highest."""


@dataclass(frozen=True)
class Spread:
    """How far new rows lie from their predictions, in standard deviations stated.

    ``quantiles`` (K,) are at the levels ``top``·k/K, k = 1 … K.
    """

    top: float
    quantiles: tuple[float, ...]

    def at(self, level: float, freedom: float) -> float:
        """The quantile at this level; beyond ``top`` it grows as that of Student's t with such ``freedom``.

        Raises ``UsageError`` unless the level lies between 0 and 1.
        """
        tail = quantile(level, freedom)
        if level > self.top:
            return self.quantiles[-1] * tail / quantile(self.top, freedom)
        K = len(self.quantiles)
        return float(np.interp(level * K / self.top, np.arange(K + 1), (0.0, *self.quantiles)))


@dataclass(frozen=True)
class LeftOut:
    """Sums over n rows of weight w > 0, as the model sees the target: ``square`` Σ w e², ``stated`` Σ w v.

    ``counts`` (2·OCTAVE·REACH,) are rows by |z|.
    """

    n: int
    square: float
    stated: float
    counts: Int

    @classmethod
    def of(
        cls,
        block: Float,
        target: Float,
        mean: Float,
        root: Float,
        beta: float,
        weights: Float | None = None,
        own: Iterable[tuple[int, Int]] = (),
    ) -> LeftOut:
        """Of design rows ``block`` (n, M) with ``target`` (n,), under a fit's μ (M,), R (M, M) and β.

        ``own`` are rows, by position, with the columns whose centre they are.
        """
        w = np.ones(len(target)) if weights is None else weights
        white = block @ root
        share = np.einsum("nm,nm->n", white, white)  # h/β of weight one
        square = w * ((target - block @ mean) / np.maximum(1.0 - beta * w * share, LEAST)) ** 2
        for row, columns in own:
            part = root[columns]
            g = part @ white[row]
            share[row] -= g @ np.linalg.lstsq(part @ part.T, g, rcond=None)[0]
        left = np.maximum(1.0 - beta * w * share, LEAST)
        present = w > 0
        stated = float(np.sum(1.0 / left[present])) / beta
        counts = _counts(np.sqrt(beta * (square * left)[present]))
        return cls(int(present.sum()), float(square.sum()), stated, counts)

    def __add__(self, other: LeftOut) -> LeftOut:
        return LeftOut(
            self.n + other.n, self.square + other.square, self.stated + other.stated, self.counts + other.counts
        )

    @property
    def overconfidence(self) -> float:
        """Mean squared error of rows left out, in units of the variance that the fit would state of new ones there."""
        return self.square / self.stated if self.n else 1.0

    def noise_variance(self, beta: float, power: float) -> float:
        """σ² with which new rows lie where they are said to: what the errors have beyond the weights' uncertainty.

        At least 1/β; at most that and ``power``, the target's mean square: that much comes from predicting the mean.
        """
        if not self.n:
            return 1 / beta
        missing = (self.square - self.stated) / self.n
        return 1 / beta + min(max(missing, 0.0), power)

    def spread(self, vectors: int) -> Spread | None:
        """Of a fit with so many ``vectors``; None where the rows are too few to tell."""
        if self.n < FEWEST:
            return None
        top = min(TOP, 1.0 - BEYOND / self.n)
        # of n errors the k-th is the quantile at k/(n + 1): one more row lies anywhere between them
        wanted = (self.n + 1) * top * np.arange(1, GRID + 1) / GRID
        reached = np.cumsum(self.counts)
        bins = np.searchsorted(reached, wanted)
        part = (wanted - reached[bins] + self.counts[bins]) / self.counts[bins]
        found = 2.0 ** ((bins + part) / OCTAVE - REACH) * (1.0 + CHARGE * vectors / self.n)
        return Spread(top, tuple(found.tolist()))


def _counts(z: Float) -> Int:
    """How many of these lie in each bin; the first and the last have those beyond."""
    within = np.fmin(np.fmax(z, 2.0**-REACH), 2.0**REACH)
    bins = np.floor(OCTAVE * (np.log2(within) + REACH)).astype(np.int64)
    size = 2 * OCTAVE * REACH
    return np.bincount(np.minimum(bins, size - 1), minlength=size)
