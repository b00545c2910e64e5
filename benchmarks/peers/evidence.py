"""The evidence of an RVM, computed from its α and β with the same formula for all libraries.

The evidence log N(t | 0, β⁻¹I + ΦA⁻¹Φᵀ) (Tipping 2001, eq. 15) is computed without the N × N
matrix. With R from the QR factorisation of [√β Φ; √A], it is

    −½ [N log 2π − N log β − Σ log α + 2 Σ log|R_ii| + min_w (β‖t − Φw‖² + wᵀAw)].

The minimum is computed from the optimal w as a sum of squares, so there is no cancellation if the
noise is very small.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr_multiply, solve_triangular

Float = NDArray[np.float64]


def log_evidence(design: Float, t: Float, alpha: Float, beta: float) -> float:
    """Return the evidence in nats of t (N,) for the design (N, M), α (M,) and β; M may be 0."""
    n, columns = design.shape
    twice = n * np.log(2 * np.pi / beta) - np.log(alpha).sum()
    weights = np.zeros(columns)
    if columns:
        stacked = np.vstack([np.sqrt(beta) * design, np.diag(np.sqrt(alpha))])
        target = np.concatenate([np.sqrt(beta) * t, np.zeros(columns)])
        projected, R = qr_multiply(stacked, target, mode="right", overwrite_a=True)
        weights = solve_triangular(R, projected)
        twice += 2 * np.log(np.abs(np.diagonal(R))).sum()
    least = beta * np.sum((t - design @ weights) ** 2) + np.sum(alpha * weights**2)
    return float(-0.5 * (twice + least))


def best_alpha(design: Float, t: Float, alpha: Float, beta: float, column: Float) -> float:
    """Return the optimal α of an additional column (N,): s²/(q² − s) (Tipping & Faul 2003, eq. 20),
    or infinity."""
    inner = beta * design.T @ column
    share = np.linalg.solve(beta * design.T @ design + np.diag(alpha), inner)
    s = beta * column @ column - inner @ share
    q = beta * column @ t - beta * share @ (design.T @ t)
    return float(s**2 / (q**2 - s)) if q**2 > s else float("inf")
