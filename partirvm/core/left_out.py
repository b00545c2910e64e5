"""Leave-one-out errors of a fit, computed by one pass: a check of its predictions for new rows.

At fixed α and β the prediction of row n from all other rows has the error, with r = t − Φμ and the leverage
h_n = βφ_nᵀΣφ_n (as in Sundararajan & Keerthi 2001 for Gaussian processes),

    e_n = r_n / (1 − h_n).

The fit predicts the variance v_n = σ² / (1 − h_n) for a new row there. A new row has no basis functions of its own:
where row n is the centre of columns D, these are left out of v_n. With g = Σ_D: φ_n and V = Σ_DD

    h_n ← h_n − β gᵀV⁻¹g.

Two results follow from z_n = e_n/√v_n:

``overconfidence``, Σe²/Σv
    About one for a good fit. A kernel far too narrow gives 10² … 10⁸: then the evidence is largest where the residuals
    vanish, although left-out rows are hardly predicted; only the α of a row's own column accounts for its error. The
    noise of predictions is then ``noise_variance``, the part of the errors beyond the weights' uncertainty.
``Spread``, quantiles of |z|
    Errors are rarely normal or of constant variance. The interval prediction ± quantile of |z| × predicted standard
    deviation (at these α and β) contains the stated fraction of new rows. The α and the selected columns depend on row
    n, which e_n ignores: so each vector is charged ``CHARGE`` degrees of freedom in addition to its weight,
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
"""Minimum of 1 − h: smaller values are rounding errors."""

CHARGE = 1.5
"""Degrees of freedom charged for the selection of a vector and the estimation of its α.

Friedman (1991, §3.6) charges 2 to 4, best 3, for the choice of a knot, which brings two basis functions.
"""

OCTAVE, REACH = 64, 12
"""Histogram of |z|: bins per octave, from 2^−REACH to 2^REACH; quantiles are exact to half a per cent."""

FEWEST, BEYOND = 20, 10
"""Minimum number of rows for quantiles; and rows beyond the highest level, where a normal or t tail is used."""

GRID, TOP = 200, 0.995
"""Number of levels of the stored quantiles, and the highest level."""


@dataclass(frozen=True)
class Spread:
    """Quantiles of the absolute leave-one-out errors in units of the predicted standard deviation.

    ``quantiles`` (K,) are at the levels ``top``·k/K, k = 1 … K.
    """

    top: float
    quantiles: tuple[float, ...]

    def at(self, level: float, freedom: float) -> float:
        """The quantile at this level; beyond ``top`` it grows like Student's t with ``freedom`` degrees of freedom.

        Raises ``UsageError`` unless the level lies between 0 and 1.
        """
        tail = quantile(level, freedom)
        if level > self.top:
            return self.quantiles[-1] * tail / quantile(self.top, freedom)
        K = len(self.quantiles)
        return float(np.interp(level * K / self.top, np.arange(K + 1), (0.0, *self.quantiles)))


@dataclass(frozen=True)
class LeftOut:
    """Sums over n rows of weight w > 0, in the model's units: ``square`` is Σ w e², ``stated`` is Σ w v.

    ``counts`` (2·OCTAVE·REACH,) is the histogram of |z|.
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
        """From design rows ``block`` (n, M) with ``target`` (n,), and a fit's μ (M,), R (M, M) and β.

        ``own`` are the rows, by position, that are centres, with their columns.
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
        """Mean squared leave-one-out error divided by the mean predicted variance."""
        return self.square / self.stated if self.n else 1.0

    def noise_variance(self, beta: float, target_variance: float) -> float:
        """σ² that makes the predicted variance match: leave-one-out errors minus the weights' uncertainty.

        At least 1/β; at most that plus ``target_variance``, the error of predicting the mean.
        """
        if not self.n:
            return 1 / beta
        missing = (self.square - self.stated) / self.n
        return 1 / beta + min(max(missing, 0.0), target_variance)

    def spread(self, vectors: int) -> Spread | None:
        """The quantiles, for a fit with this many ``vectors``; None if there are too few rows."""
        if self.n < FEWEST:
            return None
        top = min(TOP, 1.0 - BEYOND / self.n)
        # the k-th of n errors is the quantile at k/(n + 1): a new one is equally likely in each of the n + 1 gaps
        wanted = (self.n + 1) * top * np.arange(1, GRID + 1) / GRID
        reached = np.cumsum(self.counts)
        bins = np.searchsorted(reached, wanted)
        part = (wanted - reached[bins] + self.counts[bins]) / self.counts[bins]
        found = 2.0 ** ((bins + part) / OCTAVE - REACH) * (1.0 + CHARGE * vectors / self.n)
        return Spread(top, tuple(found.tolist()))


def _counts(z: Float) -> Int:
    """Histogram of these values; the first and the last bin include everything beyond."""
    within = np.fmin(np.fmax(z, 2.0**-REACH), 2.0**REACH)
    bins = np.floor(OCTAVE * (np.log2(within) + REACH)).astype(np.int64)
    size = 2 * OCTAVE * REACH
    return np.bincount(np.minimum(bins, size - 1), minlength=size)
