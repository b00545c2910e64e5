"""Floating-point work and seconds of a fit, as closed formulas over measured rates.

Per row, a gram pass of M kept columns and P candidates evaluates M + P kernel elements and multiplies 2MP + P² times;
a residual pass evaluates M elements; one dense iteration takes M³ (Cholesky and inverse together). Vectors are expected
to fall to ``stop_fraction`` of each round's candidates, as in the paper's analysis (P, 1.5P, 1.75P … 2P).
"""

from __future__ import annotations

from dataclasses import dataclass

ITERATIONS = 30
"""Dense iterations expected in an intermediate fit."""

UNLIMITED_ROUNDS = 10
"""Rounds that an estimate assumes where the user sets no limit."""


@dataclass(frozen=True)
class Rates:
    """What one thread does: seconds to read a row, seconds per kernel element, floating-point operations per second."""

    read: float
    element: float
    product: float


@dataclass(frozen=True)
class RoundCost:
    """One round: columns kept M, candidates P, passes over the rows, and its expected seconds."""

    kept: int
    candidates: int
    passes: int
    gram_flops: float
    pass_seconds: float
    solve_seconds: float


def round_cost(n_rows: int, kept: int, candidates: int, residual: bool, rates: Rates, threads: int) -> RoundCost:
    """Cost of one round; ``residual`` says whether the next candidates come from a residual pass."""
    elements = n_rows * (kept + candidates + (kept if residual else 0))
    flops = n_rows * (2.0 * kept * candidates + candidates**2)
    passes = 2 if residual else 1
    seconds = (passes * n_rows * rates.read + elements * rates.element + flops / rates.product) / threads
    solve = ITERATIONS * (kept + candidates) ** 3 / rates.product
    return RoundCost(kept, candidates, passes, flops, seconds, solve)


def working_set_cost(
    n_rows: int,
    partition_size: int,
    rounds: int,
    stop_fraction: float,
    *,
    residual: bool,
    rates: Rates,
    threads: int,
) -> list[RoundCost]:
    """Cost of each round of the working set, and a last residual pass counted into the last."""
    costs, kept = [], 1
    for number in range(rounds):
        last = number == rounds - 1
        costs.append(round_cost(n_rows, kept, partition_size, residual or last, rates, threads))
        kept = 1 + int(stop_fraction * (kept - 1 + partition_size))
    return costs
