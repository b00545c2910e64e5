"""Leave-one-out errors of a fit, by one pass: what its predictions of new rows are worth.

At fixed α and β the prediction of row n from all others has, with r = t − Φμ and the leverage h_n = βφ_nᵀΣφ_n, the
error and the variance (as Sundararajan & Keerthi 2001 have them for Gaussian processes)

    e_n = r_n / (1 − h_n),        v_n = σ² / (1 − h_n).

Of a row that is a centre both are too kind: its own basis functions, with an α that was fitted to this very row, are
still there, and a new row has none. With the columns D whose centre is the row left out as well,

    r_n ← r_n + gᵀV⁻¹μ_D,        h_n ← h_n − β gᵀV⁻¹g,        g = Σ_D: φ_n,  V = Σ_DD,

there are errors e′ and variances v′ (those of other rows are e and v). Two things are told from them:

``overconfidence``, Σe²/Σv′
    About one where the fit is sound. A kernel far too narrow gives 10² … 10⁸: there the evidence is highest and the
    residuals vanish, a row that is left out is hardly predicted, and only its own column's α allows for that.
``noise_variance``, σ² + (Σe′² − Σv′)/N
    With it new rows lie where they are said to. The other α's are not fitted again without the row, and nobody takes
    the place of the columns that went, while neighbours have seen the row through their α: the first makes e′ too
    large, the last too small. On real data they about cancel; of few wide columns on few rows e′ is too large.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Int = NDArray[np.int64]

LEAST = 1e-10
"""Least 1 − h: below it there is nothing but rounding."""


@dataclass(frozen=True)
class LeftOut:
    """Sums over n rows of weight w > 0, as the model sees the target: ``kept`` Σ w e², ``square`` Σ w e′²,
    ``stated`` Σ w v′.
    """

    n: int
    kept: float
    square: float
    stated: float

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
        white, r = block @ root, target - block @ mean
        share = np.einsum("nm,nm->n", white, white)  # h/β of weight one
        error = r / np.maximum(1.0 - beta * w * share, LEAST)
        kept = float(w @ error**2)
        for row, columns in own:
            part = root[columns]
            g = part @ white[row]
            solved = np.linalg.lstsq(part @ part.T, np.column_stack([mean[columns], g]), rcond=None)[0]
            r[row] += g @ solved[:, 0]
            share[row] -= g @ solved[:, 1]
        left = np.maximum(1.0 - beta * w * share, LEAST)
        present = w > 0
        return cls(int(present.sum()), kept, float(w @ (r / left) ** 2), float(np.sum(1.0 / left[present])) / beta)

    def __add__(self, other: LeftOut) -> LeftOut:
        return LeftOut(self.n + other.n, self.kept + other.kept, self.square + other.square, self.stated + other.stated)

    @property
    def overconfidence(self) -> float:
        """Mean squared error of rows left out, in units of the variance that the fit would state of new ones there."""
        return self.kept / self.stated if self.n else 1.0

    def noise_variance(self, beta: float, power: float) -> float:
        """σ² with which new rows lie where they are said to: what the errors have beyond the weights' uncertainty.

        At least 1/β; at most that and ``power``, the target's mean square: that much comes from predicting the mean.
        """
        if not self.n:
            return 1 / beta
        missing = (self.square - self.stated) / self.n
        return 1 / beta + min(max(missing, 0.0), power)
