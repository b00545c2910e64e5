"""The tied RVM of classes: one α for all kernel columns and outputs; slopes of its Laplace evidence in the design.

The evidence at the mode μ of the penalised likelihood is (Tipping 2001, §3; ``core.laplace``)

    L(Φ) = log p(t | Φμ) − ½ Σ_k μ_kᵀAμ_k + ½ Σ_k [ log|A| − log|H_k| ],     H_k = ΦᵀB_kΦ + A,

and moves with Φ in three ways (Rasmussen & Williams 2006, §5.5.1, in weight space): through Φ itself, through B, which
depends on f = Φμ, and through the mode. With s_nk = φ_nᵀΣ_kφ_n and, of output l,

    c_l = Σ_k s_k ∘ ∂b_k/∂f_l,     v_l = −½ Σ_l Φᵀc_l,

where the gradient of L at the mode is −½Φᵀc and Σ_l[dΦᵀ(t − y_l) − ΦᵀB_l dΦ μ_l] is how the mode moves,

    D_l = (t − y_l)(μ_l + v_l)ᵀ − B_lΦΣ_l − [ ½c_l + B_lΦv_l ]μ_lᵀ,

rows weighted throughout. For two classes and for one against the rest ∂b_k/∂f_l is 0 unless k = l, and D is exact. For
``multinomial`` ∂b_k/∂f_l = (1 − 2y_k)y_k(δ_kl − y_l) is exact too, but the mode's movement is that of the blocks H_k
alone: blocks between outputs are left out of it, as they are of log|H|. By differences of small problems D points the
right way (cosine above 0.997) and is a tenth too long; with a mode that stood still it would be a fifth.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from partirvm.core.laplace import LaplaceState, init, settled
from partirvm.core.link import LINKS
from partirvm.core.logistic import LogisticBlock, targets
from partirvm.core.tied import Tied, retied

Float = NDArray[np.float64]
Int = NDArray[np.int64]


def begun(likelihood: str, labels: Int, tied: Tied, weights: Float, block: LogisticBlock) -> LaplaceState:
    """A fit at these α, with the quadratic ``block`` about ``weights`` (M, C)."""
    return init(likelihood, labels, _alphas(tied, labels, weights.shape[1]), weights, block)


def updates(state: LaplaceState, tied: Tied, count: int) -> tuple[Tied, LaplaceState]:
    """``count`` updates of α on the fixed quadratic; the mode has to be found anew afterwards."""
    precision = np.einsum("kmm->mk", state.block.curvature)
    for _ in range(count):
        tied = retied(tied, state.labels, state.determinedness, state.mean**2, precision, 1.0)
        alpha = _alphas(tied, state.labels, state.mean.shape[1])
        state = settled(state, alpha, state.weights, state.block)
    return tied, state


def covariances(state: LaplaceState) -> Float:
    """Σ_k, (C, M, M)."""
    return np.stack([root @ root.T for root in state.roots()])


def log_det_gradient(likelihood: str, block: Float, mean: Float, covariance: Float, weights: Float | None) -> Float:
    """c (n, C): how log|H_1|…|H_C| changes with each linear predictor of a block Φ (n, M).

    ``mean`` is (M, C), ``covariance`` (C, M, M), ``weights`` (n,) those of rows.
    """
    spread = [np.einsum("nm,nm->n", (each @ block.T).T, block) for each in covariance]
    return _log_det_gradient(likelihood, block @ mean, np.stack(spread, axis=1), weights)


def slopes(
    likelihood: str,
    block: Float,
    codes: Float,
    mean: Float,
    covariance: Float,
    shift: Float,
    weights: Float | None,
) -> Float:
    """D (n, M), nats, summed over outputs, of a block Φ (n, M) of rows with class ``codes`` (n,).

    ``shift`` (M, C) is v; the other arguments are those of ``log_det_gradient``.
    """
    f = block @ mean
    _, rest, bend = LINKS[likelihood].derivatives(f, targets(codes, f.shape[1]))
    if weights is not None:
        rest, bend = rest * weights[:, None], bend * weights[:, None]
    found: Float = ((mean + shift) @ rest.T).T  # stored column by column, as kernels like it
    spread = np.empty_like(f)
    for k, each in enumerate(covariance):
        product = (each @ block.T).T
        spread[:, k] = np.einsum("nm,nm->n", product, block)
        product *= bend[:, k : k + 1]
        found -= product
    turn = 0.5 * _log_det_gradient(likelihood, f, spread, weights) + bend * (block @ shift)
    found -= (mean @ turn.T).T
    return found


def _log_det_gradient(likelihood: str, f: Float, spread: Float, weights: Float | None) -> Float:
    """c (n, C) at linear predictors f (n, C) with variances s (n, C)."""
    found = LINKS[likelihood].log_det_gradient(f, spread)
    return found if weights is None else found * weights[:, None]


def _alphas(tied: Tied, labels: Int, outputs: int) -> Float:
    return np.repeat(tied.alphas(labels)[:, None], outputs, axis=1)
