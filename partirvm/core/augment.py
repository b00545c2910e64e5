"""RVM*: one additional basis function at each test input, so that the variance grows away from the data.

Source: Rasmussen & Quiñonero-Candela (2005), Healing the relevance vector machine through augmentation. Far from all
relevance vectors the columns of an RVM are zero. So the predictive variance is small, although the uncertainty is
largest there. RVM* adds a column φ†(x) = k(x, x*) for each test input x* separately. The weight of this column has the
prior precision α†. The weights are conditioned on the training rows again, at the given α and β. By block inversion of
the posterior precision
    [ H     βc     ]        H = βΦᵀWΦ + A = Σ⁻¹,   c = ΦᵀWφ†,
    [ βcᵀ   α† + β φ†ᵀWφ† ]

of M + 1 columns, the prediction is the prediction of the M columns plus a correction:

    s = βφ†ᵀWφ† − β²cᵀΣc,    q = βφ†ᵀW(t − Φμ),    e = k(x*, x*) − βφ(x*)ᵀΣc
    mean* = φ(x*)ᵀμ + e·q / (α† + s)
    var*  = σ² + φ(x*)ᵀΣφ(x*) + e² / (α† + s)

s and q are Tipping & Faul's sparsity and quality of the new column. e is the part of the new column at x* that the
other columns do not explain.

With α† = 1/var(t) and k(x, x) = 1, the prior variance of the function at x* equals the target variance. For kernels of
any height α† = k(x*, x*)²/var(t) keeps this property, so that results do not depend on the kernel's scale.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from partirvm.core.rowwise import products

Float = NDArray[np.float64]


@dataclass(frozen=True)
class ExtraColumns:
    """Additive statistics of G extra columns F (n, G) and of the model's M columns Φ over n rows.

    ``sum_squares`` (G,) is the diagonal of FᵀWF, ``cross`` (G, M) is FᵀWΦ, ``projection`` (G,) is FᵀW(t − Φμ).
    """

    sum_squares: Float
    cross: Float
    projection: Float

    @classmethod
    def none(cls, extra: int, columns: int) -> Self:
        """Return the statistics of zero rows, with G = ``extra`` and M = ``columns``."""
        return cls(np.zeros(extra), np.zeros((extra, columns)), np.zeros(extra))

    def accumulate(self, some: slice, F: Float, weighted: Float, residual: Float, weights: Float | None) -> None:
        """Add rows to the columns ``some`` in place, given F (n, g), WΦ (n, M), W(t − Φμ) (n,) and weights (n,)."""
        self.sum_squares[some] += np.einsum("ng,ng->g", F, F if weights is None else F * weights[:, None])
        self.cross[some] += F.T @ weighted
        self.projection[some] += F.T @ residual

    def __add__(self, other: ExtraColumns) -> ExtraColumns:
        return ExtraColumns(
            self.sum_squares + other.sum_squares, self.cross + other.cross, self.projection + other.projection
        )

    def __getitem__(self, some: slice) -> ExtraColumns:
        """Return the statistics of a subset of the extra columns."""
        return ExtraColumns(self.sum_squares[some], self.cross[some], self.projection[some])


def augmentation(
    extra: ExtraColumns, block: Float, heights: Float, root: Float, beta: float, variance: float
) -> tuple[Float, Float]:
    """Return corrections of mean and variance, (G,) each, by the extra column of each of G test rows.

    ``block`` (G, M) is Φ at the test rows, and ``heights`` (G,) is k(x*, x*) of the test rows. ``root`` (M, M) is R
    with Σ = RRᵀ. ``variance`` is the target variance in the model's units. A row of height 0 has corrections 0.
    """
    if not variance > 0:
        return np.zeros(len(heights)), np.zeros(len(heights))
    projected = beta * products(extra.cross, root)
    sparsity = np.maximum(beta * extra.sum_squares - np.einsum("gm,gm->g", projected, projected), 0.0)
    own = heights - np.einsum("gm,gm->g", products(block, root), projected)
    precision = heights**2 / variance + sparsity
    ratio = np.divide(own, precision, out=np.zeros(len(own)), where=precision > 0)
    return ratio * (beta * extra.projection), ratio * own
