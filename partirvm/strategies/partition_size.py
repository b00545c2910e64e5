"""How many candidates join in one basic RVM: the √(N·d) sparseness heuristic (Ben-Shimon & Shmilovici 2006, §4).

ρ is the fraction of rows that a basic RVM on √(N·d) random rows keeps as vectors. Sparse problems can do with small
partitions, dense ones need large ones. (The paper prints the middle line with a reversed sign.)
"""

from __future__ import annotations

from math import ceil, sqrt


def partition_size(n_rows: int, n_features: int, rho: float) -> int:
    """P = ⌈f·√(N·d)⌉ with f = 0.2 for ρ ≤ 0.25, 0.6 for 0.25 < ρ ≤ 0.75, and 1 beyond.

    >>> [partition_size(6144, 8, rho) for rho in (0.1, 0.5, 0.9)]
    [45, 134, 222]
    >>> [partition_size(6144, 32, rho) for rho in (0.25, 0.75, 1.0)]
    [89, 267, 444]
    """
    fraction = 0.2 if rho <= 0.25 else 0.6 if rho <= 0.75 else 1.0
    return ceil(fraction * sqrt(n_rows * n_features))
