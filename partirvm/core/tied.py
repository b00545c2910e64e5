"""The tied RVM, with one α for all kernel columns and one for all leading columns, and the gradient of its evidence.

Without pruning, the evidence is a smooth function of the kernel's parameters. Kernel learning maximises this function.
α and β follow MacKay's fixed point with sums over the tied columns in place of single columns (Tipping 2001, eqs.
16–18): γ_i = 1 − αΣ_ii, α ← Σγ_i / Σμ_i², β ← (N − Σγ)/‖t − Φμ‖². Kernel learning does not use the priors, the EM
updates and the fixed α of ``core.priors``. If the noise variance is given, kernel learning uses it.

**Slopes.** The evidence of Tipping's eq. 15, with W the weights of rows, is

    L(Φ) = ½ [ log|A| − log|H| + N log β + log|W| − N log 2π − β (t − Φμ)ᵀW(t − Φμ) − μᵀAμ ],     H = βΦᵀWΦ + A.

μ maximises the last two terms, so their derivative in μ is zero; d log|H| = 2β tr(Σ ΦᵀW dΦ) remains. Hence
dL = Σ_nm D_nm dΦ_nm with

    D = β W [ (t − Φμ)μᵀ − ΦΣ ],

and ∂L/∂ log θ = Σ_nm D_nm ∂Φ_nm/∂ log θ. This is a sum over rows, which a pass computes by weighting the gradient of
the kernel with D. For several targets D is the sum over targets, each with separate t, μ, Σ and β.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from partirvm.core.posterior import AnyPosterior, any_posterior, posterior
from partirvm.core.statistics import GramStatistics
from partirvm.core.tied_sums import ColumnGroup, Reduced, Sums, sums_of
from partirvm.core.updates import ALPHA_FLOOR, NOISE_FLOOR

Float = NDArray[np.float64]
Int = NDArray[np.int64]

ALPHA_CEILING = 1e5
"""Maximum α, as a multiple of the columns' largest data precision: larger values could hardly decrease again."""


@dataclass(frozen=True)
class Tied:
    """α of all kernel columns, α of the leading columns, and the noise precision β, which is (T,) for several targets.

    β is 1 for classification.
    """

    alpha: float
    leading: float
    beta: float | Float = 1.0

    def alphas(self, labels: Int) -> Float:
        """Return α of the columns with these labels, (M,)."""
        return np.where(labels < 0, self.leading, self.alpha)


@dataclass(frozen=True)
class NoiseBounds:
    """Constraints of β: the ``target_variance``, which defines the noise floor, or a ``fixed`` value of β.

    For several targets both are arrays (T,).
    """

    target_variance: float | Float
    fixed: float | Float | None = None

    def precision(self, n: int, sums: Sequence[Sums]) -> float | Float:
        """Return MacKay's β of ``n`` rows and these sums for each target, limited by the noise floor."""
        if self.fixed is not None:
            return self.fixed
        floor = NOISE_FLOOR * np.atleast_1d(self.target_variance)
        determined = np.array([each.kernels.determined + each.leading.determined for each in sums])
        freedom = np.maximum(n - determined, 1.0)
        residual = np.array([each.residual for each in sums])
        beta = np.minimum(freedom / np.maximum(residual, floor * freedom), 1 / floor)
        return beta if isinstance(self.target_variance, np.ndarray) else float(beta[0])


def updates(statistics: GramStatistics, tied: Tied, count: int, noise: NoiseBounds) -> tuple[Tied, AnyPosterior]:
    """Apply ``count`` updates of α and β on these statistics, and return α, β and the posterior.

    One reduction of the Gram matrix serves all updates (``core.tied_sums``). Raises ``NumericalError`` as ``posterior``
    does.
    """
    reduced = Reduced.of(statistics)
    for _ in range(count):
        sums = [_sums(statistics, reduced, tied, k) for k in range(statistics.n_targets)]
        beta = noise.precision(statistics.n, sums)
        kernels = reduce(ColumnGroup.plus, (each.kernels for each in sums))
        tied = retied(tied, kernels, reduce(ColumnGroup.plus, (each.leading for each in sums)), beta)
    return tied, any_posterior(statistics, tied.alphas(statistics.labels), tied.beta)


def _sums(statistics: GramStatistics, reduced: Reduced | None, tied: Tied, k: int) -> Sums:
    """Return the sums of target ``k``, from the posterior if there is no reduction or it does not serve."""
    beta = float(np.atleast_1d(tied.beta)[k])
    found = None if reduced is None else reduced.target(k).sums(tied.alpha, tied.leading, beta)
    if found is None:
        one = statistics.target(k)
        made = posterior(one, tied.alphas(statistics.labels), beta)
        found = sums_of(one, made.determinedness, made.mean, made.residual)
    return found


def retied(tied: Tied, kernels: ColumnGroup, leading: ColumnGroup, beta: float | Float) -> Tied:
    """Update α ← Σγ_i/Σμ_i² over the kernel columns, and over the leading columns."""
    most = float(np.max(beta))

    def ratio(group: ColumnGroup, before: float) -> float:
        largest = most * group.largest
        if not (group.columns and largest > 0):
            return before
        alpha = group.determined / group.square if group.square > 0 else np.inf
        return float(np.clip(alpha, ALPHA_FLOOR * largest, ALPHA_CEILING * largest))

    return Tied(ratio(kernels, tied.alpha), ratio(leading, tied.leading), beta)


def slopes(block: Float, target: Float, mean: Float, covariance: Float, beta: float, weights: Float | None) -> Float:
    """Return D (n, M), nats: the derivative of the evidence in each element of a block Φ (n, M) of the design.

    ``target`` (n,), ``mean`` (M,) and ``covariance`` (M, M) are t, μ and Σ; ``weights`` (n,) are the row weights.
    """
    found: Float = (covariance @ block.T).T  # stored column by column, the fastest layout for kernels
    found *= -beta
    found += (beta * (target - block @ mean))[:, None] * mean
    if weights is not None:
        found *= weights[:, None]
    return found
