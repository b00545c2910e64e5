"""``partition_size="auto"``: how many rows P join in each round, by the sparseness of the problem."""

from __future__ import annotations

import math

from partirvm.learning.folds import DENSE
from partirvm.planning.plan import Sparseness
from partirvm.resolve.small_fits import SmallFits
from partirvm.strategies.problem import Problem, Record

AUTO_PARTITION = (32, 1000)
"""Minimum and maximum of the partition size that ``partition_size="auto"`` chooses."""

HEURISTIC_ROWS = 2000
"""Maximum number of rows of the basic RVM from which ``partition_size="auto"`` derives P."""


def choose_partition_size(fits: SmallFits, problem: Problem) -> tuple[Sparseness | None, int]:
    """Return the measured sparseness and the partition size; the minimum if the target is constant or time is over."""
    n_rows, d = fits.source.n_rows, fits.source.n_features
    most = min(math.ceil(math.sqrt(n_rows * d)), n_rows, HEURISTIC_ROWS)
    fit = fits.measure(problem, most) if problem.target_variance else None
    if fit is None:
        return None, min(AUTO_PARTITION[0], fits.shape.n_candidates)
    found, size, notes = resolve_partition_size(n_rows, d, fit, fits.centres)
    fits.notes += notes
    return found, size


def resolve_partition_size(
    n_rows: int, d: int, fit: Record, centres: int = 0
) -> tuple[Sparseness, int, tuple[str, ...]]:
    """Return the sparseness, ``partition_size="auto"`` within its bounds, and notes.

    The heuristic is ⌈f·√(N·d)⌉ with f = 0.2 for ρ ≤ 0.25, 0.6 for 0.25 < ρ ≤ 0.75, and 1 for larger ρ, the fraction of
    rows that a basic RVM on √(N·d) random rows keeps as vectors (Ben-Shimon & Shmilovici 2006, §3.1; the paper prints
    the middle line with a reversed sign). The partition size is at least the number of ``centres`` of kernel learning:
    learned kernels are wide, so the heuristic finds few vectors, and rounds of so few candidates would end the fit too
    early.
    """
    rho, (least, most) = fit.vectors / fit.rows, AUTO_PARTITION
    heuristic = math.ceil((0.2 if rho <= 0.25 else 0.6 if rho <= 0.75 else 1.0) * math.sqrt(n_rows * d))
    notes: tuple[str, ...] = ()
    size = min(max(heuristic, least, centres), most, n_rows)
    if rho > DENSE:
        notes += ("nearly every row became a vector: the kernel is probably too narrow (lower gamma)",)
    return Sparseness(fit.rows, fit.vectors, heuristic), size, notes
