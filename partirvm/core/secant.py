"""Newton steps for coupled outputs: the block-diagonal Hessian, corrected by gradient differences of past passes.

Let a pass at W + s find a gradient that is smaller by y than at W. Then to first order the full curvature G, including
the blocks between outputs, satisfies Gs = y (the secant equation). The pairs (s, y + As) are valid for any α. The BFGS
recursion (Nocedal & Wright, Numerical Optimization, 2006, algorithm 7.4) starts from the diagonal blocks (G_k + A_k)⁻¹
and uses the last few pairs. The result is a step with the correct curvature along all s, without another pass.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from partirvm.core.laplace import LaplaceState

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Pairs = tuple[tuple[Float, Float], ...]
"""Type of the pairs of a step s and a decrease y of the gradient, (M, C) each, oldest first."""

RELAXED = 2.0 / 3.0
"""Fraction of the block-diagonal Newton step that is taken if there is no pair."""

MEMORY = 8
"""Number of pairs kept."""

STRAIGHT = 1e-12
"""Minimum cosine between s and y + As for a pair to be used, since smaller cosines are rounding errors."""


def remember(pairs: Pairs, step: Float, fall: Float) -> Pairs:
    """Append a pair and drop the oldest pairs beyond ``MEMORY``. A step of zero is ignored."""
    return (*pairs, (step, fall))[-MEMORY:] if step.any() else pairs


def among(pairs: Pairs, before: Int, after: Int) -> Pairs:
    """Restrict pairs for columns with the labels ``before`` to columns with the labels ``after``."""
    if len(before) == len(after):
        return pairs
    kept = np.flatnonzero(np.isin(before, after))
    return tuple((step[kept], fall[kept]) for step, fall in pairs)


def newton_step(state: LaplaceState, pairs: Pairs) -> Float:
    """Return a step (M, C) from the weights of ``state`` towards the mode, which raises the penalised likelihood.

    Weights of columns at α = ∞ do not change.
    """
    there = np.isfinite(state.alpha)
    prior = np.where(there, state.alpha, 0.0)
    q = np.where(there, state.block.gradient - prior * state.weights, 0.0)
    used = []
    for step, fall in ((there * step, there * fall) for step, fall in pairs):
        change = fall + prior * step
        product = float(np.sum(step * change))
        if product > STRAIGHT * np.sqrt(np.sum(step**2) * np.sum(change**2)):
            used.append((step, change, product))
    if not used:
        return RELAXED * _by_blocks(state, q)
    parts = []
    for step, change, product in reversed(used):
        part = float(np.sum(step * q)) / product
        parts.append(part)
        q = q - part * change
    found = _by_blocks(state, q)
    for (step, change, product), part in zip(used, reversed(parts), strict=True):
        found += (part - float(np.sum(change * found)) / product) * step
    return found


def _by_blocks(state: LaplaceState, right: Float) -> Float:
    """Return (G_k + A_k)⁻¹ times column k of ``right``, for each output k, (M, C)."""
    found = np.zeros(right.shape)
    for k, each in enumerate(state.posteriors):
        active = np.isfinite(state.alpha[:, k])
        if active.any():
            found[active, k] = each.scale * lapack.dpotrs(each.factor, each.scale * right[active, k], lower=1)[0]
    return found
